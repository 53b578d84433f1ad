import { createRequire } from 'node:module'

import type { PackageFile } from '#api/pages/asset-files.ts'

const { resolve } = createRequire(import.meta.url)

/** The packages of the console's pages: components, templates and charts. */
export function findComponentFiles(): readonly PackageFile[] {
  const uplot = resolve('uplot/package.json').replace(/package\.json$/, 'dist/')
  const htm = resolve('htm').replace(/[^/]*$/, '')
  return [
    { specifier: 'preact', name: 'preact.js', path: resolve('preact') },
    { specifier: 'preact/hooks', name: 'preact-hooks.js', path: resolve('preact/hooks') },
    { specifier: 'htm', name: 'htm.js', path: `${htm}htm.module.js` },
    { specifier: 'uplot', name: 'uplot.js', path: `${uplot}uPlot.esm.js` },
    { specifier: 'uplot/css', name: 'uplot.css', path: `${uplot}uPlot.min.css` },
  ]
}
