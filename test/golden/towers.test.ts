import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { defined } from '#shared/json.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { IMAGE_OUTPUTS, openImageTower } from '#workers/embedding/image-tower.ts'
import { normalize } from '#workers/embedding/pooling.ts'
import { renameTensors } from '#workers/graph/extract.ts'
import { makeNode, makeValue } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openImage } from '#workers/image/image-file.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { pixelValues } from '#workers/vision/pixel-values.ts'
import { readTowerRules } from '#workers/vision/tower-rules.ts'

/** Reference numbers, made by test/fixtures/build-models.py with transformers (see `source`). */
interface Golden {
  readonly texts: readonly string[]
  readonly ids: readonly (readonly number[])[]
  readonly textEmbeddings: readonly (readonly number[])[]
  readonly images: readonly { readonly dims: readonly number[]; readonly pixels: string }[]
  readonly imageEmbeddings: readonly (readonly number[])[]
}

const MODELS = join(import.meta.dirname, '../fixtures/models')
const read = (path: string) => JSON.parse(readFileSync(join(MODELS, path), 'utf8'))
const FILES = (read('vision-images.json') as string[]).map((file) => Buffer.from(file, 'base64'))
const { signal } = new AbortController()
const runtime = openRuntime()
const folders: string[] = []
afterAll(async () => {
  await runtime.close()
  for (const folder of folders) rmSync(folder, { recursive: true })
})

function expectClose(vectors: readonly Float32Array[], references: Golden['textEmbeddings']): void {
  expect(vectors).toHaveLength(references.length)
  for (const [row, reference] of references.entries()) {
    expect(vectors[row]).toHaveLength(reference.length)
    for (const [index, value] of reference.entries()) {
      expect(vectors[row]?.[index]).toBeCloseTo(value, 4)
    }
  }
}

/** A copy of a model with both towers in one graph, beside similarities that need both. */
async function withJointTowers(
  name: string,
  outputs: Readonly<Record<string, string>>,
): Promise<string> {
  const folder = join(mkdtempSync(join(tmpdir(), 'millrace-towers-')), name)
  folders.push(dirname(folder))
  cpSync(join(MODELS, name), folder, { recursive: true })
  // Weights stay in the files of the two graphs.
  const open = (tower: string) => readModelFile(join(folder, `onnx/${tower}_model.onnx`))
  const [text, vision] = [await open('text'), await open('vision')]
  const inner = [
    ...vision.graph.nodes.flatMap(({ outputs }) => outputs),
    ...vision.graph.constants.map((constant) => constant.name),
  ].filter((tensor) => tensor !== 'image_embeds')
  const names = new Map(inner.map((tensor) => [tensor, `vision/${tensor}`]))
  const images = defined(renameTensors(vision.graph, names))
  const graph = {
    ...text.graph,
    nodes: [
      ...text.graph.nodes,
      ...images.nodes,
      makeNode('Transpose', ['image_embeds'], 'columns'),
      makeNode('MatMul', ['text_embeds', 'columns'], 'logits_per_text'),
    ],
    constants: [...text.graph.constants, ...images.constants],
    inputs: [...text.graph.inputs, ...images.inputs],
    outputs: [
      makeValue('logits_per_text', 'float32', ['texts', 'images']),
      ...text.graph.outputs,
      ...images.outputs,
    ],
  }
  const named = defined(renameTensors(graph, new Map(Object.entries(outputs))))
  writeFileSync(join(folder, 'onnx/model.onnx'), writeModel({ ...text, graph: named }))
  return folder
}

describe.each([
  ['clip', 16, 'text_model', 'vision_model', {}],
  // Both towers in one graph, as optimum exports CLIP.
  ['clip', 16, 'model', 'model', {}],
  ['siglip', 16, 'text_model', 'vision_model', {}],
  // The names of jina-clip-v2.
  [
    'clip',
    16,
    'model',
    'model',
    { text_embeds: 'text_embeddings', image_embeds: 'image_embeddings' },
  ],
])('%s', async (name, patches, onnxFile, ofImages, names) => {
  const golden = read(join(name, 'golden.json')) as Golden
  const folder = onnxFile === 'model' ? await withJointTowers(name, names) : join(MODELS, name)
  const encoder = await openEncoder({ runtime, folder, onnxFile })
  const options = { outputs: IMAGE_OUTPUTS, width: encoder.dimensions }
  const file = join(folder, `onnx/${ofImages}.onnx`)
  const tower = await openImageTower({ runtime, folder, file, ...options })
  afterAll(async () => {
    await encoder.close()
    await tower.close()
  })

  it('reads texts as the tokenizer of transformers does', async () => {
    const ids = await Promise.all(golden.texts.map((text) => encoder.encodeText(text)))
    expect(ids).toEqual(golden.ids)
  })

  it('gives the vectors of texts, alone and beside others of other lengths', async () => {
    const embed = (ids: readonly number[]) => encoder.embed(ids, signal)
    expectClose(await Promise.all(golden.ids.map(embed)), golden.textEmbeddings)
    expectClose([await embed(defined(golden.ids[1]))], [defined(golden.textEmbeddings[1])])
  })

  it('reads pixels within 1 ÷ 255', async () => {
    const rules = await readTowerRules(folder)
    const { mean, std } = rules.pixels
    for (const [index, { dims, pixels }] of golden.images.entries()) {
      const image = await openImage(defined(FILES[index]), 'image')
      const { data, dims: own } = pixelValues(
        await image.colours(),
        rules.layout(image),
        rules.pixels,
      )
      expect(own).toEqual(dims)
      const expected = Buffer.from(pixels, 'base64')
      const area = defined(own[2]) * defined(own[3])
      for (const [at, value] of data.entries()) {
        const channel = Math.floor(at / area) % 3
        const plain = (value * defined(std[channel]) + defined(mean[channel])) * 255
        if (Math.abs(plain - defined(expected[at])) > 1.01) expect(plain).toBe(expected[at])
      }
    }
  })

  it('gives the vectors of images, alone and together', async () => {
    const embed = async (bytes: Buffer) =>
      normalize(await tower.encode(bytes, { param: 'input[0].image', signal }))
    expectClose(await Promise.all(FILES.map(embed)), golden.imageEmbeddings)
    expectClose([await embed(defined(FILES[1]))], [defined(golden.imageEmbeddings[1])])
    expect(tower.tokensPerImage).toBe(patches)
  })

  it('is not opened with vectors of texts of another length', async () => {
    const open = openImageTower({ runtime, folder, file, ...options, width: 5 })
    await expect(open).rejects.toThrow('elements, not 5')
  })
})
