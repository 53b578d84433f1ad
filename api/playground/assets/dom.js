/**
 * The page's element with an id.
 * @template {HTMLElement} T
 * @param {string} id @param {new () => T} type @returns {T}
 */
export function byId(id, type) {
  const found = document.getElementById(id)
  if (found instanceof type) return found
  throw new Error(`the page has no ${type.name} #${id}`)
}

/**
 * The first descendant that matches a selector.
 * @template {HTMLElement} T
 * @param {ParentNode} root @param {string} selector @param {new () => T} type @returns {T}
 */
export function within(root, selector, type) {
  const found = root.querySelector(selector)
  if (found instanceof type) return found
  throw new Error(`the page has no ${type.name} ${selector}`)
}

/**
 * Creates an element. Strings become text nodes: output of models and users never becomes markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, string>} attributes @param {(string | Node)[]} content
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, attributes = {}, ...content) {
  const made = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  made.append(...content)
  return made
}

/**
 * An entry of a list by its score from 0 to 1.
 * @param {number} score @param {(string | Node)[]} content
 */
export function scoredEntry(score, ...content) {
  const value = `${Math.max(0, score)}`
  const meter = element('meter', { min: '0', max: '1', value, 'aria-hidden': 'true' })
  return element(
    'li',
    {},
    element('span', { class: 'score' }, score.toFixed(3), meter),
    element('span', {}, ...content),
  )
}

/** Shows a sentence, or hides its element. @param {HTMLElement} place @param {string} text */
export function say(place, text) {
  place.textContent = text
  place.hidden = text === ''
}
