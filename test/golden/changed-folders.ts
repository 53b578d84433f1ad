import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { expect } from 'vitest'

import { generate, MODELS } from '#test/unit/workers/engine/generate.ts'
import { openTextEngine } from '#workers/engine/open-text-engine.ts'
import type { GraphNode, GraphValue, Model } from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import type { Runtime } from '#workers/runtime/runtime.ts'

/** Reference numbers of a fixture. */
export interface Golden {
  readonly ids: readonly number[]
  readonly greedy: readonly number[]
}

/** Folders of fixtures whose graph is changed, and their comparison with reference tokens. */
export function changedFolders(runtime: Runtime) {
  const folders: string[] = []
  /** A folder with the configuration of a fixture and its graph after a change. */
  async function changed(
    name: string,
    onnxFile: string,
    change: (model: Model) => Model,
  ): Promise<string> {
    const folder = mkdtempSync(join(tmpdir(), 'millrace-exporter-'))
    folders.push(folder)
    // Weights of a graph that was read stay in its file.
    const weights = join(folder, `${onnxFile}.onnx`)
    copyFileSync(join(MODELS, name, 'onnx', `${onnxFile}.onnx`), weights)
    copyFileSync(join(MODELS, name, 'config.json'), join(folder, 'config.json'))
    writeFileSync(join(folder, 'changed.onnx'), writeModel(change(await readModelFile(weights))))
    return folder
  }

  /** The golden tokens alone, beside shorter texts, and after a prefix that the cache holds. */
  async function check(folder: string, { ids, greedy }: Golden, cachePath: string): Promise<void> {
    const onnxFile = folder.includes('millrace-exporter-') ? 'changed' : 'model'
    const engine = await openTextEngine({ runtime, folder, onnxFile, slots: 3, intraOpThreads: 1 })
    try {
      expect(engine.cachePath).toBe(cachePath)
      const ask = async (length: number, cacheScope: string): Promise<readonly number[]> => {
        const request = { promptTokenIds: ids.slice(0, length), maxNewTokens: greedy.length }
        return (await generate(engine, { ...request, cacheScope })).tokenIds
      }
      const lengths = [ids.length - 2, ids.length, 3]
      const alone: (readonly number[])[] = []
      for (const length of lengths) alone.push(await ask(length, `alone ${length}`))
      expect(alone[1]).toEqual(greedy)
      const together = (scope: (length: number) => string) =>
        Promise.all(lengths.map((length) => ask(length, scope(length))))
      expect(await together((length) => `beside ${length}`)).toEqual(alone)
      // Prompts of one scope with the same beginning reuse the cache of the first.
      expect(await together(() => 'shared')).toEqual(alone)
    } finally {
      await engine.close()
    }
  }
  return { folders, changed, check }
}

export function removeFolders(folders: string[]): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
}

export function golden(name: string): Golden {
  return JSON.parse(readFileSync(join(MODELS, name, 'golden.json'), 'utf8')) as Golden
}

export function withNodes(model: Model, change: (node: GraphNode) => readonly GraphNode[]): Model {
  return { ...model, graph: { ...model.graph, nodes: model.graph.nodes.flatMap(change) } }
}

export function renamed(model: Model, rename: (name: string) => string): Model {
  const ofValue = (value: GraphValue): GraphValue => ({ ...value, name: rename(value.name) })
  const { graph } = withNodes(model, (node) => [
    { ...node, inputs: node.inputs.map(rename), outputs: node.outputs.map(rename) },
  ])
  const { inputs, outputs } = graph
  return {
    ...model,
    graph: { ...graph, inputs: inputs.map(ofValue), outputs: outputs.map(ofValue) },
  }
}
