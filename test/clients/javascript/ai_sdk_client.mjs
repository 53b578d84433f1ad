import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import * as sdk from 'ai'
import { z } from 'zod'

import {
  CAPITAL,
  CHAT,
  EMBED,
  expect,
  expectPerson,
  FORECAST,
  feature,
  key,
  PERSON,
  statusOf,
  TEXTS,
  url,
} from './features.mjs'

// The Vercel AI SDK: its providers for OpenAI, compatible servers and Anthropic.

const { embedMany, generateText, Output, stepCountIs, streamText, tool } = sdk
// Older versions have them under names of their own.
const generateImage = sdk.generateImage ?? sdk.experimental_generateImage
const generateSpeech = sdk.generateSpeech ?? sdk.experimental_generateSpeech
const transcribe = sdk.transcribe ?? sdk.experimental_transcribe

const at = { baseURL: `${url}/v1`, apiKey: key }
const openai = createOpenAI(at)
const compatible = createOpenAICompatible({
  name: 'millrace',
  supportsStructuredOutputs: true,
  ...at,
})
const asked = { temperature: 0, maxOutputTokens: 60, maxRetries: 0 }
const models = [compatible(CHAT), openai.chat(CHAT)]
const tools = {
  get_weather: tool({
    description: 'Get the weather of a city.',
    inputSchema: z.object({ city: z.string() }),
    execute: async () => 'sunny',
  }),
}

await feature('chat', async () => {
  for (const model of models) {
    expect((await generateText({ model, prompt: CAPITAL, ...asked })).text, 'Paris')
  }
})

await feature('stream', async () => {
  for (const model of models) {
    let text = ''
    for await (const piece of streamText({ model, prompt: CAPITAL, ...asked }).textStream)
      text += piece
    expect(text, 'Paris')
  }
})

await feature('tools', async () => {
  for (const model of models) {
    const options = { model, tools, stopWhen: stepCountIs(2), prompt: FORECAST, ...asked }
    expect((await generateText(options)).steps[0].toolResults[0].output, 'sunny')
  }
})

await feature('structured', async () => {
  const schema = z.object({ name: z.string(), age: z.number().int(), city: z.string() })
  for (const model of models) {
    // Version 5 knows both under names of their own.
    const form = { output: Output.object({ schema }) }
    const options = { ...form, experimental_output: form.output, model, prompt: PERSON, ...asked }
    const answer = await generateText(options)
    expectPerson(answer.output ?? answer.experimental_output)
  }
})

await feature('embeddings', async () => {
  const options = { model: openai.embedding(EMBED), values: TEXTS }
  expect((await embedMany(options)).embeddings.length, 2)
})

await feature('responses', async () => {
  const options = { model: openai.responses(CHAT), prompt: CAPITAL, ...asked }
  expect((await generateText(options)).text, 'Paris')
  // The second step refers to the call of the first one, which the server has stored.
  const steps = { ...asked, model: options.model, tools, stopWhen: stepCountIs(2) }
  const answer = await generateText({ ...steps, prompt: FORECAST })
  expect(answer.steps[0].toolResults[0].output, 'sunny')
  expect(answer.steps.length, 2)
})

await feature('errors', async () => {
  const options = { model: compatible('none'), prompt: 'a', maxRetries: 0 }
  expect(await statusOf(generateText(options)), 404)
})

await feature('messages', async () => {
  const options = { model: createAnthropic(at)(CHAT), prompt: CAPITAL, ...asked }
  expect((await generateText(options)).text, 'Paris')
})

await feature('images', async () => {
  for (const model of [openai.image('tiny-sd'), compatible.imageModel('tiny-sd')]) {
    const { image } = await generateImage({ model, prompt: 'a red circle', size: '256x256' })
    expect(image.mediaType, 'image/png')
  }
})

await feature('speech and transcription', async () => {
  const spoken = { model: openai.speech('tiny-tts'), voice: 'alloy', outputFormat: 'wav' }
  const { audio } = await generateSpeech({ ...spoken, text: 'The picture is red and new.' })
  expect(audio.mediaType, 'wav')
  const transcription = await transcribe({
    model: openai.transcription('whisper-1'),
    audio: audio.uint8Array,
    // Without options, older versions ask for the text alone.
    providerOptions: { openai: { timestampGranularities: ['segment'] } },
  })
  expect(typeof transcription.text, 'string')
  expect(transcription.segments.length > 0, true)
})
