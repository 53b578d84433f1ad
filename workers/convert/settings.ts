import { isRecord } from '#shared/json.ts'
import { ModelLoadError } from '#workers/runtime/errors.ts'

type Json = Readonly<Record<string, unknown>>

/**
 * The settings of config.json. Getters throw `ModelLoadError` naming a missing or wrong setting.
 */
export class Settings {
  readonly #folder: string
  readonly #values: Json

  /** `fallbacks` are the values of settings that the family's files omit. */
  constructor(folder: string, values: Json, fallbacks: Json = {}) {
    this.#folder = folder
    // An explicit null means none, even if the family has a default.
    const stated = Object.entries({ ...fallbacks, ...values }).filter(([, value]) => value !== null)
    this.#values = Object.fromEntries(stated)
  }

  /** A positive integer. */
  count(name: string, { max, fallback }: { max: number; fallback?: number }): number {
    const value = this.#values[name] ?? fallback
    if (Number.isInteger(value) && (value as number) > 0 && (value as number) <= max) {
      return value as number
    }
    throw this.fault(name, `a whole number from 1 to ${max}`)
  }

  number(name: string, fallback?: number): number {
    const value = this.#values[name] ?? fallback
    if (Number.isFinite(value)) return value as number
    throw this.fault(name, 'a number')
  }

  positive(name: string, fallback?: number): number {
    const value = this.findPositive(name) ?? fallback
    if (value !== undefined) return value
    throw this.fault(name, 'a number above 0')
  }

  /** A positive number that may be missing. */
  findPositive(name: string): number | undefined {
    const value = this.#values[name]
    if (value === undefined) return undefined
    if (Number.isFinite(value) && (value as number) > 0) return value as number
    throw this.fault(name, 'a number above 0')
  }

  isOn(name: string, fallback = false): boolean {
    const value = this.#values[name] ?? fallback
    if (typeof value === 'boolean') return value
    throw this.fault(name, 'true or false')
  }

  findText(name: string): string | undefined {
    const value = this.#values[name]
    if (value === undefined || typeof value === 'string') return value
    throw this.fault(name, 'a text')
  }

  /** One entry for each layer; undefined where the setting is missing. */
  findLayerList(name: string, layers: number): readonly unknown[] | undefined {
    const value = this.#values[name]
    if (value === undefined) return undefined
    if (Array.isArray(value) && value.length === layers) return value as unknown[]
    throw this.fault(name, `a list of ${layers} entries`)
  }

  /** Positive numbers. */
  numbers(name: string, length: number): readonly number[] {
    const value = this.#values[name]
    const isSound =
      Array.isArray(value) &&
      value.length === length &&
      value.every((entry) => Number.isFinite(entry) && entry > 0)
    if (isSound) return value as number[]
    throw this.fault(name, `a list of ${length} numbers above 0`)
  }

  /** A group of settings; undefined where it is missing. */
  findGroup(name: string): Settings | undefined {
    const value = this.#values[name]
    if (value === undefined) return undefined
    if (isRecord(value)) return new Settings(this.#folder, value)
    throw this.fault(name, 'an object')
  }

  /** Whether a setting is present. */
  has(name: string): boolean {
    return this.#values[name] !== undefined
  }

  /** These settings, overridden by others. */
  with(others: Json): Settings {
    return new Settings(this.#folder, { ...this.#values, ...others })
  }

  /** Empty settings, for groups that are missing. */
  none(): Settings {
    return new Settings(this.#folder, {})
  }

  fault(name: string, expected: string): ModelLoadError {
    const value = this.#values[name]
    const shown = value === undefined ? 'missing' : JSON.stringify(value).slice(0, 100)
    return this.refusal(`config.json: ${name} is ${shown}, expected ${expected}`)
  }

  refusal(reason: string): ModelLoadError {
    return new ModelLoadError(this.#folder, reason)
  }
}
