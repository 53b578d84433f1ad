// ISO 639-1 codes, and the few longer ones, that Whisper knows, with their English names.
const NAMES: Readonly<Record<string, string>> = Object.fromEntries(
  (
    'en:english zh:chinese de:german es:spanish ru:russian ko:korean fr:french ja:japanese ' +
    'pt:portuguese tr:turkish pl:polish ca:catalan nl:dutch ar:arabic sv:swedish it:italian ' +
    'id:indonesian hi:hindi fi:finnish vi:vietnamese he:hebrew uk:ukrainian el:greek ms:malay ' +
    'cs:czech ro:romanian da:danish hu:hungarian ta:tamil no:norwegian th:thai ur:urdu ' +
    'hr:croatian bg:bulgarian lt:lithuanian la:latin mi:maori ml:malayalam cy:welsh sk:slovak ' +
    'te:telugu fa:persian lv:latvian bn:bengali sr:serbian az:azerbaijani sl:slovenian ' +
    'kn:kannada et:estonian mk:macedonian br:breton eu:basque is:icelandic hy:armenian ' +
    'ne:nepali mn:mongolian bs:bosnian kk:kazakh sq:albanian sw:swahili gl:galician mr:marathi ' +
    'pa:punjabi si:sinhala km:khmer sn:shona yo:yoruba so:somali af:afrikaans oc:occitan ' +
    'ka:georgian be:belarusian tg:tajik sd:sindhi gu:gujarati am:amharic yi:yiddish lo:lao ' +
    'uz:uzbek fo:faroese ht:haitian_creole ps:pashto tk:turkmen nn:nynorsk mt:maltese ' +
    'sa:sanskrit lb:luxembourgish my:myanmar bo:tibetan tl:tagalog mg:malagasy as:assamese ' +
    'tt:tatar haw:hawaiian ln:lingala ha:hausa ba:bashkir jw:javanese su:sundanese yue:cantonese'
  )
    .split(' ')
    .map((entry) => entry.replaceAll('_', ' ').split(':') as [string, string]),
)
// The code that ISO has since assigned to Javanese.
const ALIASES: Readonly<Record<string, string>> = { jv: 'jw', nb: 'no' }

/** The code by which models know a language, or undefined. */
export function languageCode(code: string): string | undefined {
  const lower = code.trim().toLowerCase()
  const known = ALIASES[lower] ?? lower
  return Object.hasOwn(NAMES, known) ? known : undefined
}

/**
 * The English name of a language in lower case; the code itself if no name is known here, and
 * `unknown` when the model does not detect the language.
 */
export function languageName(code: string | null): string {
  if (code === null) return 'unknown'
  return Object.hasOwn(NAMES, code) ? (NAMES[code] as string) : code
}
