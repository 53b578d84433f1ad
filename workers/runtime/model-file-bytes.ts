import { stat } from 'node:fs/promises'

/** Bytes of model files, including the external data of large exports. */
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
