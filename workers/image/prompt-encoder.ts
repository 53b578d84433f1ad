import { closeOnFailure, openAll } from '#workers/runtime/close-on-failure.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { SessionOptions } from '#workers/runtime/session-options.ts'
import { openSessionPool, type SessionPool } from '#workers/runtime/session-pool.ts'

import { type ClipTokenizer, readClipTokenizer } from './clip-tokenizer.ts'
import type { DiffusionFiles } from './diffusion-files.ts'
import { nameOf, runVolumes, type Volume } from './run-volumes.ts'

/** The inputs of the U-Net that come from a text. */
export interface EncodedPrompt {
  /** `[1, tokens, width]`: the hidden states that it attends to. */
  readonly states: Volume
  /** `[1, width]`: the whole text, for Stable Diffusion XL. */
  readonly summary?: Volume
}

/** The tokenizers and text encoders of a model. */
export interface PromptEncoder {
  encode(text: string, signal: AbortSignal): Promise<EncodedPrompt>
  close(): Promise<void>
}

/** One text encoder with its tokenizer. */
interface Part {
  readonly tokenizer: ClipTokenizer
  readonly sessions: SessionPool
}

/** Loads the text encoders of a folder. With `isAlone`, a run gets all cores. */
export async function openPromptEncoder(
  runtime: Runtime,
  { texts, xl }: Pick<DiffusionFiles, 'texts' | 'xl'>,
  options: SessionOptions,
  isAlone: () => boolean,
): Promise<PromptEncoder> {
  const tokenizers = await Promise.all(texts.map(({ tokenizer }) => readClipTokenizer(tokenizer)))
  const opening = texts.map(({ graph }) => openSessionPool(runtime, graph, options))
  const pools = await openAll(opening)
  const close = async (): Promise<void> => {
    await Promise.all(pools.map((pool) => pool.close()))
  }
  const parts = pools.map((sessions, at): Part => {
    return { sessions, tokenizer: tokenizers[at] as ClipTokenizer }
  })
  const run = async ({ tokenizer, sessions }: Part, text: string, signal: AbortSignal) => {
    const session = sessions.choose(isAlone())
    const ids = tokenizer.encode(text)
    const volume = { data: Float32Array.from(ids), dims: [1, ids.length] }
    const outputs = xl === undefined ? [nameOf(session.outputs)] : outputsForXl(session)
    return runVolumes(runtime, session, { [nameOf(session.inputs)]: volume }, { outputs, signal })
  }
  return await closeOnFailure({ close }, () => {
    if (xl !== undefined) checkParts(parts)
    return {
      async encode(text, signal) {
        const encoded: (readonly Volume[])[] = []
        for (const part of parts) encoded.push(await run(part, text, signal))
        const states = joinStates(encoded.map(([first]) => first as Volume))
        if (xl === undefined) return { states }
        const summary = encoded.at(-1)?.[1] as Volume
        if (text !== '' || !xl.isEmptyTextZero) return { states, summary }
        return { states: zerosLike(states), summary: zerosLike(summary) }
      },
      close,
    }
  })
}

const HIDDEN_STATES = /^hidden_states\.(\d+)$/

/** The hidden states before the last layer, and the first output: the text as a whole. */
function outputsForXl({ file, outputs }: Pick<ModelSession, 'file' | 'outputs'>): string[] {
  const states = outputs
    .flatMap(({ name }) => HIDDEN_STATES.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b)
  const layer = states.at(-2)
  if (layer !== undefined) return [`hidden_states.${layer}`, nameOf(outputs)]
  throw new ModelLoadError(
    file,
    'the text encoder has no outputs hidden_states.N, which Stable Diffusion XL attends to',
  )
}

function checkParts(parts: readonly Part[]): void {
  for (const { sessions } of parts) outputsForXl(sessions.wide)
  const [first, ...others] = parts as [Part, ...Part[]]
  const isEqual = others.every(({ tokenizer }) => tokenizer.length === first.tokenizer.length)
  if (isEqual) return
  throw new ModelLoadError(first.sessions.wide.file, 'the tokenizers have different lengths')
}

/** Hidden states of the same tokens side by side. */
function joinStates(all: readonly Volume[]): Volume {
  const [first] = all as [Volume]
  if (all.length === 1) return first
  const tokens = first.dims[1] as number
  const widths = all.map(({ dims }) => dims[2] as number)
  const width = widths.reduce((sum, one) => sum + one, 0)
  const data = new Float32Array(tokens * width)
  let offset = 0
  for (const [at, states] of all.entries()) {
    const own = widths[at] as number
    for (let token = 0; token < tokens; token++) {
      const row = states.data.subarray(token * own, (token + 1) * own)
      data.set(row, token * width + offset)
    }
    offset += own
  }
  return { data, dims: [1, tokens, width] }
}

function zerosLike({ data, dims }: Volume): Volume {
  return { data: new Float32Array(data.length), dims }
}
