import { createHash } from 'node:crypto'
import { createReadStream, existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { cpus, loadavg, totalmem } from 'node:os'

const PACKAGES = ['onnxruntime-node', 'bullmq', 'ioredis', 'fastify', '@huggingface/transformers']
const WEIGHTS = [
  'models/tiny-chat/onnx/model_quantized.onnx',
  'models/tiny-chat/growing/onnx/model_quantized.onnx',
  '.data/bench/smollm2-shape/onnx/model.onnx',
]

/** The conditions of a figure besides the code: machine, versions and available weights. */
export async function describeSurroundings(): Promise<object> {
  const present = WEIGHTS.filter((file) => existsSync(file))
  return {
    machine: {
      cpu: cpus()[0]?.model,
      cores: cpus().length,
      memoryBytes: totalmem(),
      // Others at work on the machine show here.
      loadAtStart: loadavg()[0],
    },
    versions: { node: process.version, ...Object.fromEntries(await all(PACKAGES, versionOf)) },
    weightsSha256: Object.fromEntries(await all(present, hashOf)),
  }
}

function all(
  names: readonly string[],
  find: (name: string) => Promise<string>,
): Promise<[name: string, found: string][]> {
  return Promise.all(names.map(async (name) => [name, await find(name)]))
}

async function versionOf(name: string): Promise<string> {
  const text = await readFile(`node_modules/${name}/package.json`, 'utf8')
  return (JSON.parse(text) as { version: string }).version
}

async function hashOf(file: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer)
  return hash.digest('hex')
}
