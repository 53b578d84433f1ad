import { failure } from '#shared/errors.ts'

/** A tool whose parameters models know by its type; the client runs its calls. */
interface ClientTool {
  readonly description: string
  readonly parameters: object
}

const text = (description: string): object => ({ type: 'string', description })
const PATH = text('Path of a file or folder.')

const FILE_FIELDS = {
  path: PATH,
  view_range: {
    type: 'array',
    items: { type: 'integer' },
    description:
      'For `view`: the first and the last line, counted from 1; -1 means the end of the file.',
  },
  file_text: text('For create: the text of the file.'),
  old_str: text('For str_replace: the text to replace, which occurs once in the file.'),
  new_str: text('For str_replace: the new text.'),
  insert_line: {
    type: 'integer',
    description:
      'For `insert`: the line after which to insert the text; 0 means the beginning of the file.',
  },
  insert_text: text('For insert: the text to insert.'),
}
const FILE_COMMANDS = ['view', 'create', 'str_replace', 'insert']

const commands = (names: readonly string[]): object => ({ type: 'string', enum: names })

/** Tools by their type without its date, because versions differ little. */
const CLIENT_TOOLS: Readonly<Record<string, ClientTool>> = {
  bash: {
    description: 'Runs a command in a bash session that keeps its state between calls.',
    parameters: {
      type: 'object',
      properties: {
        command: text('The command to run.'),
        restart: {
          type: 'boolean',
          description: 'If true, start a new session instead of running a command.',
        },
      },
    },
  },
  text_editor: {
    description: 'Shows, creates and edits text files.',
    parameters: {
      type: 'object',
      properties: { command: commands(FILE_COMMANDS), ...FILE_FIELDS },
      required: ['command', 'path'],
    },
  },
  memory: {
    description:
      'Keeps notes in files below /memories, which later conversations can read. Look there first.',
    parameters: {
      type: 'object',
      properties: {
        command: commands([...FILE_COMMANDS, 'delete', 'rename']),
        ...FILE_FIELDS,
        old_path: text('For rename: the path so far.'),
        new_path: text('For rename: the new path.'),
      },
      required: ['command'],
    },
  },
}

/** The description and parameters of a tool that has none of its own. Throws for other types. */
export function clientToolOf(type: string, param: string): ClientTool {
  const tool = CLIENT_TOOLS[type.replace(/_\d{8}$/, '')]
  if (tool !== undefined) return tool
  throw failure.invalidRequest(
    `Invalid value: '${type}'. Supported values are: 'custom', and the tools 'bash', 'text_editor' and 'memory' with a date. Tools that the server runs are not offered: use a tool of your own with an input_schema.`,
    { param, code: 'invalid_value' },
  )
}
