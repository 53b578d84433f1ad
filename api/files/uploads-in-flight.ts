/**
 * The bytes of uploads in flight in this process, by organization: they use space before a file is
 * charged for them.
 */
export class UploadsInFlight {
  readonly #bytes = new Map<string, number>()

  /** Starts an upload of an organization. */
  open(organizationId: string): UploadInFlight {
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
        // Ends this upload at once, so that the others can continue.
        end()
        return false
      },
      end,
    }
  }
}

/** One upload, until its file is charged or discarded. */
export interface UploadInFlight {
  /** Whether more bytes fit beside all other uploads; if not, the upload ends. */
  fits(bytes: number, bytesMax: number): boolean
  end(): void
}
