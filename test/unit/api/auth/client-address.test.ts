import { describe, expect, it } from 'vitest'

import { clientOf, plainAddress } from '#api/http/request.ts'

describe('an address', () => {
  const cases: readonly (readonly [string | undefined, string])[] = [
    ['192.0.2.7', '192.0.2.7'],
    [' 192.0.2.7:49152 ', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['[::FFFF:192.0.2.7]:443', '192.0.2.7'],
    ['::ffff:c000:207', '192.0.2.7'],
    ['2001:DB8:0:0::1', '2001:db8::1'],
    ['"[2001:db8::1]:49152"', '2001:db8::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['::', '::'],
    ['::1', '::1'],
    ['unknown', 'unknown'],
    ['300.1.1.1:80', '300.1.1.1:80'],
    ['[not an address]', '[not an address]'],
    ['', ''],
    [undefined, ''],
  ]
  it.each(cases)('that is written as %j is read as %j', (written, plain) => {
    expect(plainAddress(written)).toBe(plain)
  })
})

describe('a client', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['192.0.2.7, 10.0.0.1', '192.0.2.7'],
    ['192.0.2.7:1, 10.0.0.1:2', '192.0.2.7'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['[2001:db8:1:2::9]:77, 10.0.0.1', '2001:db8:1:2::/64'],
    ['::1', '0:0:0:0::/64'],
    ['a-session', 'a-session'],
    [', 10.0.0.1', ''],
  ]
  it.each(cases)('that a header writes as %j is read as %j', (header, client) => {
    expect(clientOf(header)).toBe(client)
  })
})
