import { render } from 'preact'

import { html, place } from './ui.js'

// Fills a page of the console: its file says which sections it has.

const { element, name } = place
const { sections } = await import(`./page-${name}.js`)
element.querySelector('[role=status]')?.remove()
const content = document.createElement('div')
content.className = 'stack'
element.append(content)
render(html`${sections()}`, content)
