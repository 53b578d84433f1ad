/** A word that the vocabulary replaces by a term of the field. */
interface PrivateWord {
  readonly pattern: RegExp
  readonly use: string
  /** Files in which the word is a term of the protocol. */
  readonly except?: RegExp
}

/** Words are matched in lower case, with the parts of camelCase names as separate words. */
const PRIVATE_WORDS: readonly PrivateWord[] = [
  // `picture` is a claim of OpenID Connect.
  {
    pattern: /\bpictur\w*/,
    use: 'image',
    except: /^(api\/auth\/external|test\/unit\/api\/auth|test\/support\/provider-peers)/,
  },
  { pattern: /\b(beats?|beating)\b/, use: 'heartbeat' },
  { pattern: /\bbeliev\w*/, use: 'assume, trust, live' },
  { pattern: /\b(take|takes|share|shares|guess|in) turns?\b(?<!in turn)/, use: 'ticket, yield' },
  { pattern: /\bdoors?\b/, use: 'admission, rejected' },
  { pattern: /\bout of order\b/, use: 'unavailable, unordered' },
  { pattern: /\bdoubtful\b/, use: 'suspected lost' },
  { pattern: /\bconvict\w*/, use: 'dead-letter' },
  { pattern: /\b(take|takes|taken|took)( (it|them|this|\w+ \w+))? up\b/, use: 'adopt' },
  {
    pattern: /\b(give|gives|given|gave|giving)( (it|them|\w+ \w+))? up\b/,
    use: 'failPending, abandon, stop',
  },
  { pattern: /\b(give|gives|gave|giving)( \w+){1,2} free\b/, use: 'release' },
  { pattern: /\b(only|for|than|of|to) who\b/, use: 'a user that, a process that' },
  { pattern: /\b(went|goes|gone|going) by\b/, use: 'was read, passed, elapsed' },
  { pattern: /\bas good as\b/, use: 'equal to' },
  { pattern: /\b(own|no) business\b/, use: 'responsibility' },
  {
    pattern: /\b(every|each|any)thing (that )?(is|was) behind\b|\bwhat is behind\b/,
    use: 'the cause',
  },
  { pattern: /\b(hear|hears|heard|hearing)\b/, use: 'receive' },
  { pattern: /\b(asked of|ambient)\b/, use: 'RequestContext, request' },
  { pattern: /\bnoted\b/, use: 'recorded' },
  { pattern: /\b(tell|tells|told|telling|tellers?)\b/, use: 'say, send, report, distinguish' },
  { pattern: /\b(wish|wishes|wished)\b/, use: 'outbox, request' },
  { pattern: /\bunder way\b/, use: 'in flight' },
  { pattern: /\bforg[eo]t\w*/, use: 'delete, drop, omit' },
  { pattern: /\brehears\w*/, use: 'dry run' },
  { pattern: /\bcurtains?\b/, use: 'rollback' },
  { pattern: /\b(nobody|somebody)\b/, use: 'no user, another user' },
  { pattern: /\b(whoever|whatever|whichever)\b/, use: 'a user that, anything that' },
  { pattern: /\blanes?\b/, use: 'session pool, session' },
  { pattern: /\bgathering\b/, use: 'batching window' },
  { pattern: /\bmakers?\b/, use: 'key creator, inviter' },
  { pattern: /\bfarewells?\b/, use: 'connection draining' },
  { pattern: /\bwhole pieces\b|\bpassing bytes\b/, use: 'chunk' },
  { pattern: /\bbegun prompts?\b|\bguessed along\b/, use: 'prefill, draft tokens' },
  { pattern: /\bshut out\b|\bshown the door\b|\bkept out\b/, use: 'rejected, refused' },
  { pattern: /\b(stand|stands|stood)\b(?! ins?\b)/, use: 'is, appears' },
  { pattern: /\bbegs?\b/, use: 'request' },
  { pattern: /\bguess(es|ed)? (a |the )?turn\b/, use: 'predict the ticket' },
  { pattern: /\bkept services?\b/, use: 'supervised service' },
  { pattern: /\bended users?\b/, use: 'account deletion' },
  { pattern: /\b(keep|keeps|kept) to (it|them)sel(f|ves)\b/, use: 'log and ignore, hide' },
]

/** Comments and documents have no sentence with one of these subjects. */
const SENTENCE_FORMS =
  /(?:^|[.:;?!] )(?:who(?:m|se)?|what (?:is|was|are|were|has|had|have)) (?=.*\w)/

/** Sentences of comments begin neither with a noun clause nor with a fronted object. */
const COMMENT_FORMS = /(?:^|[.:;?!] )(?:Of|What|Whose) [a-z]/

const SUBJECT =
  /^(feat|fix|perf|refactor|docs|test|build|ci|chore)(\([a-z0-9-]+\))?!?: [^A-Z\s].*[^.\s]$/
const SUBJECT_LENGTH_MAX = 72

/** The subjects of commits that are not `type(scope): imperative summary` in the field's terms. */
export function rejectedSubjects(subjects: readonly string[]): string[] {
  return subjects.flatMap((subject) => {
    const isValid = SUBJECT.test(subject) && subject.length <= SUBJECT_LENGTH_MAX
    return isValid ? inWords('', subject).map((fault) => `${subject}${fault}`) : [subject]
  })
}

const PRODUCT = /^(api|workers|shared|launcher)\//
const TEST_NAME = /\b(?:describe|it|test)(?:\.\w+)?(?:\(|\)\()\s*$/

/** Every line of a file that the vocabulary rejects, as `path:line word → use`. */
export function rejectedWords(path: string, text: string): string[] {
  if (path === 'test/support/vocabulary.ts') return []
  if (path.endsWith('.md')) return inProse(path, text.replace(/```[\s\S]*?```|`[^`\n]*`/g, blank))
  const { code, strings } = split(path, text)
  return [
    ...inWords(path, code),
    ...inWords(path, strings),
    ...inProse(path, commentsOf(code), false),
  ].filter((fault, index, all) => all.indexOf(fault) === index)
}

function inProse(path: string, text: string, words = true): string[] {
  const forms = text.split('\n').flatMap((line, index) => {
    const sentences = prose(line)
    const isRejected =
      SENTENCE_FORMS.test(sentences.toLowerCase()) || (!words && COMMENT_FORMS.test(sentences))
    return isRejected ? [`${path}:${index + 1} sentence that begins with who, what or of`] : []
  })
  return words ? [...inWords(path, text), ...forms] : forms
}

function inWords(path: string, text: string): string[] {
  return text.split('\n').flatMap((line, index) => {
    const words = line
      .replace(/([a-z0-9])([A-Z])/g, '$1 $2')
      .replaceAll(/[_-]/g, ' ')
      .toLowerCase()
    return PRIVATE_WORDS.flatMap(({ pattern, use, except }) => {
      const found = except?.test(path) ? null : pattern.exec(words)
      return found === null ? [] : [`${path}:${index + 1} ${found[0]} → ${use}`]
    })
  })
}

/** The text of a line of a comment or a document, without its markers. */
function prose(line: string): string {
  return line.replace(/^\s*(?:\/\*\*?|\*|\/\/|[-#>|]+|\d+\.)\s*/, '').replaceAll('**', '')
}

/** Comments alone: everything else is blank. */
function commentsOf(code: string): string {
  const comments = [...code.matchAll(/\/\/.*|\/\*[\s\S]*?\*\//g)]
  let text = ''
  let from = 0
  for (const comment of comments) {
    text += blank(code.slice(from, comment.index)) + comment[0]
    from = comment.index + comment[0].length
  }
  return text
}

/** Comments, literals and regular expressions, in the order in which they begin. */
const TOKENS =
  /\/\/.*|\/\*[\s\S]*?\*\/|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|(?<=[=(,:[!&|?{};]\s*|return )\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*/g

/** Identifiers and comments of a source file; its messages (of a test file, its test names). */
function split(path: string, text: string): { code: string; strings: string } {
  let code = ''
  let strings = ''
  let from = 0
  for (const { 0: token, index } of text.matchAll(TOKENS)) {
    const before = text.slice(from, index)
    const isComment = token.startsWith('//') || token.startsWith('/*')
    const isChecked = PRODUCT.test(path) ? token.includes(' ') : TEST_NAME.test(before)
    code += before + (isComment ? token : blank(token))
    strings +=
      blank(before) + (!isComment && !token.startsWith('/') && isChecked ? token : blank(token))
    from = index + token.length
  }
  return { code: code + text.slice(from), strings }
}

function blank(text: string): string {
  return text.replace(/[^\n]/g, ' ')
}
