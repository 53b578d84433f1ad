/**
 * The part of the WebAssembly interface that the decoders use; `lib` of tsconfig.json is that of
 * the language.
 */
declare namespace WebAssembly {
  function instantiate(
    bytes: Uint8Array,
    imports: object,
  ): Promise<{ readonly instance: { readonly exports: Readonly<Record<string, unknown>> } }>
}
