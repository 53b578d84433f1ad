const INT = '[0-9]+'
const EXPONENT = `[eE][+-]?${INT}`
const DECIMAL = `${INT}\\.[0-9]*|\\.${INT}`
const FLOAT = `${INT}${EXPONENT}|(?:${DECIMAL})(?:${EXPONENT})?`
const NUMBER = `${FLOAT}|${INT}`

/** The terminals of Lark's library `common`, as regular expressions. Letters are those of ASCII. */
export const COMMON_TERMINALS: Readonly<Record<string, string>> = {
  ...{ DIGIT: '[0-9]', HEXDIGIT: '[0-9A-Fa-f]' },
  ...{ INT, DECIMAL, FLOAT, NUMBER },
  SIGNED_INT: `[+-]?${INT}`,
  SIGNED_FLOAT: `[+-]?(?:${FLOAT})`,
  SIGNED_NUMBER: `[+-]?(?:${NUMBER})`,
  ESCAPED_STRING: '"(?:[^"\\\\\\n]|\\\\.)*"',
  ...{ LCASE_LETTER: '[a-z]', UCASE_LETTER: '[A-Z]', LETTER: '[A-Za-z]', WORD: '[A-Za-z]+' },
  CNAME: '[_A-Za-z][_A-Za-z0-9]*',
  ...{ WS_INLINE: '[ \\t]+', WS: '[ \\t\\f\\r\\n]+' },
  ...{ CR: '\\r', LF: '\\n', NEWLINE: '(?:\\r?\\n)+' },
}
