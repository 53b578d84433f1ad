import { readOtpLength } from './auth-mail.ts'
import type { EnvReader } from './env-reader.ts'

/** The SMS gateways, by their identifiers. */
const SMS_GATEWAY_IDS = ['twilio', 'twilio_verify', 'messagebird', 'textlocal', 'vonage'] as const

/** The identifier of an SMS gateway. */
export type SmsGatewayId = (typeof SMS_GATEWAY_IDS)[number]

/** How codes are sent by phone. */
export interface SmsConfig {
  readonly isAutoconfirm: boolean
  readonly gapSeconds: number
  readonly otpTtlSeconds: number
  readonly otpLength: number
  /** Text of a message; `{{ .Code }}` is replaced by the code. */
  readonly template: string
  readonly gateway: SmsGatewayId | 'none'
  readonly twilio: {
    readonly accountSid: string
    readonly authToken: string
    readonly messageServiceSid: string
    readonly contentSid: string
    readonly apiUrl: string
  }
  /** Twilio Verify creates and checks the codes itself. */
  readonly twilioVerify: {
    readonly accountSid: string
    readonly authToken: string
    readonly messageServiceSid: string
    readonly apiUrl: string
  }
  readonly messagebird: {
    readonly accessKey: string
    readonly originator: string
    readonly apiUrl: string
  }
  readonly textlocal: { readonly apiKey: string; readonly sender: string; readonly apiUrl: string }
  readonly vonage: {
    readonly apiKey: string
    readonly apiSecret: string
    readonly from: string
    readonly apiUrl: string
  }
  /** Fixed codes by phone number without `+`; no message is sent to these. */
  readonly testOtps: Readonly<Record<string, string>>
  /** Milliseconds since the epoch until which the fixed codes are valid; undefined for no end. */
  readonly testOtpsValidUntilMs: number | undefined
}

/** The CAPTCHA check. */
export interface CaptchaConfig {
  readonly isEnabled: boolean
  readonly provider: 'hcaptcha' | 'turnstile'
  readonly secret: string
  readonly timeoutSeconds: number
  /** Overrides the provider's own URL; empty for the provider's own. */
  readonly url: string
}

/** Reads the settings of messages sent by phone. */
export function readSmsConfig(env: EnvReader): SmsConfig {
  env.section('User server: SMS')
  const gateway = env.oneOf('AUTH_SMS_PROVIDER', ['none', ...SMS_GATEWAY_IDS], {
    about: 'SMS gateway',
    fallback: 'none',
  })
  return {
    isAutoconfirm: env.bool('AUTH_SMS_AUTOCONFIRM', {
      about: 'treat phone numbers as confirmed at sign-up',
      fallback: false,
    }),
    gapSeconds: env.seconds('AUTH_SMS_MAX_FREQUENCY', {
      about: 'seconds between two codes to one user',
      fallback: 60,
    }),
    otpTtlSeconds: env.seconds('AUTH_SMS_OTP_EXP', {
      about: 'validity of a code sent by phone',
      fallback: 60,
    }),
    otpLength: readOtpLength(env, 'AUTH_SMS_OTP_LENGTH'),
    template: env.string('AUTH_SMS_TEMPLATE', {
      about: 'text of a message',
      fallback: 'Your code is {{ .Code }}',
    }),
    gateway,
    ...readGateways(env),
    testOtps: readTestOtps(env),
    testOtpsValidUntilMs: readValidUntil(env),
  }
}

function readGateways(
  env: EnvReader,
): Pick<SmsConfig, 'twilio' | 'twilioVerify' | 'messagebird' | 'textlocal' | 'vonage'> {
  const text = (name: string, about: string): string => env.string(`AUTH_SMS_${name}`, { about })
  const secret = (name: string, about: string): string =>
    env.string(`AUTH_SMS_${name}`, { about, isSecret: true })
  const apiUrl = (name: string, fallback: string): string =>
    env.url(`AUTH_SMS_${name}_URL`, { about: 'base URL of the gateway', fallback })
  return {
    twilio: {
      accountSid: text('TWILIO_ACCOUNT_SID', 'Twilio account'),
      authToken: secret('TWILIO_AUTH_TOKEN', 'Twilio auth token'),
      messageServiceSid: text('TWILIO_MESSAGE_SERVICE_SID', 'Twilio service id or sender number'),
      contentSid: text('TWILIO_CONTENT_SID', 'Twilio template of WhatsApp messages'),
      apiUrl: apiUrl('TWILIO', 'https://api.twilio.com'),
    },
    twilioVerify: {
      accountSid: text('TWILIO_VERIFY_ACCOUNT_SID', 'Twilio account of Twilio Verify'),
      authToken: secret('TWILIO_VERIFY_AUTH_TOKEN', 'Twilio auth token of Twilio Verify'),
      messageServiceSid: text('TWILIO_VERIFY_MESSAGE_SERVICE_SID', 'Verify service id (VA…)'),
      apiUrl: apiUrl('TWILIO_VERIFY', 'https://verify.twilio.com'),
    },
    messagebird: {
      accessKey: secret('MESSAGEBIRD_ACCESS_KEY', 'MessageBird access key'),
      originator: text('MESSAGEBIRD_ORIGINATOR', 'MessageBird sender'),
      apiUrl: apiUrl('MESSAGEBIRD', 'https://rest.messagebird.com'),
    },
    textlocal: {
      apiKey: secret('TEXTLOCAL_API_KEY', 'Textlocal key'),
      sender: text('TEXTLOCAL_SENDER', 'Textlocal sender'),
      apiUrl: apiUrl('TEXTLOCAL', 'https://api.textlocal.in'),
    },
    vonage: {
      apiKey: text('VONAGE_API_KEY', 'Vonage key'),
      apiSecret: secret('VONAGE_API_SECRET', 'Vonage secret'),
      from: text('VONAGE_FROM', 'Vonage sender'),
      apiUrl: apiUrl('VONAGE', 'https://rest.nexmo.com'),
    },
  }
}

function readTestOtps(env: EnvReader): Readonly<Record<string, string>> {
  const pairs = env.list('AUTH_SMS_TEST_OTP', {
    about: 'fixed codes for test numbers: phone:code,phone:code',
  })
  const codes: Record<string, string> = {}
  for (const pair of pairs) {
    const match = /^\+?([1-9]\d{1,14})[:=](\d{4,10})$/.exec(pair)
    if (match) codes[match[1] as string] = match[2] as string
    else env.problem('AUTH_SMS_TEST_OTP must look like 4152127777:123456,4152128888:654321')
  }
  return codes
}

function readValidUntil(env: EnvReader): number | undefined {
  const text = env.optional('AUTH_SMS_TEST_OTP_VALID_UNTIL', {
    about: 'time (RFC 3339) until which AUTH_SMS_TEST_OTP applies',
  })
  if (text === undefined) return undefined
  const ms = Date.parse(text)
  if (Number.isNaN(ms)) env.problem('AUTH_SMS_TEST_OTP_VALID_UNTIL must be an RFC 3339 moment')
  return ms
}

/** Reads the settings of the CAPTCHA check. */
export function readCaptchaConfig(env: EnvReader): CaptchaConfig {
  env.section('User server: CAPTCHA')
  const config: CaptchaConfig = {
    isEnabled: env.bool('AUTH_SECURITY_CAPTCHA_ENABLED', {
      about: 'require a CAPTCHA before sign-up, sign-in and mails',
      fallback: false,
    }),
    provider: env.oneOf('AUTH_SECURITY_CAPTCHA_PROVIDER', ['hcaptcha', 'turnstile'], {
      about: 'CAPTCHA provider',
      fallback: 'hcaptcha',
    }),
    secret: env.string('AUTH_SECURITY_CAPTCHA_SECRET', {
      about: 'secret key of the CAPTCHA provider',
      isSecret: true,
    }),
    timeoutSeconds: env.seconds('AUTH_SECURITY_CAPTCHA_TIMEOUT', {
      about: 'time limit of the call to the CAPTCHA provider',
      fallback: 10,
      isTimer: true,
    }),
    url: env.url('AUTH_SECURITY_CAPTCHA_URL', {
      about: 'verification URL; the URL of the provider if unset',
    }),
  }
  if (config.isEnabled && config.secret === '') {
    env.problem('AUTH_SECURITY_CAPTCHA_ENABLED needs AUTH_SECURITY_CAPTCHA_SECRET')
  }
  return config
}
