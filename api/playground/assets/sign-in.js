import { byId, element, say, within } from './dom.js'
import { addressOf, ROOT } from './place.js'
import { inWords, Problem } from './problem.js'
import { askUsers, current, signInAs, userOf } from './session.js'

/** The URL of this page, to which links in mails lead. */
const HERE = encodeURIComponent(ROOT)

/**
 * The sign-in forms.
 * @param {{ onSignedIn: () => void }} page
 */
export function createSignIn({ onSignedIn }) {
  const card = byId('sign-in-card', HTMLElement)
  const problem = byId('sign-in-problem', HTMLElement)
  const notice = byId('sign-in-notice', HTMLElement)
  const keyForm = byId('key-form', HTMLFormElement)
  const emailForm = byId('email-form', HTMLFormElement)
  const passwordForm = byId('new-password-form', HTMLFormElement)
  const choice = within(card, '.choice', HTMLElement)
  const key = byId('key', HTMLInputElement)
  const email = byId('email', HTMLInputElement)
  let hasAsked = false

  /** @param {boolean} byEmail */
  function choose(byEmail) {
    byId('choose-key', HTMLElement).setAttribute('aria-pressed', String(!byEmail))
    byId('choose-email', HTMLElement).setAttribute('aria-pressed', String(byEmail))
    keyForm.hidden = byEmail
    emailForm.hidden = !byEmail
    if (byEmail && !hasAsked) {
      hasAsked = true
      void showProviders()
    }
  }

  byId('choose-key', HTMLElement).addEventListener('click', () => choose(false))
  byId('choose-email', HTMLElement).addEventListener('click', () => choose(true))
  onSubmit(keyForm, async () => {
    signInAs(
      { kind: 'key', key: key.value.trim() },
      { stays: byId('key-stays', HTMLInputElement).checked },
    )
    key.value = ''
    onSignedIn()
  })
  onSubmit(emailForm, async (action) => {
    const said = await ACTIONS[action]?.(
      email.value.trim(),
      byId('password', HTMLInputElement).value,
    )
    if (typeof said === 'string') return say(notice, said)
    if (said === undefined) return
    signInAs(userOf(said), { stays: byId('user-stays', HTMLInputElement).checked })
    byId('password', HTMLInputElement).value = ''
    onSignedIn()
  })
  onSubmit(passwordForm, async () => {
    const known = current()
    if (known?.kind !== 'user') throw new Problem('The link has expired. Ask for another one.')
    const body = { password: byId('new-password', HTMLInputElement).value }
    await askUsers('/user', { method: 'PUT', body, accessToken: known.accessToken })
    onSignedIn()
  })

  return {
    /** @param {string} [text] */
    show(text = '') {
      card.hidden = false
      passwordForm.hidden = true
      choice.hidden = false
      choose(!emailForm.hidden)
      say(notice, '')
      say(problem, text)
    },
    hide() {
      card.hidden = true
    },
    /** Shown after a recovery link. */
    askNewPassword() {
      card.hidden = false
      keyForm.hidden = true
      emailForm.hidden = true
      choice.hidden = true
      passwordForm.hidden = false
      byId('new-password', HTMLInputElement).focus()
    },
  }

  /** @param {HTMLFormElement} form @param {(action: string) => Promise<void>} work */
  function onSubmit(form, work) {
    form.addEventListener('submit', async (event) => {
      event.preventDefault()
      const button = event.submitter instanceof HTMLButtonElement ? event.submitter : undefined
      say(problem, '')
      say(notice, '')
      for (const each of form.querySelectorAll('button')) each.disabled = true
      try {
        await work(button?.value ?? '')
      } catch (error) {
        say(problem, inWords(error))
      } finally {
        for (const each of form.querySelectorAll('button')) each.disabled = false
      }
    })
  }
}

/**
 * The action of each button: tokens, or a message.
 * @type {Record<string, (email: string, password: string) => Promise<string |
 * import('./session.js').Tokens>>}
 */
const ACTIONS = {
  password(email, password) {
    if (password === '') throw new Problem('Enter your password, or ask for a link.')
    return askUsers('/token?grant_type=password', { body: { email, password } })
  },
  async signup(email, password) {
    if (password === '') throw new Problem('Choose a password for the account.')
    const answer = await askUsers(`/signup?redirect_to=${HERE}`, { body: { email, password } })
    if (answer.access_token !== undefined) return answer
    return 'Look into your mail: the link there completes the account.'
  },
  async link(email) {
    await askUsers(`/otp?redirect_to=${HERE}`, { body: { email, create_user: true } })
    return 'Look into your mail: the link there signs you in.'
  },
  async recover(email) {
    await askUsers(`/recover?redirect_to=${HERE}`, { body: { email } })
    return 'If there is an account with this address, a link for a new password is on its way.'
  },
}

/** Links to the enabled providers; the sign-up form is hidden where sign-up is disabled. */
async function showProviders() {
  const settings = await askUsers('/settings', { method: 'GET' }).catch(() => undefined)
  if (settings === undefined) return
  byId('sign-up', HTMLElement).hidden = settings.disable_signup === true
  const names = Object.entries(settings.external)
    .filter(
      ([name, isOn]) => isOn === true && !['email', 'phone', 'anonymous_users'].includes(name),
    )
    .map(([name]) => name)
  const place = byId('providers', HTMLElement)
  place.hidden = names.length === 0
  place.replaceChildren(
    ...names.map((name) => {
      const query = `provider=${encodeURIComponent(name)}&redirect_to=${HERE}`
      const address = addressOf(`/auth/v1/authorize?${query}`)
      return element('a', { class: 'button compact', href: address }, `With ${name}`)
    }),
  )
}

/**
 * Reads the result of a link from the URL fragment and removes it from the URL at once.
 * @returns {{ tokens?: import('./session.js').Tokens, isRecovery?: boolean, problem?: string,
 * notice?: string }}
 */
export function takeLanding() {
  const fragment = new URLSearchParams(location.hash.slice(1))
  const query = new URLSearchParams(location.search)
  const problem = fragment.get('error_description') ?? query.get('error_description')
  const notice = fragment.get('message') ?? query.get('message')
  const accessToken = fragment.get('access_token')
  if (accessToken === null && problem === null && notice === null) return {}
  history.replaceState(null, '', location.pathname)
  if (problem !== null) return { problem: `${problem}.`.replace(/\.\.$/, '.') }
  if (accessToken === null) return { notice: notice ?? '' }
  return {
    isRecovery: fragment.get('type') === 'recovery',
    tokens: {
      access_token: accessToken,
      refresh_token: fragment.get('refresh_token') ?? '',
      expires_in: fragment.get('expires_in') ?? '0',
    },
  }
}
