import { createHash, generateKeyPairSync, randomUUID, sign } from 'node:crypto'

import { type PeerReply, type PeerRequest, startHttpPeer } from '#test/support/http-peers.ts'
import type { ProviderCase } from '#test/support/provider-peers.ts'

/** The differences from a consenting visitor. */
export interface Incident {
  readonly isDenied?: true
  /** The token endpoint answers this. */
  readonly tokenReply?: PeerReply
  /** Addresses of the profile answer this. */
  readonly profile?: Readonly<Record<string, PeerReply>>
  /** Claims of the id token besides the usual ones. */
  readonly claims?: Readonly<Record<string, unknown>>
}

/** A server on which every provider of a table has its pages, one provider at a time. */
export interface ProviderWorld {
  readonly url: string
  readonly requests: readonly PeerRequest[]
  /** Selects the provider whose pages are shown from now on. */
  become(row: ProviderCase, incident?: Incident): void
  stop(): Promise<void>
}

interface Stage {
  readonly url: string
  readonly row: ProviderCase
  readonly incident: Incident
  /** Codes that were given out and not redeemed yet: what they are bound to. */
  readonly grants: Map<string, { redirectUri: string; challenge: string; nonce?: string }>
}

const KEYS = generateKeyPairSync('rsa', { modulusLength: 2048 })
const KEY_ID = 'k1'

/** Starts the server; its codes are good once, and only with the verifier of their challenge. */
export async function startProviderWorld(first: ProviderCase): Promise<ProviderWorld> {
  let [row, incident]: [ProviderCase, Incident] = [first, {}]
  const grants: Stage['grants'] = new Map()
  const peer = await startHttpPeer((request) =>
    answer({ url: peer.url, row, incident, grants }, request),
  )
  return {
    url: peer.url,
    requests: peer.requests,
    become(nextRow, nextIncident = {}) {
      row = nextRow
      incident = nextIncident
    },
    stop: () => peer.stop(),
  }
}

function answer(stage: Stage, request: PeerRequest): PeerReply {
  const { row, incident, url } = stage
  if (request.path.endsWith('/.well-known/openid-configuration')) {
    const endpoints = { authorization_endpoint: `${url}/authorize`, token_endpoint: `${url}/token` }
    return { body: { issuer: url, jwks_uri: `${url}/keys`, ...endpoints } }
  }
  if (request.path === '/keys') {
    const jwk = { ...KEYS.publicKey.export({ format: 'jwk' }), kid: KEY_ID, alg: 'RS256' }
    return { body: { keys: [jwk] } }
  }
  if (request.path === row.tokenPath) return incident.tokenReply ?? redeem(stage, request)
  const profile = incident.profile?.[request.path] ?? row.profile[request.path]
  if (profile !== undefined) {
    const isKnown = request.headers.authorization === 'Bearer provider-access'
    return isKnown ? profile : { status: 401, body: { error: 'invalid_token' } }
  }
  return consent(stage, request)
}

/** The page on which the visitor agrees, or not. */
function consent({ incident, grants }: Stage, { query }: PeerRequest): PeerReply {
  const { state = '', redirect_uri: redirectUri = '', code_challenge: challenge = '' } = query
  if (query.response_type !== 'code' || query.client_id !== 'client') {
    return { status: 400, body: 'this is no request for a code' }
  }
  const code = randomUUID()
  grants.set(code, { redirectUri, challenge, ...(query.nonce && { nonce: query.nonce }) })
  const fields: Record<string, string> = incident.isDenied
    ? { error: 'access_denied', error_description: 'The user said no', state }
    : { code, state }
  if (query.response_mode === 'form_post') return { body: formPost(redirectUri, fields) }
  const back = new URL(redirectUri)
  for (const [name, value] of Object.entries(fields)) back.searchParams.set(name, value)
  return { status: 302, headers: { location: back.href }, body: '' }
}

// The form that a browser would submit automatically.
function formPost(action: string, fields: Record<string, string>): string {
  const inputs = Object.entries(fields).map(
    ([name, value]) => `<input name="${name}" value="${value}">`,
  )
  return `<form method="post" action="${action}">${inputs.join('')}</form>`
}

function redeem(stage: Stage, { form, headers }: PeerRequest): PeerReply {
  const { row, grants } = stage
  const grant = grants.get(form.code ?? '')
  grants.delete(form.code ?? '')
  const basic = `Basic ${Buffer.from('client:secret').toString('base64')}`
  const isClient = headers.authorization === basic || form.client_secret === 'secret'
  const verifier = createHash('sha256')
    .update(form.code_verifier ?? '')
    .digest('base64url')
  const isBound = grant?.challenge === '' || grant?.challenge === verifier
  if (!isClient || !isBound || grant?.redirectUri !== form.redirect_uri) {
    return { status: 400, body: { error: 'invalid_grant' } }
  }
  const tokens = { access_token: 'provider-access', refresh_token: 'provider-refresh' }
  const { nonce } = grant
  const claims = row.claims && { nonce, ...row.claims, ...stage.incident.claims }
  const idToken = claims && { id_token: signIdToken(stage.url, claims) }
  return { body: { token_type: 'Bearer', ...tokens, ...row.tokenReply, ...idToken } }
}

function signIdToken(issuer: string, claims: Readonly<Record<string, unknown>>): string {
  const now = Math.floor(Date.now() / 1000)
  const payload = { iss: issuer, aud: 'client', iat: now, exp: now + 300, ...claims }
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
  const text = `${encode({ alg: 'RS256', kid: KEY_ID })}.${encode(payload)}`
  return `${text}.${sign('RSA-SHA256', Buffer.from(text), KEYS.privateKey).toString('base64url')}`
}
