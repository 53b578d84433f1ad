declare module 'audio-type' {
  /** The format of a file by its first bytes, or undefined. */
  export default function audioType(bytes: Uint8Array): string | undefined
}
