/**
 * The part of the WebAssembly interface that the decoders use, because `lib` in tsconfig.json
 * contains only the language.
 */
declare namespace WebAssembly {
  function instantiate(
    bytes: Uint8Array,
    imports: object,
  ): Promise<{ readonly instance: { readonly exports: Readonly<Record<string, unknown>> } }>
}
