import { readFileSync } from 'node:fs'
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { samplesOf, transcribe } from '#test/golden/listening.ts'
import { openRecognizer } from '#workers/audio/open-recognizer.ts'
import { findQuietCut } from '#workers/audio/quiet-cut.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

const FIXTURES = join(import.meta.dirname, '../../../fixtures/models')
const runtime = openRuntime()
const folders: string[] = []

afterAll(async () => {
  await runtime.close()
  await Promise.all(folders.map((folder) => rm(folder, { recursive: true })))
})

async function folderWith(files: Readonly<Record<string, string>>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-listen-'))
  folders.push(folder)
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text)
  return folder
}

it.each([
  [
    'a type that it does not know',
    { 'config.json': '{"model_type":"nemo-conformer-tdt"}' },
    'speech models of type "nemo-conformer-tdt" are not supported; supported: whisper, wav2vec2',
  ],
  [
    'files of another tool',
    { 'tiny-encoder.onnx': '', 'tiny-decoder.onnx': '', 'tiny-tokens.txt': '' },
    'files of sherpa-onnx and onnxruntime-genai are not supported',
  ],
  ['a transducer', { 'joiner-epoch-99.onnx': '' }, 'transducers are not supported'],
])('refuses %s by name', async (_title, files, message) => {
  await expect(openRecognizer({ runtime, folder: await folderWith(files) })).rejects.toThrow(
    message,
  )
})

describe('a CTC model', () => {
  const source = join(FIXTURES, 'wav2vec2')
  const vocabulary = JSON.parse(readFileSync(join(source, 'vocab.json'), 'utf8'))
  const changed = async (files: Readonly<Record<string, object>>): Promise<string> => {
    const folder = await folderWith({})
    await cp(source, folder, { recursive: true })
    for (const [name, value] of Object.entries(files)) {
      await writeFile(join(folder, name), JSON.stringify(value))
    }
    return folder
  }
  const read = async (folder: string): Promise<string> => {
    const recognizer = await openRecognizer({ runtime, folder })
    const { text } = await transcribe(recognizer, samplesOf('en-1.wav'))
    await recognizer.close()
    return text
  }

  it('reads the vocabulary of its language where there is one for each (MMS)', async () => {
    const vocabularies = { 'vocab.json': { deu: { x: 3 }, eng: vocabulary } }
    const settings = (target?: string) => ({
      'tokenizer_config.json': { pad_token: '<pad>', target_lang: target },
    })
    const expected = await read(source)
    expect(expected).not.toBe('')
    expect(await read(await changed({ ...vocabularies, ...settings('eng') }))).toBe(expected)
    for (const target of [undefined, 'fra']) {
      const folder = await changed({ ...vocabularies, ...settings(target) })
      await expect(read(folder)).rejects.toThrow('target_lang in tokenizer_config.json must name')
    }
  })

  it.each(['unispeech', 'unispeech-sat', 'data2vec-audio', 'wav2vec2-conformer', 'sew', 'sew-d'])(
    'of type %s is read like wav2vec2',
    async (type) => {
      const config = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8'))
      const folder = await changed({ 'config.json': { ...config, model_type: type } })
      expect(await read(folder)).toBe(await read(source))
    },
  )
})

it('refuses a model that finds no speech', async () => {
  const opening = openRecognizer({
    runtime,
    folder: join(FIXTURES, 'hubert'),
    activityFolder: join(FIXTURES, 'wav2vec2'),
  })
  await expect(opening).rejects.toThrow('not a Silero VAD of version 5: there is no input, state')
})

it('cuts a window in the middle of the pause in its last quarter', () => {
  const samples = new Float32Array(64_000).fill(0.1).fill(0, 10_000, 20_000).fill(0, 54_400, 57_600)
  expect(findQuietCut(samples)).toBe(56_000)
  expect(findQuietCut(samples.fill(0.1))).toBeGreaterThanOrEqual(48_000)
})
