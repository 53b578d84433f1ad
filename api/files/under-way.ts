/**
 * The bytes of the uploads that this process is receiving, by organization: they take room already,
 * though no file is charged for them yet.
 */
export class BytesUnderWay {
  readonly #bytes = new Map<string, number>()

  /** A new upload of an organization. */
  open(organizationId: string): UploadUnderWay {
    let own = 0
    let isOver = false
    const add = (bytes: number): number => {
      own += bytes
      const sum = (this.#bytes.get(organizationId) ?? 0) + bytes
      if (sum === 0) this.#bytes.delete(organizationId)
      else this.#bytes.set(organizationId, sum)
      return sum
    }
    const end = (): void => {
      isOver = true
      add(-own)
    }
    return {
      fits(bytes, bytesMax) {
        if (!isOver && add(bytes) <= bytesMax) return true
        // At once, so that the others need not end as well.
        end()
        return false
      },
      end,
    }
  }
}

/** One upload, until its file is charged for or given up. */
export interface UploadUnderWay {
  /** Whether more bytes fit beside what all others have sent; if not, the upload is over. */
  fits(bytes: number, bytesMax: number): boolean
  end(): void
}
