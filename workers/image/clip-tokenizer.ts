import { contentOnly } from '#workers/text/content-spans.ts'
import { createTokenizer } from '#workers/text/tokenizer.ts'
import { readTokenizer } from '#workers/text/tokenizer-files/read-tokenizer.ts'

/** Encodes prompts to exactly the text encoder's length. */
export interface ClipTokenizer {
  readonly length: number
  /** Longer prompts are cut, as in every pipeline of this layout. */
  encode(prompt: string): number[]
}

const LENGTH_UNKNOWN = 77
// A prompt is cut at some tens of tokens anyway; this bounds the time for a hostile one.
const CHARS_PER_TOKEN_MAX = 64

/** Reads the tokenizer of a folder. */
export async function readClipTokenizer(folder: string): Promise<ClipTokenizer> {
  const { json, config } = await readTokenizer(folder, 'CLIPTokenizer')
  const tokenizer = createTokenizer(json, config, { isTag: () => true })
  const get = (content: string) => {
    const id = tokenizer.findTokenId(content)
    if (id === undefined) throw new Error(`${folder}: the vocabulary has no ${content}`)
    return id
  }
  const { start, end, padding } = markersOf(config)
  const [startId, endId, paddingId] = [get(start), get(end), get(padding)]
  const stated = Number(config.model_max_length)
  const length = Number.isInteger(stated) && stated > 2 && stated < 1000 ? stated : LENGTH_UNKNOWN
  return {
    length,
    encode(prompt) {
      const { text, content } = contentOnly(prompt.slice(0, length * CHARS_PER_TOKEN_MAX))
      const words = tokenizer.encode(text, { addSpecialTokens: false, content })
      const ids = [startId, ...words.slice(0, length - 2), endId]
      return [...ids, ...Array<number>(length - ids.length).fill(paddingId)]
    },
  }
}

function markersOf(config: Readonly<Record<string, unknown>>) {
  const get = (name: string, fallback: string) => {
    const setting = config[name]
    const content = (setting as { content?: string } | null | undefined)?.content ?? setting
    return typeof content === 'string' ? content : fallback
  }
  return {
    start: get('bos_token', '<|startoftext|>'),
    end: get('eos_token', '<|endoftext|>'),
    padding: get('pad_token', '<|endoftext|>'),
  }
}
