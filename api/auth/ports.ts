import type { MailKind } from '#shared/config/auth-mail.ts'

/** Sends mails; throws a `ServiceError` of kind internal when one cannot be delivered. */
export interface Mailer {
  send(mail: Mail): Promise<void>
}

/** A mail to one recipient. */
export interface Mail {
  readonly kind: MailKind
  readonly to: string
  readonly variables: MailVariables
  /** Needed only by a send-email hook; absent in rows of older releases. */
  readonly forHook?: {
    /** `type` in the link. */
    readonly linkType: string
    /** The base of the link. */
    readonly externalUrl: string
    /** The token for the current address, for a change that both addresses confirm. */
    readonly currentToken?: { readonly code: string; readonly linkToken: string }
  }
}

/** The variables of a mail template. */
export interface MailVariables {
  siteUrl: string
  email: string
  newEmail?: string
  confirmationUrl: string
  token: string
  tokenHash: string
  redirectTo: string
  data: Record<string, unknown>
}

/** A text message to one recipient. */
export interface Sms {
  readonly to: string
  readonly message: string
  readonly channel: 'sms' | 'whatsapp'
  readonly otp: string
  /** Present in messages of second factors. */
  readonly type?: 'mfa'
}

/** Sends text messages. */
export interface SmsSender {
  send(sms: Sms): Promise<{ messageId: string }>
  /** Present if the gateway creates the codes itself and must be asked whether one is right. */
  isRightCode?(phone: string, code: string): Promise<boolean>
  /** Throws when the settings configure no gateway for the channel. */
  requireGateway(channel: Sms['channel']): void
  /** The fixed code of a test number. */
  testOtp(phone: string): string | undefined
}

/** Asks the CAPTCHA provider; throws when the visitor did not pass. */
export interface CaptchaVerifier {
  verify(token: string, remoteIp: string): Promise<void>
}

/** A provider's profile of a user. */
export interface ExternalProfile {
  /** The provider's name of the user, which never changes. */
  readonly subject: string
  readonly emails: readonly {
    readonly email: string
    readonly isVerified: boolean
    readonly isPrimary: boolean
  }[]
  readonly metadata: Record<string, unknown>
  readonly providerAccessToken?: string
  readonly providerRefreshToken?: string
}

/** An external identity provider. */
export interface Provider {
  readonly id: string
  /** The visitor returns through a form that another site posts. */
  readonly isFormPost?: boolean
  authorizationUrl(request: {
    readonly state: string
    readonly scopes: string
    readonly pkceChallenge?: string
    readonly query: Record<string, string>
  }): Promise<string>
  exchange(callback: {
    readonly code: string
    readonly query: Record<string, string>
    readonly codeVerifier?: string
  }): Promise<ExternalProfile>
  verifyIdToken?(
    idToken: string,
    options: {
      readonly nonce?: string
      readonly accessToken?: string
      readonly clientId?: string
      readonly issuer?: string
    },
  ): Promise<ExternalProfile>
}

/** Every provider there is. */
export interface Providers {
  /** Throws when there is no such provider or it is disabled. */
  get(id: string): Provider
  enabledIds(): readonly string[]
  /** The issuer of this provider's id tokens, enabled or not; undefined when it has none. */
  idTokenIssuer(id: string): string | undefined
  readonly allIds: readonly string[]
}
