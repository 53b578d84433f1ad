import { createChat } from './chat.js'
import { createCompletion } from './completion.js'
import { curlOf } from './curl.js'
import { byId, say } from './dom.js'
import { createEmbedding } from './embedding.js'
import { createImages } from './images.js'
import { showInvitations } from './invitations.js'
import { loadModels } from './models.js'
import { createModeration } from './moderation.js'
import { addressOf } from './place.js'
import { inWords, Problem } from './problem.js'
import { current, onSignedOutElsewhere, signInAs, signOut, userOf } from './session.js'
import { createSignIn, takeLanding } from './sign-in.js'
import { createSpeech } from './speech.js'
import { createSynthesis } from './synthesis.js'
import { createTuning } from './tuning.js'

/** Doubles with each attempt, because requests count against the limit of the key. */
const LOOK_AGAIN_MS = 5000
const LOOK_AGAIN_MS_MAX = 80_000
const studio = byId('studio', HTMLElement)
const account = byId('account', HTMLElement)
const message = byId('message', HTMLElement)

const page = { onChange: showCurl, onSignedOut: leave, onModel: showNewModels }
const panels = [
  createChat,
  createCompletion,
  createEmbedding,
  createModeration,
  createSpeech,
  createSynthesis,
  createImages,
  createTuning,
].map((create) => create(page))
const signIn = createSignIn({ onSignedIn: enter })
const tabs = [
  .../** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[role="tab"]')),
]
let chosen = 'chat'
/** The user whose texts and images the panels contain. @type {string | undefined} */
let owner
/** @type {ReturnType<typeof setTimeout> | undefined} */
let waiting

wireTabs()
wireCurl()
byId('sign-out', HTMLButtonElement).addEventListener('click', () => {
  void signOut()
  startAfresh()
})
onSignedOutElsewhere(startAfresh)
start()

function start() {
  const landing = takeLanding()
  if (landing.tokens !== undefined) signInAs(userOf(landing.tokens), { stays: false })
  if (landing.notice !== undefined) say(message, landing.notice)
  if (landing.isRecovery) return signIn.askNewPassword()
  if (landing.problem !== undefined || current() === undefined) return signIn.show(landing.problem)
  void enter()
}

/** Shows the models once the server has accepted the credential. */
async function enter() {
  try {
    const models = await loadModels()
    const credential = current()
    const who = credential?.kind === 'user' ? credential.name : credential?.key
    // The next user must not see what the previous one left.
    if (owner !== undefined && owner !== who) return startAfresh()
    owner = who
    showModels(models)
    byId('account-name', HTMLElement).textContent =
      credential?.kind === 'user' ? credential.name : 'API key'
    signIn.hide()
    account.hidden = false
    studio.hidden = false
    choose(panels.some(({ id }) => `#${id}` === location.hash) ? location.hash.slice(1) : chosen)
    byId('main', HTMLElement).focus({ preventScroll: true })
    if (credential?.kind === 'user') await showInvitations()
  } catch (error) {
    // A refused key is removed; while the server is unavailable, it is kept.
    if (error instanceof Problem && error.status === 401) leave(inWords(error))
    else signIn.show(inWords(error))
  }
}

/**
 * Shows the models, and retries for a while when some are not loaded yet.
 * @param {readonly import('./models.js').Model[]} models
 */
function showModels(models, delayMs = LOOK_AGAIN_MS) {
  for (const panel of panels) panel.setModels(models)
  clearTimeout(waiting)
  if (delayMs > LOOK_AGAIN_MS_MAX || models.every(({ isReady }) => isReady)) return
  waiting = setTimeout(async () => {
    if (studio.hidden) return
    // A failure appears with the next request of the user.
    const found = await loadModels().catch(() => models)
    if (!studio.hidden) showModels(found, delayMs * 2)
  }, delayMs)
}

/** Shows a model that was made in this page. */
async function showNewModels() {
  showModels(await loadModels())
}

/** Reloads the page, which removes all texts, recordings and images. */
function startAfresh() {
  for (const form of document.forms) form.reset()
  location.reload()
}

/** Returns to the sign-in form. @param {string} [why] */
function leave(why = '') {
  if (current() !== undefined) void signOut()
  for (const panel of panels) panel.stop()
  studio.hidden = true
  account.hidden = true
  signIn.show(why)
}

function wireTabs() {
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener('click', () => choose(idOf(tab)))
    tab.addEventListener('keydown', (event) => {
      const last = tabs.length - 1
      /** @type {Record<string, number>} */
      const targets = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: last }
      const target = targets[event.key]
      if (target === undefined) return
      event.preventDefault()
      const next = tabs[(target + tabs.length) % tabs.length]
      if (next === undefined) return
      choose(idOf(next))
      next.focus()
    })
  }
}

/** @param {HTMLElement} tab */
function idOf(tab) {
  return tab.getAttribute('aria-controls') ?? ''
}

/** Opens a panel. @param {string} id */
function choose(id) {
  chosen = id
  for (const tab of tabs) {
    const isChosen = idOf(tab) === id
    tab.setAttribute('aria-selected', String(isChosen))
    tab.tabIndex = isChosen ? 0 : -1
    byId(idOf(tab), HTMLElement).hidden = !isChosen
    if (isChosen) tab.scrollIntoView({ block: 'nearest', inline: 'nearest' })
  }
  history.replaceState(null, '', `#${id}`)
  showCurl()
}

function showCurl() {
  const panel = panels.find(({ id }) => id === chosen)
  if (panel === undefined) return
  byId('curl', HTMLElement).hidden = !panel.isUsable()
  byId('curl-text', HTMLElement).textContent = curlOf(addressOf(''), panel.describe())
  say(byId('curl-state', HTMLElement), '')
}

function wireCurl() {
  byId('curl-copy', HTMLButtonElement).addEventListener('click', async () => {
    const text = byId('curl-text', HTMLElement)
    try {
      await navigator.clipboard.writeText(text.textContent ?? '')
      say(byId('curl-state', HTMLElement), 'Copied.')
    } catch {
      // Without HTTPS there is no clipboard, so the text is selected instead.
      getSelection()?.selectAllChildren(text)
      say(byId('curl-state', HTMLElement), 'Marked: copy it with your keyboard.')
    }
  })
}
