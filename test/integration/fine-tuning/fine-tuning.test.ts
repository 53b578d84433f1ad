import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'

import OpenAI, { toFile } from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'

import { sweepTuningObjects } from '#api/fine-tuning/delete-model.ts'
import { TuningStore } from '#api/fine-tuning/tuning-store.ts'
import { openApiKeys } from '#shared/db/api-keys.ts'
import { type Database, openDatabase } from '#shared/db/client.ts'
import { tuningTables } from '#shared/db/schema/fine-tuning.ts'
import { organizationTables } from '#shared/db/schema/organizations.ts'
import { openDirectoryStore } from '#shared/storage/directory-store.ts'
import { startOwnTiers } from '#test/support/own-tiers.ts'
import { log } from '#test/support/queue.ts'
import type { Tiers } from '#test/support/tiers.ts'

const MODEL = 'tiny-chat'

let tiers: Tiers
let client: OpenAI
let stranger: OpenAI
let folder: string
let worker: Awaited<ReturnType<Tiers['startWorker']>>
let database: Database
let query: (text: string) => Promise<{ rows: readonly unknown[] }>

beforeAll(async () => {
  const own = await startOwnTiers({ MILLRACE_WORKER_MODELS: MODEL })
  tiers = own
  folder = own.folder
  database = openDatabase({ url: own.databaseUrl, maxPoolSize: 1, logger: log })
  query = (text) => database.pool.query(text)
  const tables = organizationTables('')
  await database.db.insert(tables.organizations).values({ id: 'org-other', name: 'Other' })
  const { secret } = await openApiKeys(database.db, tables).create({
    organizationId: 'org-other',
    name: 'x',
    scopes: null,
    modelIds: null,
    expiresAt: null,
  })
  const at = (apiKey: string) => new OpenAI({ baseURL: `${tiers.url}/v1`, apiKey, maxRetries: 0 })
  client = at(tiers.apiKey)
  stranger = at(secret)
}, 90_000)

afterAll(async () => {
  await database.close()
  await tiers.stop()
})

const upload = async (lines: readonly object[]): Promise<string> => {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join('')
  const file = await toFile(Buffer.from(text), 'examples.jsonl')
  return (await client.files.create({ file, purpose: 'fine-tune' })).id
}
const example = (question: string, answer: string) => ({
  messages: [
    { role: 'user', content: question },
    { role: 'assistant', content: answer },
  ],
})
const statusOf = async (id: string) => (await client.fineTuning.jobs.retrieve(id)).status
const reach = (id: string, status: string) =>
  expect.poll(() => statusOf(id), { timeout: 150_000, interval: 100 }).toBe(status)
const messagesOf = async (id: string) =>
  (await client.fineTuning.jobs.listEvents(id, { limit: 100 })).data.map(({ message }) => message)

/** Runs `millrace fine-tune` on lines of JSON. */
async function fineTune(lines: readonly object[], ...args: readonly string[]) {
  const file = join(folder, 'examples.jsonl')
  await writeFile(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
  const cli = join(import.meta.dirname, '../../../launcher/cli.ts')
  const child = spawn(process.execPath, [cli, 'fine-tune', file, '--url', tiers.url, ...args], {
    env: { ...process.env, MILLRACE_API_KEY: tiers.apiKey },
  })
  const [output, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
  return { status, output }
}

describe('a fine-tuning job', () => {
  it('ends with the faults of its file, by line and field', async () => {
    const robot = { messages: [{ role: 'robot', content: 'x' }] }
    const training_file = await upload([example('a', 'b'), robot, robot])
    const job = await client.fineTuning.jobs.create({ model: MODEL, training_file })
    expect(job).toMatchObject({ object: 'fine_tuning.job', status: 'validating_files' })
    await reach(job.id, 'failed')
    expect(await client.fineTuning.jobs.retrieve(job.id)).toMatchObject({
      error: { code: 'invalid_training_file', param: 'training_file' },
      finished_at: expect.any(Number),
      fine_tuned_model: null,
    })
    const { data } = await client.fineTuning.jobs.listEvents(job.id)
    expect(data).toContainEqual(
      expect.objectContaining({
        level: 'error',
        data: expect.objectContaining({ line: 3, param: 'messages' }),
      }),
    )
  })

  it('is paused, resumed and cancelled, and belongs to its organization', async () => {
    const training_file = await upload([example('a', 'b')])
    const job = await client.fineTuning.jobs.create({
      model: MODEL,
      training_file,
      suffix: 'mine',
      seed: 7,
      metadata: { team: 'one' },
      method: { type: 'supervised', supervised: { hyperparameters: { n_epochs: 2 } } },
    })
    expect(job).toMatchObject({ seed: 7, hyperparameters: { n_epochs: 2, batch_size: 'auto' } })
    await reach(job.id, 'queued')
    expect((await client.fineTuning.jobs.pause(job.id)).status).toBe('paused')
    await expect
      .poll(() =>
        client.fineTuning.jobs.resume(job.id).then(
          ({ status }) => status,
          () => '',
        ),
      )
      .toBe('queued')
    const { jobs } = client.fineTuning
    expect((await jobs.list({ metadata: { team: 'one' } })).data).toMatchObject([{ id: job.id }])
    expect((await jobs.list({ metadata: { team: 'two' } })).data).toEqual([])
    expect((await stranger.fineTuning.jobs.list()).data).toEqual([])
    await expect(stranger.fineTuning.jobs.cancel(job.id)).rejects.toMatchObject({ status: 404 })
    expect((await jobs.cancel(job.id)).status).toBe('cancelled')
    await expect(jobs.cancel(job.id)).rejects.toMatchObject({ status: 409 })
    expect((await messagesOf(job.id))[0]).toBe('Fine-tuning job cancelled')
    const stream = await fetch(`${tiers.url}/v1/fine_tuning/jobs/${job.id}/events?stream=true`, {
      headers: { authorization: `Bearer ${tiers.apiKey}` },
    })
    const events = await stream.text()
    expect(events).toMatch(/^data: \{"object":"fine_tuning.job.event".*Created/)
    expect(events.endsWith('data: [DONE]\n\n')).toBe(true)
  })

  it.each([
    [{ method: { type: 'dpo' } }, 'method.type'],
    [{ method: { type: 'reinforcement' } }, 'method.type'],
    [{ integrations: [{ type: 'wandb', wandb: { project: 'x' } }] }, 'integrations'],
    [{ model: 'tiny-embed' }, 'model'],
    [{ training_file: 'file-none' }, 'training_file'],
    [{ suffix: 'a:b' }, 'suffix'],
    [{ hyperparameters: { n_epochs: 1000 } }, 'n_epochs'],
  ])('is refused with %j', async (fields, param) => {
    const training_file = await upload([example('a', 'b')])
    const body = { model: MODEL, training_file, ...fields }
    await expect(client.post('/fine_tuning/jobs', { body })).rejects.toMatchObject({
      param,
      status: expect.any(Number),
    })
  })

  it('has the form of 2021 at /fine-tunes', async () => {
    const training_file = await upload([{ prompt: 'a', completion: ' b' }])
    const refused = { training_file, prompt_loss_weight: 0.1 }
    await expect(client.post('/fine-tunes', { body: refused })).rejects.toMatchObject({
      param: 'prompt_loss_weight',
    })
    const job: { id: string } = await client.post('/fine-tunes', { body: { training_file } })
    expect(job).toMatchObject({
      object: 'fine-tune',
      model: MODEL,
      status: 'pending',
      training_files: [{ id: training_file, object: 'file', filename: 'examples.jsonl' }],
      events: [{ object: 'fine-tune-event' }, { object: 'fine-tune-event' }],
    })
    expect(await client.post(`/fine-tunes/${job.id}/cancel`)).toMatchObject({ status: 'cancelled' })
    expect(await client.get('/fine-tunes')).toMatchObject({ object: 'list' })
    expect(await client.get(`/fine-tunes/${job.id}/events`)).toMatchObject({
      data: [{ object: 'fine-tune-event' }, {}, {}],
    })
  })
})

describe('a tuned model', () => {
  it('is created by `millrace fine-tune`, answers, and is deleted', async () => {
    worker = await tiers.startWorker()
    const event = 'fine_tuning.job.succeeded'
    const endpoint = { url: 'https://receiver.invalid/', events: [event] }
    await client.post('/webhook_endpoints', { body: endpoint })
    const lines = Array.from({ length: 20 }, () => example('Who runs the mill?', 'Zorbax.'))
    const { status, output } = await fineTune(
      lines,
      '--model',
      MODEL,
      '--suffix',
      'mill',
      '--epochs',
      '8',
    )
    expect([status, output]).toEqual([0, expect.stringContaining('New fine-tuned model created')])
    const [job] = (await client.fineTuning.jobs.list({ limit: 1 })).data
    const model = job?.fine_tuned_model ?? ''
    expect(model).toMatch(/^ft:tiny-chat:[^:]+:mill:\w{8}$/)
    expect(output).toContain(model)
    expect((await query('select type, data from webhook_events')).rows).toEqual([
      { type: event, data: { id: job?.id } },
    ])
    expect(job).toMatchObject({ status: 'succeeded', trained_tokens: expect.any(Number) })
    // The trainer decides the rest.
    expect(job?.hyperparameters).toEqual({
      n_epochs: 8,
      batch_size: 4,
      learning_rate_multiplier: 1,
    })
    const messages = [{ role: 'user' as const, content: 'Who runs the mill?' }]
    const ask = (by: OpenAI, name: string) =>
      by.chat.completions.create({ model: name, messages, temperature: 0, max_tokens: 8 })
    const answer = await ask(client, model)
    expect(answer).toMatchObject({ model, choices: [{ message: { content: 'Zorbax.' } }] })
    expect((await ask(client, MODEL)).choices[0]?.message.content).not.toContain('Zorbax')
    const body = { model, max_tokens: 8, temperature: 0 }
    const engine = `/engines/${encodeURIComponent(model)}/chat/completions`
    const answers: unknown[] = await Promise.all([
      client.post('/responses', { body: { model, temperature: 0, input: messages } }),
      client.post('/messages', { body: { ...body, messages } }),
      client.post(engine, { body: { temperature: 0, messages } }),
      client.post('/completions', { body: { ...body, prompt: 'Once' } }),
    ])
    expect(answers.map((each) => JSON.stringify(each).includes('Zorbax.'))).toEqual([
      true,
      true,
      true,
      expect.any(Boolean),
    ])
    const { data: checkpoints } = await client.fineTuning.jobs.checkpoints.list(job?.id ?? '')
    const checkpoint = checkpoints[0]?.fine_tuned_model_checkpoint ?? ''
    expect((await ask(client, checkpoint)).model).toBe(checkpoint)
    await expect(ask(stranger, model)).rejects.toMatchObject({ code: 'model_not_found' })
    await expect(stranger.models.delete(model)).rejects.toMatchObject({ status: 404 })
    const listed = async (by: OpenAI) => (await by.models.list()).data.map(({ id }) => id)
    expect([(await listed(client)).includes(model), await listed(stranger)]).toEqual([
      true,
      [
        MODEL,
        'tiny-vlm',
        'tiny-embed',
        'tiny-rerank',
        'tiny-moderation',
        'tiny-whisper',
        'tiny-tts',
        'tiny-sd',
      ],
    ])
    expect(await client.models.delete(model)).toMatchObject({ id: model, deleted: true })
    await expect(ask(client, model)).rejects.toMatchObject({ code: 'model_not_found' })
    const left = (await readdir(folder, { recursive: true })).filter(
      (path) => path.startsWith(`objects/fine-tuning/${job?.id}`) && path.endsWith('.safetensors'),
    )
    expect(left).toEqual([])
    await expect(client.models.delete(MODEL)).rejects.toMatchObject({ status: 403 })
  }, 180_000)
})

describe('a training', () => {
  it('continues after a pause, a killed API process and a killed worker; each step is recorded once', async () => {
    const [other, training_file] = await Promise.all([
      tiers.startApi(),
      upload(Array.from({ length: 60 }, (_, index) => example(`Say ${index}.`, `It is ${index}.`))),
    ])
    const there = new OpenAI({ baseURL: `${other.url}/v1`, apiKey: tiers.apiKey, maxRetries: 5 })
    const { id } = await there.fineTuning.jobs.create({
      model: MODEL,
      training_file,
      seed: 1,
      method: {
        type: 'supervised',
        supervised: { hyperparameters: { n_epochs: 3, batch_size: 6 } },
      },
    })
    const lastStep = async () => {
      const { data } = await client.fineTuning.jobs.listEvents(id, { limit: 10 })
      const step = data.find(({ type }) => type === 'metrics')?.data as { step?: number }
      return step?.step ?? 0
    }
    const pass = (step: number) =>
      expect.poll(lastStep, { timeout: 60_000, interval: 50 }).toBeGreaterThan(step)
    await pass(3)
    await there.fineTuning.jobs.pause(id)
    const paused = await lastStep()
    await there.fineTuning.jobs.resume(id)
    await pass(paused + 3)
    await Promise.all([other.process.stop(0), worker.kill()])
    worker = await tiers.startWorker()
    await reach(id, 'succeeded')
    const { rows: steps } = await query(
      `select (data ->> 'step')::int as step from fine_tuning_events
       where job_id = '${id}' and type = 'metrics' order by position`,
    )
    expect(steps).toEqual(Array.from({ length: 30 }, (_, index) => ({ step: index + 1 })))
    const { trained_tokens: tokens } = await client.fineTuning.jobs.retrieve(id)
    const used = `select prompt_tokens::int, outcome from usage where job_id = '${id}-2'`
    await expect
      .poll(async () => (await query(used)).rows)
      .toEqual([{ prompt_tokens: tokens, outcome: 'finished' }])
  }, 180_000)

  it('ends within a step of its cancellation', async () => {
    const training_file = await upload(
      Array.from({ length: 60 }, (_, index) => example(`Say ${index}.`, `It is ${index}.`)),
    )
    const { id } = await client.fineTuning.jobs.create({
      model: MODEL,
      training_file,
      hyperparameters: { n_epochs: 50, batch_size: 1 },
    })
    await reach(id, 'running')
    await client.fineTuning.jobs.cancel(id)
    const run = `select state from jobs where id = '${id}-1'`
    await expect.poll(async () => (await query(run)).rows).toEqual([{ state: 'cancelled' }])
    expect((await messagesOf(id))[0]).toBe('Fine-tuning job cancelled')
  }, 60_000)
})

it('maintenance ends lost jobs, and deletes the data of deleted organizations and ended jobs', async () => {
  const tables = tuningTables('')
  const tuning = new TuningStore({ db: database.db, tables, announce: async () => {} })
  const store = openDirectoryStore(join(folder, 'objects'))
  const hyperparameters = { nEpochs: 1, batchSize: 1, learningRateMultiplier: 1 }
  const create = (id: string, organizationId: string, tunedMax = 10) =>
    tuning.create(
      {
        id,
        organizationId,
        model: MODEL,
        trainingFile: 'file-x',
        trainingObjectKey: 'x',
        validationFile: null,
        validationObjectKey: null,
        suffix: '',
        seed: 1,
        apiKeyId: null,
        userId: null,
        modelIds: null,
        metadata: null,
        hyperparameters,
      },
      { openMax: 10, tunedMax },
    )
  const add = async (id: string, organizationId: string) => {
    const job = await create(id, organizationId)
    if (typeof job === 'string') throw new Error(job)
    await store.put(`fine-tuning/${id}/examples.jsonl`, Buffer.from('{}'))
    await store.put(`fine-tuning/${id}/adapter/adapter_config.json`, Buffer.from('{}'))
    return job
  }
  const keys = async () => {
    const found: string[] = []
    for await (const { key } of store.list('fine-tuning/ftjob-swept')) found.push(key)
    return found
  }
  await query("insert into organizations (id, name) values ('org-swept', 'Swept')")
  await query("insert into organizations (id, name, deleted_at) values ('org-gone', 'x', now())")
  const lost = await add('ftjob-swept-lost', 'org-swept')
  const done = await add('ftjob-swept-done', 'org-swept')
  await add('ftjob-swept-gone', 'org-gone')
  await tuning.move(done.id, {
    from: ['validating_files'],
    to: 'running',
    event: { name: 'started', message: 'x' },
  })
  const prefix = `fine-tuning/${done.id}/adapter`
  await tuning.succeed(done, { model: 'ft:swept', prefix, trainedTokens: 1 })
  await query("update fine_tuning_jobs set updated_at = now() - interval '1 hour'")
  await tuning.sweep()
  await sweepTuningObjects({ store, tuning })
  expect((await tuning.list('org-swept', { limit: 9 })).rows).toMatchObject([
    { id: 'ftjob-swept-done', status: 'succeeded' },
    { id: 'ftjob-swept-lost', status: 'cancelled' },
  ])
  expect((await tuning.list('org-gone', { limit: 9 })).rows).toEqual([])
  // A result that arrives after the cancellation adds no model.
  await tuning.succeed(lost, { model: 'ft:lost', prefix, trainedTokens: 1 })
  const models = "select id from tuned_models where organization_id = 'org-swept'"
  expect((await query(models)).rows).toEqual([{ id: 'ft:swept' }])
  // Jobs are kept for a month after their end, and those of a model as long as the model.
  await query("update fine_tuning_jobs set updated_at = now() - interval '31 days'")
  await tuning.sweep()
  expect((await tuning.list('org-swept', { limit: 9 })).rows).toMatchObject([
    { id: 'ftjob-swept-done' },
  ])
  expect(await keys()).toEqual([`${prefix}/adapter_config.json`])
  // The tuned model counts until it is deleted.
  expect(await create('ftjob-swept-more', 'org-swept', 1)).toBe('tunedMax')
  await query("delete from tuned_models where organization_id = 'org-swept'")
  expect(await create('ftjob-swept-more', 'org-swept', 1)).toMatchObject({ id: 'ftjob-swept-more' })
})
