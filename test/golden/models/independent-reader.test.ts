import { join, resolve } from 'node:path'

import {
  AutoModelForCausalLM,
  AutoModelForSequenceClassification,
  AutoTokenizer,
  env,
  pipeline,
  type Tensor,
} from '@huggingface/transformers'
import { afterAll, describe, expect, it } from 'vitest'

import { systemClock } from '#shared/clock.ts'
import type { ChatMessage } from '#shared/contracts/completion.ts'
import { runJob } from '#test/unit/workers/processors/completion-job.ts'
import { findAudioDecoder } from '#workers/audio/decode.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { openEncoder } from '#workers/embedding/encoder.ts'
import { sigmoid } from '#workers/embedding/labels.ts'
import { openReranker } from '#workers/embedding/reranker.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'
import { loadTextModel } from '#workers/text/text-model.ts'

import { modelFolder, readEvals } from './shipped.ts'

// transformers.js reads the same folders with code of its own.
env.allowRemoteModels = false
env.localModelPath = resolve(import.meta.dirname, '../../../models')
const { signal } = new AbortController()
const session = { intraOpThreads: 1 }
const quiet = { session_options: { intraOpNumThreads: 1, interOpNumThreads: 1 } }
const runtime = openRuntime()
afterAll(() => runtime.close())

describe('tiny-chat', async () => {
  const folder = modelFolder('tiny-chat')
  const text = await loadTextModel(folder, systemClock)
  const engine = await openTextEngine({ runtime, folder, slots: 8, intraOpThreads: 1 })
  const tokenizer = await AutoTokenizer.from_pretrained('tiny-chat/growing')
  const model = await AutoModelForCausalLM.from_pretrained('tiny-chat/growing', {
    dtype: 'q8',
    ...quiet,
  })
  afterAll(async () => {
    await engine.close()
    await model.dispose()
  })
  const { gates } = readEvals<{
    gates: Record<string, { problems: readonly { messages: ChatMessage[]; tools?: object[] }[] }>
  }>('tiny-chat')
  const problems = Object.values(gates).flatMap(({ problems }) => problems.slice(0, 2))

  it('reads chats with and without tools as the same tokens', () => {
    for (const { messages, tools = [] } of problems) {
      const functions = tools.map((tool) => (tool as { function: never }).function)
      const prompt = text.chatTemplate?.render(messages, functions)
      const theirs = tokenizer.apply_chat_template(messages as never, {
        tools: tools.length > 0 ? (tools as never) : null,
        add_generation_prompt: true,
        tokenize: false,
      })
      expect(prompt?.text).toBe(theirs)
      const { text: written = '', content = [] } = prompt ?? {}
      const ours = text.tokenizer.encode(written, { addSpecialTokens: false, content })
      expect(ours).toEqual(tokenizer.encode(theirs as string, { add_special_tokens: false }))
    }
  })

  it('gives the same answers', async () => {
    const plain = problems.filter(({ tools }) => tools === undefined)
    const ours = await Promise.all(
      plain.map(async ({ messages }) => {
        const prompts = [{ form: 'chat' as const, messages }]
        const { result } = await runJob({ prompts, maxTokens: 60 }, { engine, text })
        return result.candidates[0]?.text
      }),
    )
    for (const [at, { messages }] of plain.entries()) {
      const inputs = tokenizer.apply_chat_template(messages as never, {
        add_generation_prompt: true,
        return_dict: true,
      }) as { input_ids: Tensor }
      const output = (await model.generate({
        ...inputs,
        max_new_tokens: 60,
        do_sample: false,
      } as never)) as Tensor
      const answer = output.tolist()[0].slice(inputs.input_ids.dims[1]) as never
      expect(ours[at]).toBe(tokenizer.decode(answer, { skip_special_tokens: true }))
    }
  })
})

describe('tiny-embed', () => {
  it('gives the same vectors', async () => {
    const texts = ['The library opens at nine.', 'when does the library open', 'glorp zibba 42']
    const theirs = await pipeline('feature-extraction', 'tiny-embed', { dtype: 'fp32', ...quiet })
    const encoder = await openEncoder({ runtime, folder: modelFolder('tiny-embed'), session })
    for (const text of texts) {
      const expected = (await theirs(text, { pooling: 'mean', normalize: true })).data
      const vector = await encoder.embed(await encoder.encodeText(text), signal)
      expect(vector).toHaveLength(expected.length)
      for (const [at, value] of vector.entries())
        expect(value).toBeCloseTo(expected[at] as number, 4)
    }
    await encoder.close()
    await theirs.dispose()
  })
})

describe('tiny-rerank', () => {
  it('gives the same relevance', async () => {
    const query = 'when does the library open'
    const documents = ['The library opens at nine.', 'The cat sleeps on the sofa.', 'glorp zibba']
    const tokenizer = await AutoTokenizer.from_pretrained('tiny-rerank')
    const theirs = await AutoModelForSequenceClassification.from_pretrained('tiny-rerank', {
      dtype: 'fp32',
      ...quiet,
    })
    const pairs = { text_pair: documents, padding: true, truncation: true }
    const inputs = tokenizer(Array(documents.length).fill(query), pairs)
    const { logits } = (await theirs(inputs)) as { logits: Tensor }
    const reranker = await openReranker({ runtime, folder: modelFolder('tiny-rerank'), session })
    for (const [at, document] of documents.entries()) {
      const score = sigmoid(await reranker.logit(reranker.encodePair(query, document), signal))
      expect(score).toBeCloseTo(1 / (1 + Math.exp(-Number(logits.data[at]))), 4)
    }
    await reranker.close()
    await theirs.dispose()
  })
})

describe('tiny-whisper', { timeout: 180_000 }, () => {
  it.each([
    ['en-1.wav', 'en'],
    ['en-2.flac', 'en'],
    ['de-1.wav', 'de'],
    ['es-1.flac', 'es'],
    ['fr-2.flac', 'fr'],
  ])('hears the same in %s, transcribed and translated', async (file, language) => {
    const { decode } = await findAudioDecoder()
    const path = join(import.meta.dirname, '../../fixtures/audio', file)
    const clip = async () => Array.fromAsync(decode(path, { secondsMax: 60, signal }))
    const pieces = await clip()
    const samples = Float32Array.from(pieces.flatMap((piece) => [...piece]))
    const theirs = await pipeline('automatic-speech-recognition', 'tiny-whisper', {
      dtype: 'q8',
      ...quiet,
    })
    const whisper = await openWhisper({ runtime, folder: modelFolder('tiny-whisper'), session })
    for (const task of ['transcribe', 'translate'] as const) {
      const options = { task, language, return_timestamps: true, max_new_tokens: 60 }
      const { text } = (await theirs(samples, options)) as { text: string }
      const ours = await whisper.transcribe(
        decode(path, { secondsMax: 60, signal }),
        { task, language, prompt: '', temperature: 0, wordTimestamps: false },
        { signal },
      )
      expect(ours.text.trim()).toBe(text.trim())
    }
    await whisper.close()
    await theirs.dispose()
  })
})
