import type { Runtime } from '#workers/runtime/runtime.ts'
import type { ModelSession } from '#workers/runtime/session.ts'
import type { Tensor } from '#workers/runtime/tensor.ts'

import type { openPhonemizer } from './phonemes.ts'

/** The options of opening a layout. */
export interface VoicesTools {
  readonly runtime: Runtime
  readonly session: ModelSession
  readonly phonemizer: typeof openPhonemizer
}

/** A sentence as model input. */
export interface Utterance {
  readonly tokenIds: readonly number[]
  readonly voice: string
  readonly speed: number
}

/** A loaded model that speaks. */
export interface Voices {
  readonly modelFile: string
  readonly sampleRate: number
  /** The names of its voices; the first is the default. */
  readonly names: readonly string[]
  readonly hasSpeed: boolean
  /** The tokens of a sentence; empty if it contains nothing to speak. */
  encode(sentence: string, voice: string): Promise<readonly number[]>
  /** Samples from -1 to 1. */
  speak(utterance: Utterance, signal: AbortSignal): Promise<Float32Array>
  close(): Promise<void>
}

/** Runs a model that makes one wave; its feeds are disposed. */
export async function runVoice(
  session: ModelSession,
  feeds: Readonly<Record<string, Tensor>>,
  signal: AbortSignal,
): Promise<Float32Array> {
  const output = waveName(session)
  try {
    const made = await session.run(feeds, { [output]: null }, { signal })
    const wave = made[output] as Tensor
    try {
      return Float32Array.from(wave.data as Float32Array)
    } finally {
      wave.dispose()
    }
  } finally {
    for (const tensor of Object.values(feeds)) tensor.dispose()
  }
}

/** Exports name the wave differently, and some have further outputs. */
function waveName({ outputs }: Pick<ModelSession, 'outputs'>): string {
  const names = outputs.map(({ name }) => name)
  return ['waveform', 'output', 'audio'].find((name) => names.includes(name)) ?? names[0] ?? ''
}
