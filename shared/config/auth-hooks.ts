import type { EnvReader } from './env-reader.ts'

/** The hooks with their names in the settings and their purpose. */
const HOOKS = {
  customAccessToken: ['CUSTOM_ACCESS_TOKEN', 'it can change the claims of access tokens'],
  sendEmail: ['SEND_EMAIL', 'it sends mails in place of the mail server'],
  sendSms: ['SEND_SMS', 'it sends text messages in place of the SMS gateway'],
  passwordVerificationAttempt: [
    'PASSWORD_VERIFICATION_ATTEMPT',
    'it can reject sign-ins by password, and sees successful and failed ones',
  ],
  mfaVerificationAttempt: [
    'MFA_VERIFICATION_ATTEMPT',
    'it can reject second factors, and sees successful and failed attempts',
  ],
  beforeUserCreated: ['BEFORE_USER_CREATED', 'it may refuse a new user'],
  afterUserCreated: ['AFTER_USER_CREATED', 'it receives every new user'],
} as const satisfies Record<string, readonly [setting: string, about: string]>

/** The name of a hook. */
export type HookName = keyof typeof HOOKS

/** The receiver of a hook. */
export type HookTarget =
  | {
      readonly kind: 'http'
      readonly url: string
      /** Keys of the signatures; several while one replaces another. */
      readonly secrets: readonly Buffer[]
    }
  | { readonly kind: 'pgFunction'; readonly schema: string; readonly name: string }

/** The receivers of the enabled hooks. */
export type HooksConfig = Readonly<Partial<Record<HookName, HookTarget>>>

/** Reads the receivers of the hooks. */
export function readHooksConfig(env: EnvReader): HooksConfig {
  env.section('User server: hooks')
  const allowedHosts = env.list('MILLRACE_AUTH_HOOK_ALLOWED_HOSTS', {
    about:
      'hosts (name or name:port) that hooks may call, also over http; if unset, any host over https, and this machine over http',
  })
  const targets: Partial<Record<HookName, HookTarget>> = {}
  for (const name of Object.keys(HOOKS) as HookName[]) {
    const target = readTarget(env, name, allowedHosts)
    if (target !== undefined) targets[name] = target
  }
  return targets
}

function readTarget(
  env: EnvReader,
  hook: HookName,
  allowedHosts: readonly string[],
): HookTarget | undefined {
  const [setting, about] = HOOKS[hook]
  const prefix = `AUTH_HOOK_${setting}`
  const isEnabled = env.bool(`${prefix}_ENABLED`, {
    about: `call a hook: ${about}`,
    fallback: false,
  })
  const uri = env.string(`${prefix}_URI`, {
    about: 'https://… or pg-functions://postgres/<schema>/<function>',
    isSecret: true,
  })
  const secrets = env.string(`${prefix}_SECRETS`, {
    about: 'v1,whsec_<base64> of 24 to 64 bytes; separate several by |, all of them sign',
    isSecret: true,
  })
  if (uri === '') {
    if (isEnabled) env.problem(`${prefix}_ENABLED needs ${prefix}_URI`)
    return undefined
  }
  const url = URL.parse(uri)
  const target =
    url?.protocol === 'pg-functions:'
      ? parseFunction(env, url, prefix)
      : parseHttp(env, { url, prefix, allowedHosts, secrets: parseSecrets(env, secrets, prefix) })
  return isEnabled ? target : undefined
}

const FUNCTION_PATH = /^\/([a-z_]\w{0,62})\/([a-z_]\w{0,62})$/i

function parseFunction(env: EnvReader, url: URL, prefix: string): HookTarget | undefined {
  const match = FUNCTION_PATH.exec(url.pathname)
  if (match) return { kind: 'pgFunction', schema: match[1] as string, name: match[2] as string }
  env.problem(`${prefix}_URI must look like pg-functions://postgres/<schema>/<function>`)
  return undefined
}

// The machine itself, by the names that need no encryption.
const LOCAL_HOSTS = ['localhost', '127.0.0.1', '[::1]', 'host.docker.internal']

function parseHttp(
  env: EnvReader,
  given: {
    readonly url: URL | null
    readonly prefix: string
    readonly allowedHosts: readonly string[]
    readonly secrets: readonly Buffer[]
  },
): HookTarget | undefined {
  const { url, prefix, allowedHosts, secrets } = given
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    env.problem(`${prefix}_URI must begin with https://, http:// or pg-functions://`)
    return undefined
  }
  const isListed = allowedHosts.includes(url.hostname) || allowedHosts.includes(url.host)
  if (allowedHosts.length > 0 && !isListed) {
    env.problem(`${prefix}_URI calls a host that is not in MILLRACE_AUTH_HOOK_ALLOWED_HOSTS`)
    return undefined
  }
  if (url.protocol === 'http:' && !isListed && !LOCAL_HOSTS.includes(url.hostname)) {
    env.problem(
      `${prefix}_URI must use https, unless MILLRACE_AUTH_HOOK_ALLOWED_HOSTS names its host`,
    )
    return undefined
  }
  return { kind: 'http', url: url.href, secrets }
}

const SECRET = /^v1,whsec_([A-Za-z0-9+/]{32,88}={0,2})$/

function parseSecrets(env: EnvReader, text: string, prefix: string): readonly Buffer[] {
  const parts = text.split('|').filter((part) => part !== '')
  return parts.flatMap((part) => {
    const match = SECRET.exec(part)
    if (match) return [Buffer.from(match[1] as string, 'base64')]
    env.problem(`${prefix}_SECRETS must look like v1,whsec_<base64 of 24 to 64 bytes>`)
    return []
  })
}
