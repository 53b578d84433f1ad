import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect, it } from 'vitest'

import { openImage } from '#workers/image/image-file.ts'
import { pixelValues } from '#workers/vision/pixel-values.ts'
import { readTowerRules } from '#workers/vision/tower-rules.ts'

/** Recorded from transformers by test/golden/make-image-processors.py. */
interface Golden {
  readonly name: string
  readonly processor: object
  /** The float32 values of each image. */
  readonly pixels: readonly string[]
}

const read = (path: string) => JSON.parse(readFileSync(join(import.meta.dirname, path), 'utf8'))
const IMAGES = (read('../fixtures/models/vision-images.json') as string[]).map((file) =>
  Buffer.from(file, 'base64'),
)

it.each(read('image-processors.json') as Golden[])(
  'reads the pixels of the image processor of $name within 1 ÷ 255',
  async ({ processor, pixels }) => {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-processor-'))
    writeFileSync(join(folder, 'preprocessor_config.json'), JSON.stringify(processor))
    writeFileSync(join(folder, 'config.json'), '{}')
    const { pixels: settings, layout } = await readTowerRules(folder)
    rmSync(folder, { recursive: true })
    for (const [index, image] of IMAGES.entries()) {
      const opened = await openImage(image, 'input')
      const { data: values } = pixelValues(await opened.colours(), layout(opened), settings)
      const bytes = new Uint8Array(Buffer.from(pixels[index] ?? '', 'base64'))
      const reference = new Float32Array(bytes.buffer)
      expect(values).toHaveLength(reference.length)
      const tolerance = (1.001 * settings.scale) / Math.min(...settings.std)
      for (const [at, value] of values.entries()) {
        expect(Math.abs(value - (reference[at] ?? Number.NaN))).toBeLessThan(tolerance)
      }
    }
  },
)
