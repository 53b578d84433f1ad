import { stat } from 'node:fs/promises'

/** Bytes of model files, with the data that large exports keep beside them. */
export async function modelFileBytes(files: readonly string[]): Promise<number> {
  const sizes = await Promise.all(
    files
      .flatMap((file) => [file, `${file}_data`, `${file}.data`])
      .map((path) =>
        stat(path).then(
          ({ size }) => size,
          () => 0,
        ),
      ),
  )
  return sizes.reduce((sum, size) => sum + size, 0)
}
