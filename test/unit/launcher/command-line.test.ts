import { describe, expect, it } from 'vitest'

import { isCommand, parseCommandLine, usage } from '#launcher/command-line.ts'

const parse = (line: string) => {
  const [name = '', ...rest] = line.split(' ')
  return parseCommandLine(name, rest)
}

describe('the command line', () => {
  it.each([
    ['up', { positionals: [], options: {} }],
    ['keys create --name ci', { positionals: ['create'], options: { name: 'ci' } }],
    ['keys revoke key_1', { positionals: ['revoke', 'key_1'], options: {} }],
    ['users role you@example.com editor', { positionals: ['role', 'you@example.com', 'editor'] }],
    [
      'models pull a/b --file x.onnx',
      { positionals: ['pull', 'a/b'], options: { file: 'x.onnx' } },
    ],
    [
      'models convert a/b --weights int4 --out x',
      { positionals: ['convert', 'a/b'], options: { weights: 'int4', out: 'x' } },
    ],
    ['config --example', { positionals: [], options: { example: 'true' } }],
  ])('understands `%s`', (line, expected) => {
    expect(parse(line)).toMatchObject(expected)
  })

  it.each([
    ['keys', 'keys: create, list or revoke'],
    ['keys toString', 'keys: create, list or revoke'],
    ['models frobnicate', 'models: list, verify, pull, convert or export'],
    ['keys create ci', '"ci" means nothing here'],
    ['keys create --role x', '--role means nothing for keys create'],
    ['keys list --frobnicate', "Unknown option '--frobnicate'"],
    ['keys create --name', '--name'],
    ['models pull a/b --weights int4', '--weights means nothing for models pull'],
    ['up now', '"now" means nothing here'],
    ['up --name x', '--name means nothing for up'],
  ])('refuses `%s` and shows how the command is called', (line, message) => {
    const attempt = () => parse(line)
    expect(attempt).toThrow(message)
    expect(attempt).toThrow(`millrace <command>\n\n  ${line.split(' ')[0]}`)
  })

  it.each(['up --help', 'keys -h', 'keys create --help'])('is asked for help by `%s`', (line) => {
    expect(parse(line)).toBeUndefined()
  })

  it('lists every command, and the options of one', () => {
    expect(usage()).toContain('users role <user> <role>')
    expect(usage()).not.toContain('--scopes')
    expect(usage('keys')).toContain('keys create [--name <text>] [--scopes <scope,scope>]')
    expect(usage('keys')).not.toContain('users')
    expect([isCommand('doctor'), isCommand('toString')]).toEqual([true, false])
  })
})
