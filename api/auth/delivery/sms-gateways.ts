import type { SmsConfig, SmsGatewayId } from '#shared/config/auth-sms.ts'
import { field, textAt } from '#shared/json.ts'

/** A message for a gateway; the number has no `+`. */
interface Sms {
  readonly to: string
  readonly message: string
  readonly channel: 'sms' | 'whatsapp'
  readonly otp: string
}

type Result = { readonly messageId: string } | { readonly problem: string }

interface SmsGateway {
  /** Settings that the gateway needs but that are missing. */
  missing(config: SmsConfig): readonly string[]
  request(
    config: SmsConfig,
    sms: Sms,
  ): { url: string; headers?: Record<string, string>; form: Record<string, string> }
  read(body: unknown, status: number): Result
  /** For a gateway that creates the codes itself: asks it whether a code is right. */
  readonly check?: {
    request(
      config: SmsConfig,
      code: { readonly to: string; readonly code: string },
    ): ReturnType<SmsGateway['request']>
    isRight(body: unknown): boolean
  }
}

/** The gateways, each with the calls of its API. */
export const SMS_GATEWAYS: Readonly<Record<SmsGatewayId, SmsGateway>> = {
  twilio: {
    missing: ({ twilio }) =>
      emptyOf({
        accountSid: twilio.accountSid,
        authToken: twilio.authToken,
        messageServiceSid: twilio.messageServiceSid,
      }),
    request: ({ twilio }, sms) => ({
      url: `${base(twilio.apiUrl)}/2010-04-01/Accounts/${encodeURIComponent(twilio.accountSid)}/Messages.json`,
      headers: { authorization: basic(twilio.accountSid, twilio.authToken) },
      form: twilioForm(twilio, sms),
    }),
    read: readTwilio,
  },
  twilio_verify: {
    missing: ({ twilioVerify }) =>
      emptyOf({
        accountSid: twilioVerify.accountSid,
        authToken: twilioVerify.authToken,
        messageServiceSid: twilioVerify.messageServiceSid,
      }),
    request: ({ twilioVerify }, sms) =>
      verifyRequest(twilioVerify, 'Verifications', {
        To: `+${digits(sms.to)}`,
        Channel: sms.channel,
      }),
    read: readTwilio,
    check: {
      request: ({ twilioVerify }, { to, code }) =>
        verifyRequest(twilioVerify, 'VerificationCheck', { To: `+${digits(to)}`, Code: code }),
      isRight: (body) => textAt(body, 'status') === 'approved' && field(body, 'valid') === true,
    },
  },
  messagebird: {
    missing: ({ messagebird }) =>
      emptyOf({ accessKey: messagebird.accessKey, originator: messagebird.originator }),
    request: ({ messagebird }, sms) => ({
      url: `${base(messagebird.apiUrl)}/messages`,
      headers: { authorization: `AccessKey ${messagebird.accessKey}` },
      form: {
        originator: messagebird.originator,
        body: sms.message,
        recipients: digits(sms.to),
        type: 'sms',
        datacoding: 'unicode',
      },
    }),
    read: (body) =>
      Number(field(field(body, 'recipients'), 'totalSentCount')) > 0
        ? { messageId: textAt(body, 'id') }
        : { problem: textAt(body, 'errors', 0, 'description') },
  },
  textlocal: {
    missing: ({ textlocal }) => emptyOf({ apiKey: textlocal.apiKey, sender: textlocal.sender }),
    request: ({ textlocal }, sms) => ({
      url: `${base(textlocal.apiUrl)}/send`,
      form: {
        sender: textlocal.sender,
        apikey: textlocal.apiKey,
        message: sms.message,
        numbers: digits(sms.to),
      },
    }),
    read: (body) =>
      textAt(body, 'status') === 'success'
        ? { messageId: textAt(body, 'messages', 0, 'id') }
        : { problem: textAt(body, 'errors', 0, 'message') },
  },
  vonage: {
    missing: ({ vonage }) =>
      emptyOf({ apiKey: vonage.apiKey, apiSecret: vonage.apiSecret, from: vonage.from }),
    request: ({ vonage }, sms) => ({
      url: `${base(vonage.apiUrl)}/sms/json`,
      form: {
        from: vonage.from,
        to: digits(sms.to),
        text: sms.message,
        api_key: vonage.apiKey,
        api_secret: vonage.apiSecret,
        ...(!isAscii(sms.message) && { type: 'unicode' }),
      },
    }),
    read: (body) =>
      textAt(body, 'messages', 0, 'status') === '0'
        ? { messageId: textAt(body, 'messages', 0, 'message-id') }
        : { problem: textAt(body, 'messages', 0, 'error-text') },
  },
}

function verifyRequest(
  verify: SmsConfig['twilioVerify'],
  resource: string,
  form: Record<string, string>,
): ReturnType<SmsGateway['request']> {
  const service = encodeURIComponent(verify.messageServiceSid)
  return {
    url: `${base(verify.apiUrl)}/v2/Services/${service}/${resource}`,
    headers: { authorization: basic(verify.accountSid, verify.authToken) },
    form,
  }
}

function twilioForm(twilio: SmsConfig['twilio'], sms: Sms): Record<string, string> {
  const sender = twilio.messageServiceSid
  const to = `+${digits(sms.to)}`
  if (sms.channel === 'sms') {
    return { To: to, Channel: 'sms', From: sender, Body: sms.message }
  }
  // The id of a messaging service is a sender by itself; a number needs the channel prefix.
  const isNumber = /^\+?\d+$/.test(sender)
  const content =
    twilio.contentSid === ''
      ? { Body: sms.message }
      : { ContentSid: twilio.contentSid, ContentVariables: JSON.stringify({ 1: sms.otp }) }
  return {
    To: `whatsapp:${to}`,
    Channel: 'whatsapp',
    From: isNumber ? `whatsapp:+${digits(sender)}` : sender,
    ...content,
  }
}

function readTwilio(body: unknown, status: number): Result {
  const state = textAt(body, 'status')
  if ((status === 200 || status === 201) && state !== 'failed' && state !== 'undelivered') {
    const messageId = textAt(body, 'sid')
    if (messageId !== '') return { messageId }
  }
  const message = textAt(body, 'message') || textAt(body, 'error_message')
  const moreInfo = textAt(body, 'more_info')
  return { problem: moreInfo === '' ? message : `${message} More information: ${moreInfo}` }
}

function emptyOf(settings: Record<string, string>): string[] {
  return Object.keys(settings).filter((name) => settings[name] === '')
}

function base(url: string): string {
  return url.replace(/\/+$/, '')
}

function digits(phone: string): string {
  return phone.replace(/^\+/, '')
}

function basic(user: string, password: string): string {
  return `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}`
}

function isAscii(text: string): boolean {
  return [...text].every((character) => (character.codePointAt(0) ?? 0) < 128)
}
