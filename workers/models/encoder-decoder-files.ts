import { readdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'

import { ModelLoadError } from '#workers/runtime/errors.ts'

import { graphInside } from './inside-folder.ts'
import { findNamedGraph } from './named-graph.ts'

/** The graphs of an encoder and its decoder in the layout of the hub. */
export interface EncoderDecoderFiles {
  readonly encoderFile: string
  /** One file for both branches, or one for the first run and one for later runs. */
  readonly decoderFiles: readonly [string] | readonly [string, string]
}

/**
 * The graphs below `onnx/` or in the folder itself; undefined when there are none. `onnxFile` names
 * the decoder, merged or first of two; its suffix applies to the other files too. Without it the
 * first available of `suffixes` is used. Throws `ModelLoadError` for decoders without caches.
 */
export async function findEncoderDecoder(
  folder: string,
  { onnxFile, suffixes }: { readonly onnxFile?: string; readonly suffixes: readonly string[] },
): Promise<EncoderDecoderFiles | undefined> {
  const named = onnxFile === undefined ? undefined : await findNamedGraph(folder, onnxFile)
  for (const place of named === undefined ? ['onnx', '.'] : [dirname(named)]) {
    const present = new Set(await readdir(join(folder, place)).catch(() => []))
    const find = (stem: string, endings: readonly string[]) =>
      endings.map((ending) => `${stem}${ending}.onnx`).find((name) => present.has(name))
    const wanted = basename(named ?? onnxFile ?? '', '.onnx').replace(
      /^decoder_model(_merged)?/,
      '',
    )
    const ofDecoder = onnxFile === undefined ? suffixes : [wanted]
    const encoder = find('encoder_model', onnxFile === undefined ? suffixes : [wanted, ''])
    const merged = find('decoder_model_merged', ofDecoder)
    const first = find('decoder_model', ofDecoder)
    const later = find('decoder_with_past_model', ofDecoder)
    if (encoder === undefined) continue
    const graph = (name: string) => graphInside(folder, join(place, name))
    const encoderFile = await graph(encoder)
    if (merged !== undefined) return { encoderFile, decoderFiles: [await graph(merged)] }
    if (first === undefined) continue
    if (later === undefined) {
      throw new ModelLoadError(
        encoderFile,
        `${first} has no cache, and there is no decoder_with_past_model.onnx beside it; export it with a task that ends with \`-with-past\``,
      )
    }
    return { encoderFile, decoderFiles: [await graph(first), await graph(later)] }
  }
  return undefined
}
