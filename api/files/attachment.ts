/**
 * The `Content-Disposition` of a download (RFC 6266): `curl -OJ` and older clients read only the plain
 * name, which has an underscore for what is not safe in it.
 */
export function asAttachment(filename: string): string {
  const plain = filename.replaceAll(/[^\x20-\x7e]|["%\\]/g, '_')
  const exact = encodeURIComponent(filename).replaceAll(
    /['()*]/g,
    (mark) => `%${mark.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `attachment; filename="${plain}"; filename*=UTF-8''${exact}`
}
