import type { Model } from './model.ts'
import { fieldsOf } from './wire.ts'

// Field numbers of onnx.proto.
const METADATA = 14
const KEY = 1
const VALUE = 2

/** Reads the metadata that an exporter stored in a model file (`metadata_props`), by name. */
export function metadataOf({ rest }: Pick<Model, 'rest'>): ReadonlyMap<string, string> {
  const found = new Map<string, string>()
  for (const part of rest) {
    for (const { number, body } of fieldsOf(part)) {
      if (number !== METADATA) continue
      const entry = new Map<number, string>()
      for (const field of fieldsOf(body)) entry.set(field.number, textOf(field.body))
      const name = entry.get(KEY)
      if (name !== undefined) found.set(name, entry.get(VALUE) ?? '')
    }
  }
  return found
}

function textOf(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes)
}
