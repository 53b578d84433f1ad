import type { Static } from 'typebox'

import type { ResponseFormat } from '#shared/contracts/completion.ts'
import { failure } from '#shared/errors.ts'
import { parseRecord } from '#shared/json.ts'
import { Type } from '#shared/schema-types.ts'
import { choice, nullable, ofType } from '#shared/schemas.ts'

import { checkedSchema } from './chat/chat-tools.ts'
import {
  invalidValue,
  missingParameter,
  optionalBoolean,
  optionalList,
  optionalObject,
  optionalString,
} from './field-schemas.ts'
import { checkJsonText, SCHEMA_LIMITS, type SchemaBudget } from './input-limits.ts'
import { parseStructuralTag } from './structural-tag.ts'

const GRAMMAR_LENGTH_MAX = 65_536

const CLOSED = { additionalProperties: false }

const JSON_SCHEMA = Type.Object(
  {
    name: Type.String({ pattern: '^[a-zA-Z0-9_-]{1,64}$' }),
    description: optionalString(),
    schema: optionalObject(),
    strict: optionalBoolean(),
  },
  CLOSED,
)

const RESPONSE_FORMAT = Type.Object(
  {
    type: choice(['text', 'json_object', 'json_schema', 'json', 'regex', 'structural_tag'], {
      description:
        'The type of the format. `json` and `regex` are defined as in Text Generation Inference, `structural_tag` as in vLLM and xgrammar.',
    }),
    json_schema: Type.Optional(nullable(JSON_SCHEMA)),
    schema: optionalObject({
      description:
        'With `json_object` or `json_schema`: the schema that the answer must match, as in llama.cpp and other servers.',
    }),
    value: Type.Optional(
      ofType(['object', 'string', 'null'], {
        description:
          'With `json`, `json_object` or `json_schema`: the schema; with `regex`: the regular expression.',
      }),
    ),
    structures: optionalList({
      description: 'With `structural_tag`: objects with `begin`, `schema` and `end`.',
    }),
    triggers: Type.Optional(nullable(Type.Array(Type.String()))),
    format: optionalObject({ description: 'With `structural_tag`: the format of the tag.' }),
  },
  {
    ...CLOSED,
    description:
      'The response format: free text, any JSON object, JSON that matches a schema, or text that matches a pattern.',
  },
)
type ResponseFormatField = Static<typeof RESPONSE_FORMAT>

const JSON_FORM = Type.Optional(
  ofType(['object', 'string', 'null'], {
    description: 'The JSON Schema that the answer must match, as an object or as JSON text.',
  }),
)
const REGEX = optionalString({
  minLength: 1,
  maxLength: SCHEMA_LIMITS.patternCharacters,
  description: 'The regular expression (ECMAScript) that the whole answer must match.',
})
const CHOICE = Type.Optional(
  nullable(
    Type.Array(Type.String({ minLength: 1 }), {
      minItems: 1,
      maxItems: SCHEMA_LIMITS.enumValues,
      description: 'The possible answers.',
    }),
  ),
)
const GRAMMAR = optionalString({
  minLength: 1,
  maxLength: GRAMMAR_LENGTH_MAX,
  description: 'The grammar of the answer in GBNF, with the rule `root`.',
})
const STRUCTURAL_TAG = Type.Optional(
  ofType(['object', 'string', 'null'], {
    description: 'A structural tag, as an object or as JSON text.',
  }),
)

const STRUCTURED_OUTPUTS = Type.Object(
  {
    json: JSON_FORM,
    json_object: optionalBoolean({ description: 'If true, the answer is any JSON object.' }),
    regex: REGEX,
    choice: CHOICE,
    grammar: GRAMMAR,
    structural_tag: STRUCTURAL_TAG,
  },
  { ...CLOSED, description: 'One of these response formats, as in vLLM.' },
)
type StructuredOutputs = Static<typeof STRUCTURED_OUTPUTS>

/** The request fields that determine the format of an answer. */
export const FORMAT_FIELDS = {
  response_format: Type.Optional(nullable(RESPONSE_FORMAT)),
  structured_outputs: Type.Optional(nullable(STRUCTURED_OUTPUTS)),
  guided_json: JSON_FORM,
  guided_regex: REGEX,
  guided_choice: CHOICE,
  guided_grammar: GRAMMAR,
  structural_tag: STRUCTURAL_TAG,
  json_schema: JSON_FORM,
  grammar: GRAMMAR,
}

const FORMAT_BODY = Type.Object(FORMAT_FIELDS)
type FormatBody = Static<typeof FORMAT_BODY>

/**
 * The format of the answer. Throws when two fields determine it. `messages` are those of a chat,
 * which must mention JSON if no schema is given.
 */
export function responseFormatOf(
  body: FormatBody,
  { budget, messages }: { readonly budget: SchemaBudget; readonly messages?: unknown },
): ResponseFormat {
  const found = [
    ...structuredForms(body.structured_outputs ?? {}, 'structured_outputs.', budget),
    ...structuredForms(guidedForms(body), 'guided_', budget),
    // The fields of llama.cpp.
    ...structuredForms(
      { grammar: body.grammar ?? null, structural_tag: body.structural_tag ?? null },
      '',
      budget,
    ),
    ...(isGiven(body.json_schema)
      ? [{ param: 'json_schema', format: jsonForm(body.json_schema, 'json_schema', budget) }]
      : []),
  ]
  const format = openAiFormat(body.response_format ?? { type: 'text' }, { budget, messages })
  if (format.type !== 'text') found.push({ param: 'response_format', format })
  const [first, second] = found
  if (first === undefined) return { type: 'text' }
  if (second === undefined) return first.format
  throw invalidValue(
    second.param,
    `'${first.param}' and '${second.param}' cannot be given together.`,
  )
}

function guidedForms(body: FormatBody): StructuredOutputs {
  return {
    json: body.guided_json ?? null,
    regex: body.guided_regex ?? null,
    choice: body.guided_choice ?? null,
    grammar: body.guided_grammar ?? null,
  }
}

interface FoundForm {
  readonly param: string
  readonly format: ResponseFormat
}

function structuredForms(
  forms: StructuredOutputs,
  prefix: string,
  budget: SchemaBudget,
): FoundForm[] {
  const { json, regex, choice, grammar, structural_tag: tag } = forms
  const found: FoundForm[] = []
  const add = (name: string, make: (param: string) => ResponseFormat) => {
    const param = `${prefix}${name}`
    found.push({ param, format: make(param) })
  }
  if (isGiven(json)) add('json', (param) => jsonForm(json, param, budget))
  if (forms.json_object === true) add('json_object', () => ({ type: 'jsonObject' }))
  if (isGiven(regex)) add('regex', (path) => ({ type: 'regex', pattern: regex, path }))
  if (isGiven(choice)) {
    add('choice', (param) => {
      budget.charge({ enum: choice }, param)
      return { type: 'choice', choices: [...new Set(choice)] }
    })
  }
  if (isGiven(grammar)) add('grammar', (path) => ({ type: 'grammar', grammar, path }))
  if (isGiven(tag)) add('structural_tag', (path) => tagForm(objectOf(tag, path), path, budget))
  return found
}

function jsonForm(value: object | string, path: string, budget: SchemaBudget): ResponseFormat {
  return { type: 'jsonSchema', schema: budget.chargeLenient(objectOf(value, path), path), path }
}

function tagForm(tag: object, path: string, budget: SchemaBudget): ResponseFormat {
  return { type: 'structuralTag', format: parseStructuralTag({ ...tag }, path, budget), path }
}

/** An object, which may also be given as JSON text. */
function objectOf(value: object | string, path: string): object {
  if (typeof value !== 'string') return value
  checkJsonText(value, path)
  const parsed = parseRecord(value)
  if (parsed === undefined) throw invalidValue(path, 'it is not the JSON text of an object.')
  return parsed
}

function openAiFormat(
  format: ResponseFormatField,
  request: { readonly budget: SchemaBudget; readonly messages?: unknown },
): ResponseFormat {
  const { budget } = request
  checkSchemaField(format, budget)
  switch (format.type) {
    case 'text':
      return { type: 'text' }
    case 'structural_tag':
      return tagForm(format, 'response_format', budget)
    case 'regex': {
      const path = 'response_format.value'
      if (typeof format.value === 'string') return { type: 'regex', pattern: format.value, path }
      throw isGiven(format.value)
        ? invalidValue(path, 'it is not a regular expression.')
        : missingParameter(path)
    }
    case 'json':
      if (!isGiven(format.value)) throw missingParameter('response_format.value')
      return jsonForm(format.value, 'response_format.value', budget)
    case 'json_object':
      return jsonObjectFormat(format, request)
    case 'json_schema':
      return jsonSchemaFormat(format, budget)
  }
}

/** Throws if a type has neither `schema` nor `value` but the request does. */
function checkSchemaField({ type, schema, value }: ResponseFormatField, budget: SchemaBudget) {
  if (isGiven(schema)) budget.charge(schema, 'response_format.schema')
  const takesSchema = type === 'json_object' || type === 'json_schema'
  if (!takesSchema && Object.keys(schema ?? {}).length > 0) {
    throw invalidValue(
      'response_format.schema',
      "'schema' is only allowed with 'response_format' of type 'json_object' or 'json_schema'.",
    )
  }
  if (type === 'text' && isGiven(value)) {
    throw invalidValue(
      'response_format.value',
      "'value' is not allowed with 'response_format' of type 'text'.",
    )
  }
}

function jsonObjectFormat(
  { schema, value }: ResponseFormatField,
  { budget, messages }: { readonly budget: SchemaBudget; readonly messages?: unknown },
): ResponseFormat {
  if (Object.keys(schema ?? {}).length > 0) {
    return jsonForm(schema as object, 'response_format.schema', budget)
  }
  if (isGiven(value)) return jsonForm(value, 'response_format.value', budget)
  if (messages !== undefined && !mentionsJson(messages)) {
    throw failure.invalidRequest(
      "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'.",
      { param: 'messages' },
    )
  }
  return { type: 'jsonObject' }
}

function jsonSchemaFormat(
  { json_schema: field, schema, value }: ResponseFormatField,
  budget: SchemaBudget,
): ResponseFormat {
  if (!isGiven(field)) {
    if (isGiven(schema)) return jsonForm(schema, 'response_format.schema', budget)
    if (isGiven(value)) return jsonForm(namedSchema(value), 'response_format.value', budget)
    throw missingParameter('response_format.json_schema')
  }
  if (!isGiven(field.schema)) throw missingParameter('response_format.json_schema.schema')
  const param = 'response_format.json_schema.schema'
  return {
    type: 'jsonSchema',
    schema: checkedSchema(field.schema, field.strict, { param, budget }),
    ...(field.strict === true && { isStrict: true }),
  }
}

/** Text Generation Inference has `{ name, schema }` as the value, or the schema itself. */
function namedSchema(value: object | string): object | string {
  const { name, schema } = value as { readonly name?: unknown; readonly schema?: unknown }
  const isNamed = typeof name === 'string' && typeof schema === 'object' && schema !== null
  return isNamed ? schema : value
}

function isGiven<Value>(value: Value | null | undefined): value is Value {
  return value !== null && value !== undefined
}

/**
 * Whether any text within a value contains the word "json". Stops at the first one, and makes no
 * copy of a large request.
 */
export function mentionsJson(value: unknown): boolean {
  if (typeof value === 'string') return /json/i.test(value)
  if (typeof value !== 'object' || value === null) return false
  // An object with the field `json_schema` counts as well.
  return Object.entries(value).some(
    ([name, inner]) => mentionsJson(inner) || (!Array.isArray(value) && mentionsJson(name)),
  )
}
