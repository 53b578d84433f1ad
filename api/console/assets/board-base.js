// The board assumes that its base is a path of the host, but a proxy may serve it below another
// path.
const base = /** @type {HTMLBaseElement} */ (document.querySelector('base'))
base.setAttribute('href', new URL(base.href).pathname)
