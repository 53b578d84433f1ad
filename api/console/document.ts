import type { AssetFiles } from '#api/pages/asset-files.ts'
import { type Html, html } from '#api/pages/html.ts'

/** The page frame of the console. */
export function adminDocument(page: {
  readonly title: string
  /** The relative path to the root of the service. */
  readonly root: string
  readonly assets: AssetFiles
  readonly main: Html
  /** The right side of the top bar. */
  readonly bar?: Html
  readonly script?: string
  /** The links to the other pages, beside the content. */
  readonly navigation?: Html
}): string {
  const base = `${page.root}admin/assets/${page.assets.version}`
  const script =
    page.script === undefined
      ? ''
      : html`<script type="module" src="${base}/${page.script}"></script>`
  return html`<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="robots" content="noindex">
    <title>${page.title} – Millrace</title>
    <link rel="icon" href="${base}/icon.svg" type="image/svg+xml">
    <link rel="stylesheet" href="${base}/base.css">
    <link rel="stylesheet" href="${base}/uplot.css">
    <link rel="stylesheet" href="${base}/admin.css">
    ${script}
  </head>
  <body>
    <a class="skip" href="#main">Skip to the content</a>
    <header class="bar">
      <a class="brand" href="${page.root}admin"><img src="${base}/icon.svg" alt="">Millrace <small>Administration</small></a>
      <nav aria-label="Pages">${page.bar}</nav>
    </header>
    <div class="${page.navigation === undefined ? '' : 'console'}">
    ${page.navigation}
    <main id="main">${page.main}
    </main>
    </div>
  </body>
</html>
`.toString()
}
