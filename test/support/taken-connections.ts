/** Loaded into a tier with `--import`: writes the client's port of every connection it takes in. */
import { subscribe } from 'node:diagnostics_channel'
import { appendFileSync } from 'node:fs'
import type { Socket } from 'node:net'

const file = process.env.TAKEN_CONNECTIONS ?? ''

subscribe('net.server.socket', (message) => {
  const { socket } = message as { socket: Socket }
  appendFileSync(file, `${socket.remotePort}\n`)
})
