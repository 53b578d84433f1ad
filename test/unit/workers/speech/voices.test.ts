import { readFileSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { field } from '#workers/graph/wire.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { openVoices } from '#workers/speech/open-voices.ts'

/** Reference ids and samples, made by test/fixtures/builders/speech.py (see `source`). */
interface Golden {
  readonly cases: readonly {
    readonly text?: string
    readonly phonemes?: string
    readonly voice?: string
    readonly speed?: number
    readonly ids: readonly number[]
    readonly length: number
    readonly first: readonly number[]
    readonly power: number
  }[]
}

const MODELS = join(import.meta.dirname, '../../../fixtures/models')
const { signal } = new AbortController()
const runtime = openRuntime()
const folder = await mkdtemp(join(tmpdir(), 'millrace-voices-'))
afterAll(async () => {
  await runtime.close()
  await rm(folder, { recursive: true })
})

// The miniatures are given phonemes instead of letters.
const phonemizer = async () => async (text: string) => text

/** Kokoro in the files of sherpa-onnx: tokens and voices in one file each, names in the graph. */
const sherpa = join(folder, 'sherpa')
const kokoro = join(MODELS, 'kokoro')
await mkdir(sherpa)
const { model } = JSON.parse(readFileSync(join(kokoro, 'tokenizer.json'), 'utf8')) as {
  readonly model: { readonly vocab: Readonly<Record<string, number>> }
}
const lines = Object.entries(model.vocab).map(([token, id]) => `${token} ${id}\n`)
await writeFile(join(sherpa, 'tokens.txt'), lines.join(''))
const files = ['af_one.bin', 'bm_two.bin'].map((name) => readFileSync(join(kokoro, 'voices', name)))
await writeFile(join(sherpa, 'voices.bin'), Buffer.concat(files))
const names = field(14, [field(1, 'speaker_names'), field(2, 'af_one,bm_two')])
const graph = readFileSync(join(kokoro, 'onnx/model.onnx'))
await writeFile(join(sherpa, 'model.onnx'), Buffer.concat([graph, names]))
await cp(join(kokoro, 'golden.json'), join(sherpa, 'golden.json'))

describe.each([
  ['vits', 16_000, ['speaker-0']],
  ['piper', 22_050, ['low', 'high']],
  ['kokoro', 24_000, ['af_one', 'bm_two']],
  ['kokoro of sherpa-onnx', 24_000, ['af_one', 'bm_two']],
])('%s', (name, sampleRate, names) => {
  it('reads and speaks as the reference', async () => {
    const source = name.endsWith('sherpa-onnx') ? sherpa : join(MODELS, name)
    const voices = await openVoices({ runtime, folder: source, phonemizer })
    expect(voices).toMatchObject({ sampleRate, names })
    const file = readFileSync(join(source, 'golden.json'), 'utf8')
    for (const golden of (JSON.parse(file) as Golden).cases) {
      const { voice = names[0] as string, speed = 1 } = golden
      const tokenIds = await voices.encode(golden.text ?? golden.phonemes ?? '', voice)
      expect(tokenIds).toEqual(golden.ids)
      const wave = await voices.speak({ tokenIds, voice, speed }, signal)
      expect(wave).toHaveLength(golden.length)
      for (const [index, sample] of golden.first.entries()) {
        expect(wave[index]).toBeCloseTo(sample, 4)
      }
      const power = wave.reduce((sum, sample) => sum + sample ** 2, 0) / wave.length
      expect(power).toBeCloseTo(golden.power, 5)
    }
    await voices.close()
  })
})

describe('a folder that cannot be opened', () => {
  it.each([
    ['whose settings are missing', 'piper', 'voice.onnx.json', undefined, /\*\.onnx\.json/],
    [
      'of another kind of phonemes',
      'piper',
      'voice.onnx.json',
      { phoneme_type: 'pinyin' },
      /pinyin/,
    ],
    [
      'with a scale that is not a number',
      'piper',
      'voice.onnx.json',
      { inference: { noise_w: 'x' } },
      /inference\.noise_w/,
    ],
    [
      'with a scale below zero',
      'piper',
      'voice.onnx.json',
      { inference: { length_scale: -1 } },
      /inference\.length_scale/,
    ],
    [
      'without the mark of an end',
      'piper',
      'voice.onnx.json',
      { phoneme_id_map: { _: [0], '^': [1] } },
      /"\$"/,
    ],
    [
      'that needs a phonemizer',
      'piper',
      'voice.onnx.json',
      { phoneme_type: 'espeak' },
      /npm install phonemizer/,
    ],
    [
      'of letters in another script',
      'vits',
      'tokenizer_config.json',
      { is_uroman: true },
      /uroman/,
    ],
    ['with a style of a wrong size', 'kokoro', 'voices/af_one.bin', 'short', /af_one\.bin/],
  ])('%s names what is wrong', async (what, name, file, change, message) => {
    const copy = join(folder, what.replaceAll(' ', '-'))
    await cp(join(MODELS, name), copy, { recursive: true })
    const path = join(copy, file)
    if (change === undefined) await rm(path)
    else if (typeof change === 'string') await writeFile(path, change)
    else {
      const settings = JSON.parse(readFileSync(path, 'utf8')) as object
      await writeFile(path, JSON.stringify({ ...settings, ...change }))
    }
    await expect(openVoices({ runtime, folder: copy })).rejects.toThrow(message)
  })

  it('that does not speak is refused by its inputs', async () => {
    await expect(openVoices({ runtime, folder: join(MODELS, 'bge') })).rejects.toThrow(
      /not a Piper, Kokoro or VITS model/,
    )
  })
})
