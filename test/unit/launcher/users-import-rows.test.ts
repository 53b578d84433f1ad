import { expect, it } from 'vitest'

import { readUser } from '#launcher/commands/users-import-rows.ts'

const NOW = new Date('2026-01-02T03:04:05Z')
const HASH = '$2a$10$abcdefghijklmnopqrstuv'
const emailOf = (length: number) => `${'a'.repeat(length - '@b.c'.length)}@b.c`

it.each([
  ['an address as long as it may be', { email: emailOf(255) }, { email: emailOf(255) }],
  ['capital letters', { email: 'Ann@B.C' }, { email: 'ann@b.c' }],
  ['a plus sign before a number', { phone: '+4912345' }, { phone: '4912345' }],
  [
    'a confirmed user',
    { email_confirmed_at: NOW, encrypted_password: HASH, raw_user_meta_data: { name: 'Ann' } },
    { password_hash: HASH, user_metadata: { name: 'Ann' }, signed_up_at: null },
  ],
  [
    'an unconfirmed sign-up, whose password and data anyone may have chosen',
    { encrypted_password: HASH, raw_user_meta_data: { name: 'Ann' } },
    { password_hash: null, user_metadata: {}, signed_up_at: NOW.toISOString() },
  ],
  [
    'an invited user',
    { invited_at: NOW, raw_user_meta_data: { name: 'Ann' } },
    { user_metadata: { name: 'Ann' }, signed_up_at: null },
  ],
  ['a deleted user, whose number was replaced', { phone: 'gone', deleted_at: NOW }, {}],
])('takes over %s', (_, row, expected) => {
  expect(readUser({ id: 'a', ...row }, NOW)).toMatchObject({ id: 'a', ...expected })
})

it.each([
  [{ email: emailOf(256) }, 'the email address is too long'],
  [{ phone: '0123' }, 'the phone number is malformed'],
  [{ is_sso_user: true }, 'users of SAML are not supported'],
])('leaves out %j', (row, reason) => {
  expect(readUser({ id: 'a', ...row }, NOW)).toBe(reason)
})
