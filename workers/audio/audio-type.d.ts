declare module 'audio-type' {
  /** The format of a file by its first bytes, or undefined. */
  // biome-ignore lint/style/noDefaultExport: this describes a package that has one.
  export default function audioType(bytes: Uint8Array): string | undefined
}
