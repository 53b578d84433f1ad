// Replaces the imports of a scenario file from `k6/encoding` where there is no k6.

const encoding = {
  b64encode: (text: string, variant = 'std'): string =>
    Buffer.from(text).toString(variant === 'rawurl' ? 'base64url' : 'base64'),
}

// biome-ignore lint/style/noDefaultExport: the name under which scenario files import it.
export default encoding
