// The board takes the base of its page for a path of the host, and is asked for below any.
const base = /** @type {HTMLBaseElement} */ (document.querySelector('base'))
base.setAttribute('href', new URL(base.href).pathname)
