import { readFileSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, describe, expect, it } from 'vitest'

import { writeNpy, writeZip, type ZipEntry } from '#test/support/npz.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { openVoices } from '#workers/speech/open-voices.ts'
import { readStyles } from '#workers/speech/styles.ts'

const MODELS = join(import.meta.dirname, '../../../fixtures/models')
const KOKORO = join(MODELS, 'kokoro')
const KOKORO_ONNX = join(MODELS, 'kokoro-onnx')
const ARCHIVE = 'voices-v1.0.bin'
const STYLE = readFileSync(join(KOKORO, 'voices/af_one.bin'))
const { signal } = new AbortController()
const runtime = openRuntime()
const root = await mkdtemp(join(tmpdir(), 'millrace-kokoro-'))
afterAll(async () => {
  await runtime.close()
  await rm(root, { recursive: true })
})

const phonemizer = async () => async (text: string) => text
const ROWS = { shape: '(12, 1, 256)' }

const newFolder = () => mkdtemp(join(root, 'model-'))

async function folderWith(name: string, content: Uint8Array): Promise<string> {
  const folder = await newFolder()
  await writeFile(join(folder, name), content)
  return folder
}

async function speakAll(folder: string, speed: number, onnxFile?: string) {
  const options = { runtime, folder, phonemizer, ...(onnxFile !== undefined && { onnxFile }) }
  const voices = await openVoices(options)
  const waves: Float32Array[] = []
  for (const voice of voices.names) {
    const tokenIds = await voices.encode('hələʊ wˈɜːld.', voice)
    waves.push(await voices.speak({ tokenIds, voice, speed }, signal))
  }
  await voices.close()
  return { names: voices.names, hasSpeed: voices.hasSpeed, waves }
}

describe('the files of kokoro-onnx', () => {
  it.each([
    ['tokens by another name', 'kokoro-v1.0', 1.5, true],
    ['a speed of whole numbers', 'kokoro-v1.1-zh', 1, false],
  ])('speak as those of onnx-community with %s', async (_what, onnxFile, speed, hasSpeed) => {
    const expected = await speakAll(KOKORO, speed)
    expect(await speakAll(KOKORO_ONNX, speed, onnxFile)).toEqual({ ...expected, hasSpeed })
  })

  it('need no graph name if all but one are variants of it', async () => {
    const folder = await newFolder()
    for (const name of ['config.json', ARCHIVE, 'kokoro-v1.0.onnx']) {
      await cp(join(KOKORO_ONNX, name), join(folder, name))
    }
    for (const variant of ['int8', 'fp16', 'fp16-gpu']) {
      await writeFile(join(folder, `kokoro-v1.0.${variant}.onnx`), 'not read')
    }
    const voices = await openVoices({ runtime, folder, phonemizer })
    expect(voices.modelFile).toBe(join(folder, 'kokoro-v1.0.onnx'))
    await voices.close()
  })

  it('without a vocabulary are refused with the names of the files that may contain it', async () => {
    const folder = await newFolder()
    await cp(KOKORO_ONNX, folder, { recursive: true })
    await writeFile(join(folder, 'config.json'), '{}')
    await expect(speakAll(folder, 1, 'kokoro-v1.0')).rejects.toThrow(
      /tokenizer\.json.*config\.json/,
    )
  })
})

describe('styles', () => {
  it('come from files in voices/, as an archive and as arrays', async () => {
    const expected = await readStyles(KOKORO)
    expect(await readStyles(KOKORO_ONNX)).toEqual(expected)
    const arrays = ['af_one', 'bm_two'].map((voice) => {
      const style = readFileSync(join(KOKORO, `voices/${voice}.bin`))
      return { path: `${voice}.npy`, content: writeNpy(style, ROWS), isDeflated: true }
    })
    expect(await readStyles(await folderWith('voices.npz', writeZip(arrays)))).toEqual(expected)
    const folder = await newFolder()
    await mkdir(join(folder, 'voices'))
    for (const { path, content } of arrays) await writeFile(join(folder, 'voices', path), content)
    expect(await readStyles(folder)).toEqual(expected)
  })

  it('are refused if several archives match', async () => {
    const folder = await newFolder()
    await cp(join(KOKORO_ONNX, ARCHIVE), join(folder, ARCHIVE))
    await cp(join(KOKORO_ONNX, ARCHIVE), join(folder, 'voices-v1.1-zh.bin'))
    await expect(readStyles(folder)).rejects.toThrow(/one archive/)
  })
})

describe('an archive', () => {
  const array = { path: 'af.npy', content: writeNpy(STYLE, ROWS) }
  const zeros = Buffer.alloc(1 << 20)

  it.each<[string, readonly ZipEntry[], RegExp]>([
    ['a path as a name', [{ ...array, path: '../af.npy' }], /"\.\.\/af\.npy" is not the name/],
    ['a file that is no array', [{ ...array, path: 'af.pkl' }], /"af\.pkl" is not the name/],
    ['one name twice', [array, array], /af\.npy is there twice/],
    ['no entries', [], /not a NumPy archive/],
    [
      'too many entries',
      Array.from({ length: 201 }, (_, index) => ({ ...array, path: `v${index}.npy` })),
      /201 entries are more than 200/,
    ],
    ['more bytes than are read', [{ ...array, statedBytes: 0xffff_ffff }], /more than 134217728/],
    [
      'more bytes than are read in all of its entries together',
      ['a.npy', 'b.npy'].map((path) => ({ path, content: zeros, statedBytes: 70 << 20 })),
      /more than 134217728/,
    ],
    [
      'an entry that inflates to more than it states',
      [{ ...array, content: zeros, isDeflated: true, statedBytes: 100 }],
      /cannot be inflated/,
    ],
    ['an entry of another size', [{ ...array, statedBytes: 100 }], /size or checksum/],
    ['another checksum', [{ ...array, checksum: 1 }], /size or checksum/],
    ['an encrypted entry', [{ ...array, flags: 1 }], /encrypted/],
    ['another compression', [{ ...array, method: 14 }], /compression 14/],
  ])('with %s is refused', async (_what, entries, message) => {
    const folder = await folderWith(ARCHIVE, writeZip(entries))
    await expect(readStyles(folder)).rejects.toThrow(message)
  })

  it.each<[string, Buffer, RegExp]>([
    ['pickled objects', writeNpy(STYLE, { ...ROWS, descr: "'|O'" }), /elements are \|O/],
    ['records', writeNpy(STYLE, { ...ROWS, descr: "[('a', '<f4')]" }), /elements are records/],
    ['columns first', writeNpy(STYLE, { ...ROWS, order: 'True' }), /C order/],
    ['more rows than bytes', writeNpy(STYLE, { shape: '(99999999999, 1, 256)' }), /12288 bytes/],
    ['another shape', writeNpy(STYLE, { shape: '(24, 128)' }), /shape is \(24, 128\)/],
    ['no rows', writeNpy(Buffer.alloc(0), { shape: '(0, 1, 256)' }), /shape is \(0, 1, 256\)/],
    ['no array', Buffer.from('a pickle or a text'), /not an array file/],
    ['a header without an end', Buffer.from('\x93NUMPY\x02\0\xff\xff\xff\xff', 'latin1'), /header/],
  ])('of an array with %s is refused', async (_what, content, message) => {
    const folder = await folderWith(ARCHIVE, writeZip([{ path: 'af.npy', content }]))
    await expect(readStyles(folder)).rejects.toThrow(message)
  })

  it('that is truncated anywhere is refused', async () => {
    const whole = writeZip([{ ...array, isDeflated: true }])
    for (let length = 0; length < whole.length; length += 97) {
      const folder = await folderWith(ARCHIVE, whole.subarray(0, length))
      await expect(readStyles(folder)).rejects.toThrow(ARCHIVE)
    }
  })
})
