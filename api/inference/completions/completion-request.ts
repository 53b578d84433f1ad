import type { Static } from 'typebox'

import { addIgnoredFields } from '#api/http/validation.ts'
import {
  modelBodies,
  optionalBoolean,
  optionalInteger,
  optionalString,
} from '#api/inference/field-schemas.ts'
import { SchemaBudget } from '#api/inference/input-limits.ts'
import { FORMAT_FIELDS, responseFormatOf } from '#api/inference/response-format.ts'
import {
  CANDIDATES_MAX,
  endingRules,
  promptLogprobs,
  SAMPLING_FIELDS,
  samplingParams,
  stopStrings,
  streamChoice,
  tokenRules,
  unsetSampling,
} from '#api/inference/sampling-fields.ts'
import type { GenerateInput, Prompt } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { Type } from '#shared/schema-types.ts'
import { ofType } from '#shared/schemas.ts'

const BEST_OF_MAX = 20
const LOGPROBS_MAX = 20
const DEFAULT_MAX_TOKENS = 16

const TOKEN_IDS = Type.Array(Type.Integer({ minimum: 0 }), { minItems: 1 })

const LANGUAGE_LENGTH_MAX = 64

/** A language, by its code in the model, its tag (BCP 47) or its English name. */
function languageField(description: string) {
  return optionalString({
    minLength: 1,
    maxLength: LANGUAGE_LENGTH_MAX,
    description: `${description} A code (\`fra_Latn\`), a tag (\`fr\`) or a name (\`French\`).`,
  })
}

const FIELDS = {
  prompt: Type.Optional(
    Type.Union(
      [
        ofType(['string', 'null']),
        Type.Array(Type.String(), { minItems: 1 }),
        TOKEN_IDS,
        Type.Array(TOKEN_IDS, { minItems: 1 }),
      ],
      {
        description:
          'A text, several texts, token ids, or several lists of token ids; if absent, the model begins a new document.',
      },
    ),
  ),
  suffix: optionalString({
    description: 'Text that follows the generated text; for models with fill-in-the-middle.',
  }),
  max_tokens: optionalInteger({
    minimum: -1,
    default: DEFAULT_MAX_TOKENS,
    description:
      'The maximum length of the answer in tokens; -1 means as long as the context allows.',
  }),
  best_of: optionalInteger({
    minimum: 1,
    maximum: BEST_OF_MAX,
    description:
      'The number of answers to generate per prompt; the `n` with the highest log-probability per token are returned.',
  }),
  logprobs: optionalInteger({
    minimum: 0,
    maximum: LOGPROBS_MAX,
    description: 'Return the log-probabilities of the chosen tokens and of this many alternatives.',
  }),
  source_language: languageField(
    'The language of the prompt, where the model translates from several; its usual one if absent.',
  ),
  target_language: languageField(
    'The language of the answer, where the model translates to several.',
  ),
  echo: optionalBoolean({ default: false, description: 'Return the prompt as well.' }),
  ...FORMAT_FIELDS,
  ...SAMPLING_FIELDS,
}

/** The bodies of `POST /v1/completions` and of its older path. */
export const { body: COMPLETION_BODY, engineBody: ENGINE_COMPLETION_BODY } = modelBodies(FIELDS)

export type CompletionBody = Static<typeof ENGINE_COMPLETION_BODY>

/**
 * A completion request in the form of the workers. Throws for faults that the schema cannot
 * express.
 */
export function completionInput(body: CompletionBody): GenerateInput {
  const prompts = promptsOf(body.prompt)
  const n = body.n ?? 1
  const bestOf = body.best_of ?? n
  streamChoice(body)
  checkCounts({ prompts: prompts.length, n, bestOf, isStream: body.stream === true })
  if (body.suffix !== null && body.suffix !== undefined && body.suffix !== '') {
    throw failure.invalidRequest(
      "Unsupported parameter: 'suffix' is not supported with this model, which cannot insert text.",
      { param: 'suffix', code: 'unsupported_parameter' },
    )
  }
  const asked = body.max_tokens ?? DEFAULT_MAX_TOKENS
  const maxTokens = asked === -1 ? null : asked
  const budget = new SchemaBudget()
  const responseFormat = responseFormatOf(body, { budget })
  const input: GenerateInput = {
    task: 'generate',
    prompts,
    n,
    bestOf,
    maxTokens,
    sampling: samplingParams(body),
    ...unsetSampling(body),
    stop: stopStrings(body.stop),
    ...endingRules(body, { maxTokens, hasForm: responseFormat.type !== 'text' }),
    ...tokenRules(body),
    ...promptLogprobs(body),
    ...languagesOf(body),
    logprobs: body.logprobs ?? null,
    echo: body.echo ?? false,
    responseFormat,
    stream: body.stream ?? false,
  }
  addIgnoredFields(body, budget.ignored)
  return input
}

function languagesOf({
  source_language: source,
  target_language: target,
}: CompletionBody): Pick<GenerateInput, 'languages'> {
  const languages = {
    ...(typeof source === 'string' && { source }),
    ...(typeof target === 'string' && { target }),
  }
  return Object.keys(languages).length === 0 ? {} : { languages }
}

function promptsOf(prompt: CompletionBody['prompt']): readonly Prompt[] {
  if (prompt === null || prompt === undefined) return [{ form: 'text', text: '' }]
  if (typeof prompt === 'string') return [textPrompt(prompt)]
  if (isTokenIds(prompt)) return [{ form: 'tokenIds', tokenIds: prompt }]
  return prompt.map((entry) =>
    typeof entry === 'string' ? textPrompt(entry) : { form: 'tokenIds', tokenIds: entry },
  )
}

// The prompt as the model reads it: half of a surrogate pair would make an echo that few clients
// can parse.
function textPrompt(text: string): Prompt {
  return { form: 'text', text: text.toWellFormed() }
}

function isTokenIds(prompt: readonly (string | number | number[])[]): prompt is number[] {
  return typeof prompt[0] === 'number'
}

function checkCounts(counts: {
  readonly prompts: number
  readonly n: number
  readonly bestOf: number
  readonly isStream: boolean
}): void {
  const { prompts, n, bestOf, isStream } = counts
  if (bestOf < n) {
    throw failure.invalidRequest(
      `You requested that the server return more choices than it will generate (HINT: you must set 'n' (currently ${n}) to be at most 'best_of' (currently ${bestOf}), or omit either parameter if you don't specifically want to use them.)`,
      { param: 'best_of', code: 'invalid_value' },
    )
  }
  if (isStream && bestOf > n) {
    throw failure.invalidRequest("Results with 'best_of' greater than 'n' cannot be streamed.", {
      param: 'best_of',
      code: 'invalid_value',
    })
  }
  if (prompts * bestOf > CANDIDATES_MAX) {
    throw failure.invalidRequest(
      `Invalid 'prompt': ${prompts} prompts with ${bestOf} completions each make ${prompts * bestOf} completions, but a request may ask for at most ${CANDIDATES_MAX}.`,
      { param: 'prompt', code: 'array_above_max_length' },
    )
  }
}
