import { send } from './api.js'
import { byId, element, say } from './dom.js'
import { inWords } from './problem.js'

/** @typedef {{ id: string, organization_name: string, role: string }} Invitation */

/**
 * Shows the open invitations of the signed-in user. Joining takes this explicit choice: the link of
 * an invitation only signs in.
 */
export async function showInvitations() {
  const place = byId('invitations', HTMLElement)
  const response = await send({ path: '/v1/invitations' })
  /** @type {{ data: Invitation[] }} */
  const { data } = await response.json()
  place.replaceChildren(...data.map(cardOf))
  place.hidden = data.length === 0
}

/** @param {Invitation} invitation */
function cardOf({ id, organization_name: name, role }) {
  const result = element('p', { role: 'status' })
  result.hidden = true
  const buttons = [buttonOf('Accept', 'accept'), buttonOf('Decline', 'decline')]
  const row = element('div', { class: 'row' }, ...buttons)
  const text = element(
    'p',
    {},
    'You are invited to join ',
    element('b', {}, element('bdi', {}, name)),
    ` as ${role}.`,
  )
  return element('div', { class: 'card stack' }, text, row, result)

  /** @param {string} label @param {'accept' | 'decline'} choice */
  function buttonOf(label, choice) {
    const button = element('button', { type: 'button' }, label)
    button.addEventListener('click', async () => {
      for (const each of buttons) each.disabled = true
      try {
        await send({ path: `/v1/invitations/${encodeURIComponent(id)}/${choice}`, json: {} })
        row.remove()
        say(result, choice === 'accept' ? 'You have joined.' : 'You have declined.')
      } catch (error) {
        for (const each of buttons) each.disabled = false
        say(result, inWords(error))
      }
    })
    return button
  }
}
