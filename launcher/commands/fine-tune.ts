import { openAsBlob } from 'node:fs'
import { basename, resolve } from 'node:path'
import { setTimeout } from 'node:timers/promises'

import { type Arguments, UsageError } from '#launcher/command-line.ts'
import { type Env, loadConfig } from '#shared/config/config.ts'
import { parseRecord, textAt } from '#shared/json.ts'

/** The address and the key of an installation. */
interface Target {
  readonly url: string
  readonly key: string
}

interface JobEvent {
  readonly id: string
  readonly level: string
  readonly message: string
  readonly type?: string
  readonly data?: Readonly<Record<string, unknown>> | null
}

const BAR_CHARACTERS = 30
const RECONNECT_MS = 1000
const RECONNECTS_MAX = 60

/** `millrace fine-tune <file> --model <name>`: uploads examples, trains, and follows the job. */
export async function fineTune(env: Env, { positionals, options }: Arguments): Promise<void> {
  const [file] = positionals
  if (file === undefined || options.model === undefined) {
    throw new UsageError('fine-tune needs a file of examples and --model')
  }
  const target = targetOf(env, options.url)
  const epochs = options.epochs === undefined ? undefined : Number(options.epochs)
  if (epochs !== undefined && !(Number.isInteger(epochs) && epochs > 0)) {
    throw new UsageError('--epochs must be a whole number above 0')
  }
  const training = await upload(target, env, file)
  const validation =
    options.validation === undefined ? undefined : await upload(target, env, options.validation)
  const { id } = await call(target, '/fine_tuning/jobs', {
    model: options.model,
    training_file: training,
    ...(validation !== undefined && { validation_file: validation }),
    ...(options.suffix !== undefined && { suffix: options.suffix }),
    ...(epochs !== undefined && {
      method: { type: 'supervised', supervised: { hyperparameters: { n_epochs: epochs } } },
    }),
  })
  console.log(`job ${String(id)}; it continues when this command is interrupted`)
  await follow(target, String(id))
  const job = await call(target, `/fine_tuning/jobs/${String(id)}`)
  if (job.status !== 'succeeded') {
    throw new Error(`the job is ${String(job.status)}: ${textAt(job, 'error', 'message')}`.trim())
  }
  console.log(callLines(target, String(job.fine_tuned_model)))
}

/** The installation on this machine, unless a URL is given. */
function targetOf(env: Env, url: string | undefined): Target {
  const key = env.MILLRACE_API_KEY || env.MILLRACE_BOOTSTRAP_API_KEY
  if (key === undefined || key === '') {
    throw new UsageError('set MILLRACE_API_KEY to an API key of the installation')
  }
  const address = url ?? loadConfig(env).config.auth.site.externalUrl
  return { url: address.replace(/\/+$/, ''), key }
}

async function upload(target: Target, env: Env, file: string): Promise<string> {
  // The process runs in the folder of the project; the file is relative to the caller's folder.
  const path = resolve(env.INIT_CWD ?? env.PWD ?? '.', file)
  const form = new FormData()
  form.append('purpose', 'fine-tune')
  const blob = await openAsBlob(path).catch(() => {
    throw new UsageError(`${path} cannot be read`)
  })
  form.append('file', blob, basename(path))
  return String((await call(target, '/files', form)).id)
}

async function call(
  target: Target,
  path: string,
  body?: FormData | object,
): Promise<Readonly<Record<string, unknown>>> {
  const isForm = body instanceof FormData
  const answer = await open(target, path, {
    ...(body !== undefined && { method: 'POST', body: isForm ? body : JSON.stringify(body) }),
    headers: body !== undefined && !isForm ? { 'content-type': 'application/json' } : {},
  })
  return parseRecord(await answer.text()) ?? {}
}

async function open(
  { url, key }: Target,
  path: string,
  init: { readonly headers?: Readonly<Record<string, string>> } & Omit<RequestInit, 'headers'> = {},
): Promise<Response> {
  const answer = await fetch(`${url}/v1${path}`, {
    ...init,
    headers: { ...init.headers, authorization: `Bearer ${key}` },
  }).catch((cause: Error) => {
    throw new Error(`${url} cannot be reached; start Millrace, or set --url`, { cause })
  })
  if (answer.ok) return answer
  const body = parseRecord(await answer.text())
  throw new Error(textAt(body, 'error', 'message') || `${url} answered ${answer.status}`)
}

/** Prints the events of a job until it ends; reopens a broken stream. */
async function follow(target: Target, id: string): Promise<void> {
  const printer = new EventPrinter(process.stdout)
  for (let tries = 0; tries < RECONNECTS_MAX; tries += 1) {
    try {
      for await (const event of eventsOf(target, id)) {
        if (event === 'end') return printer.close()
        tries = 0
        printer.print(event)
      }
    } catch (error) {
      if (tries === RECONNECTS_MAX - 1) throw error
    }
    await setTimeout(RECONNECT_MS)
  }
}

async function* eventsOf(target: Target, id: string): AsyncGenerator<JobEvent | 'end'> {
  const { body } = await open(target, `/fine_tuning/jobs/${id}/events?stream=true`)
  let rest = ''
  if (body === null) return
  for await (const text of body.pipeThrough(new TextDecoderStream())) {
    const blocks = (rest + text).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      if (!block.startsWith('data: ')) continue
      const data = block.slice('data: '.length)
      if (data === '[DONE]') yield 'end'
      else yield JSON.parse(data) as JobEvent
    }
  }
}

/** Prints messages as lines, and steps as a bar where the output is a terminal. */
class EventPrinter {
  readonly #output: Pick<NodeJS.WriteStream, 'write' | 'isTTY'>
  readonly #seen = new Set<string>()
  #hasBar = false
  #tenth = -1

  constructor(output: Pick<NodeJS.WriteStream, 'write' | 'isTTY'>) {
    this.#output = output
  }

  print(event: JobEvent): void {
    if (this.#seen.has(event.id)) return
    this.#seen.add(event.id)
    if (event.type === 'metrics') this.#printStep(event)
    else {
      this.close()
      this.#output.write(`${event.level === 'error' ? '✗ ' : ''}${event.message}\n`)
    }
  }

  /** Ends the line of the progress bar. */
  close(): void {
    if (this.#hasBar) this.#output.write('\n')
    this.#hasBar = false
  }

  #printStep({ data, message }: JobEvent): void {
    const step = Number(data?.step)
    const steps = Number(data?.total_steps)
    if (!(steps > 0)) return
    if (this.#output.isTTY) {
      const full = Math.round((step / steps) * BAR_CHARACTERS)
      const bar = '█'.repeat(full) + '░'.repeat(BAR_CHARACTERS - full)
      this.#output.write(`\r\u001b[K${bar} ${message}`)
      this.#hasBar = true
      return
    }
    const tenth = Math.floor((step / steps) * 10)
    if (tenth === this.#tenth) return
    this.#tenth = tenth
    this.#output.write(`${message}\n`)
  }
}

function callLines({ url }: Target, model: string): string {
  const question = '"messages":[{"role":"user","content":"…"}]'
  return `
${model}

curl ${url}/v1/chat/completions -H "Authorization: Bearer $MILLRACE_API_KEY" -H 'Content-Type: application/json' -d '{"model":"${model}",${question}}'

OpenAI(base_url="${url}/v1").chat.completions.create(model="${model}", messages=[…])`
}
