import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { afterAll, expect, it } from 'vitest'

import { findAudioDecoder } from '#workers/audio/decode.ts'
import { openSpeechDecoder } from '#workers/audio/speech-decoder.ts'
import { openWhisper } from '#workers/audio/whisper.ts'
import { renameTensors } from '#workers/graph/extract.ts'
import {
  type Graph,
  type GraphNode,
  int,
  int64Constant,
  makeNode,
  makeValue,
} from '#workers/graph/model.ts'
import { readModelFile } from '#workers/graph/read-model.ts'
import { writeModel } from '#workers/graph/write-model.ts'
import { openRuntime } from '#workers/runtime/runtime.ts'

const FIXTURES = join(import.meta.dirname, '../../../fixtures')
const { signal } = new AbortController()
const runtime = openRuntime()
const { decode } = await findAudioDecoder()
const place = await mkdtemp(join(tmpdir(), 'millrace-attentions-'))
let numFolders = 0

afterAll(async () => {
  await runtime.close()
  await rm(place, { recursive: true })
})

/** A copy of a model with another graph of its decoder. */
async function copyOf(folder: string, file: string, change: (graph: Graph) => Graph) {
  numFolders += 1
  const copy = join(place, String(numFolders))
  await cp(folder, copy, { recursive: true })
  const path = join(copy, 'onnx', file)
  const model = await readModelFile(path)
  await cp(path, `${path}.weights`)
  const graph = change(model.graph)
  // The weights stay in the file, which the graph no longer is.
  const constants = graph.constants.map((constant) => {
    const { data } = constant
    const moved = data.kind === 'file' ? { ...data, location: `${file}.weights` } : data
    return { ...constant, data: moved }
  })
  await writeFile(path, writeModel({ ...model, graph: { ...graph, constants } }))
  return copy
}

async function listen(folder: string) {
  const whisper = await openWhisper({ runtime, folder })
  try {
    const clip = decode(join(FIXTURES, 'audio/en-1.wav'), { secondsMax: 60, signal })
    const request = { task: 'transcribe', language: 'en', prompt: '', temperature: 0 } as const
    return await whisper.transcribe(clip, { ...request, wordTimestamps: true }, { signal })
  } finally {
    await whisper.close()
  }
}

function withoutAttentions(graph: Graph): Graph {
  const names = graph.outputs.map(({ name }) => name).filter((name) => name.startsWith('cross_'))
  const renamed = renameTensors(graph, new Map(names.map((name) => [name, `weights/${name}`])))
  const outputs = graph.outputs.filter(({ name }) => !names.includes(name))
  return { ...(renamed as Graph), outputs }
}

/** The graph as both branches of an If, as optimum merges decoders, which share a tensor. */
function asBranches(graph: Graph): Graph {
  const plain = withoutAttentions(graph)
  const { outputs, constants } = plain
  const shared = makeNode('Identity', ['encoder_hidden_states'], 'shared')
  const nodes = plain.nodes.map((node) => ({
    ...node,
    inputs: node.inputs.map((name) => (name === 'encoder_hidden_states' ? 'shared' : name)),
  }))
  const branch = (name: string) =>
    ({
      kind: 'graph',
      value: { name, nodes, outputs, constants: [], inputs: [], rest: [] },
    }) as const
  const attributes = { then_branch: branch('later'), else_branch: branch('first') }
  const names = outputs.map(({ name }) => name)
  const merged = makeNode('If', ['use_cache_branch'], names, { attributes })
  return { ...graph, nodes: [shared, merged], constants, outputs }
}

/** Attention over rows and heads in one axis, as older exports have it. */
function asFolded(graph: Graph): Graph {
  const plain = withoutAttentions(graph)
  const fold = (node: GraphNode): GraphNode[] => {
    const [scores, weights] = [node.inputs[0] as string, node.outputs[0] as string]
    return [
      makeNode('Shape', [scores], `${weights}/shape`),
      makeNode('Gather', [`${weights}/shape`, 'fold/last'], `${weights}/last`),
      makeNode('Concat', ['fold/rest', `${weights}/last`], `${weights}/folded`, {
        attributes: { axis: int(0) },
      }),
      makeNode('Reshape', [scores, `${weights}/folded`], `${weights}/scores`),
      { ...node, inputs: [`${weights}/scores`], outputs: [`${weights}/weights`], attributes: {} },
      makeNode('Reshape', [`${weights}/weights`, `${weights}/shape`], weights),
    ]
  }
  return {
    ...plain,
    nodes: plain.nodes.flatMap((node) => (node.operator === 'Softmax' ? fold(node) : [node])),
    constants: [
      ...plain.constants,
      int64Constant('fold/last', [-2, -1]),
      int64Constant('fold/rest', [-1]),
    ],
  }
}

const MODELS = [
  ['whisper-words', join(FIXTURES, 'models/whisper-words'), 'decoder_model_merged.onnx'],
  [
    'tiny-whisper',
    join(FIXTURES, '../../models/tiny-whisper'),
    'decoder_model_merged_quantized.onnx',
  ],
] as const

it.each(
  MODELS.flatMap(([name, folder, file]) => [
    [name, 'does not return them', folder, file, withoutAttentions] as const,
    [name, 'is the branch of an If', folder, file, asBranches] as const,
    [name, 'folds rows and heads', folder, file, asFolded] as const,
  ]),
)('times the words of %s equally where its decoder %s', async (_, __, folder, file, change) => {
  const expected = await listen(folder)
  expect(expected.words?.length).toBeGreaterThan(0)
  const copy = await copyOf(folder, file, change)
  const found = await listen(copy)
  expect(found.words).toEqual(expected.words)
  expect(found.text).toBe(expected.text)
})

it('finds the attentions of a decoder in two files', async () => {
  const folder = join(FIXTURES, 'models/whisper-split')
  // The attention of a layer to its own tokens comes first.
  const returning = await copyOf(folder, 'decoder_model.onnx', (graph) => {
    const softmaxes = graph.nodes.filter(({ operator }) => operator === 'Softmax')
    const weights = softmaxes.flatMap(({ outputs }, at) => (at % 2 === 1 ? outputs : []))
    const names = weights.map((_, layer) => `cross_attentions.${layer}`)
    return {
      ...graph,
      nodes: [
        ...graph.nodes,
        ...weights.map((name, layer) => makeNode('Identity', [name], names[layer] as string)),
      ],
      outputs: [
        ...graph.outputs,
        ...names.map((name) => makeValue(name, 'float32', ['', '', '', ''])),
      ],
    }
  })
  const expected = await listen(returning)
  expect(expected.words?.length).toBeGreaterThan(0)
  expect((await listen(folder)).words).toEqual(expected.words)
})

const FOLDER = join(FIXTURES, 'models/whisper-words')
const FILE = 'decoder_model_merged.onnx'

it('does not change a decoder with an unrecognized layer', async () => {
  const copy = await copyOf(FOLDER, FILE, (graph) => {
    const { nodes, ...rest } = withoutAttentions(graph)
    const last = nodes.findLastIndex(({ operator }) => operator === 'Softmax')
    const other = { ...(nodes[last] as GraphNode), operator: 'LogSoftmax' }
    return { ...rest, nodes: nodes.with(last, other) }
  })
  const whisper = await openWhisper({ runtime, folder: copy })
  expect(whisper.noWordTimes).toBe('the decoder returns no cross-attentions')
  await whisper.close()
})

const HEADS = [{ layer: 0, head: 0 }]

it.each([
  ['no heads are wanted', { heads: [], headsPerLayer: 2 }],
  ['its layers have another number of heads', { heads: HEADS, headsPerLayer: 4 }],
  ['it has fewer layers', { heads: [{ layer: 2, head: 0 }], headsPerLayer: 2 }],
])('leaves a decoder as it is where %s', async (_, wanted) => {
  const copy = await copyOf(FOLDER, FILE, withoutAttentions)
  const decoder = await openSpeechDecoder(runtime, [join(copy, 'onnx', FILE)], {}, wanted)
  expect(decoder.attentionTypes.size).toBe(0)
  await decoder.close()
})
