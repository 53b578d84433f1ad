import { createHash } from 'node:crypto'

import { type ApiKeyStore, NO_KEY_LIMITS, type StoredApiKey } from '#shared/db/api-keys.ts'

/** API keys in memory. */
export class MemoryKeys implements ApiKeyStore {
  readonly bySecret = new Map<string, StoredApiKey>()
  lookups = 0
  touched: string[] = []
  failure: Error | undefined
  /** Answers nothing while it is set. */
  isSilent = false

  add(secret: string, key: Partial<StoredApiKey> = {}): void {
    this.bySecret.set(createHash('sha256').update(secret).digest('hex'), {
      id: `key_${this.bySecret.size}`,
      organizationId: 'org-test',
      name: 'test',
      prefix: secret.slice(0, 7),
      scopes: null,
      modelIds: null,
      createdBy: null,
      createdAt: new Date(0),
      expiresAt: null,
      lastUsedAt: null,
      ...NO_KEY_LIMITS,
      ...key,
    })
  }

  async findBySecretHash(sha256: Buffer): Promise<StoredApiKey | undefined> {
    this.lookups += 1
    if (this.failure !== undefined) throw this.failure
    if (this.isSilent) return new Promise(() => {})
    return this.bySecret.get(sha256.toString('hex'))
  }

  async create(key: Parameters<ApiKeyStore['create']>[0]): ReturnType<ApiKeyStore['create']> {
    const secret = `sk-new-${this.bySecret.size}-0123456789`
    this.add(secret, key)
    return { key: [...this.bySecret.values()].at(-1) as StoredApiKey, secret }
  }

  async list(organizationId: string): Promise<readonly StoredApiKey[]> {
    return [...this.bySecret.values()].filter((key) => key.organizationId === organizationId)
  }

  async find(organizationId: string, id: string): Promise<StoredApiKey | undefined> {
    return (await this.list(organizationId)).find((key) => key.id === id)
  }

  async limit(
    organizationId: string,
    id: string,
    limits: Parameters<ApiKeyStore['limit']>[2],
  ): ReturnType<ApiKeyStore['limit']> {
    for (const [hash, key] of this.bySecret) {
      if (key.organizationId !== organizationId || key.id !== id) continue
      this.bySecret.set(hash, { ...key, ...limits })
      return this.bySecret.get(hash)
    }
    return undefined
  }

  async rotate(
    organizationId: string,
    id: string,
    createdBy: string | null,
  ): ReturnType<ApiKeyStore['rotate']> {
    const old = await this.find(organizationId, id)
    if (old === undefined || !(await this.revoke(organizationId, id))) return undefined
    const secret = `sk-rotated-${id}-0123456789`
    const key = { ...old, createdBy, prefix: secret.slice(0, 7) }
    this.add(secret, key)
    return { key, secret }
  }

  async revoke(organizationId: string, id: string): Promise<boolean> {
    for (const [hash, key] of this.bySecret) {
      if (key.id === id && key.organizationId === organizationId) return this.bySecret.delete(hash)
    }
    return false
  }

  async mayManage(): Promise<boolean> {
    return true
  }

  async touch(id: string): Promise<void> {
    this.touched.push(id)
  }
}
