import { connect, type Socket } from 'node:net'

// Connections that begin a request and never end it, a byte a second. Arguments: address, how many.
const [url = '', count = ''] = process.argv.slice(2)
const { hostname, port } = new URL(url)
const AT_ONCE = 50
const HEAD = 'POST /v1/embeddings HTTP/1.1\r\nhost: a\r\nx-slow: '

const sockets = new Set<Socket>()
while (sockets.size < Number(count)) {
  await Promise.all(Array.from({ length: AT_ONCE }, open))
}
setInterval(() => {
  for (const socket of sockets) socket.write('a')
}, 1000)
process.stdout.write('ready half-open\n')

// One that the server ends is opened anew: there are always as many.
async function open(): Promise<void> {
  const socket = connect(Number(port), hostname)
  socket.on('error', () => {})
  await new Promise((resolve) => socket.once('connect', resolve).once('close', resolve))
  socket.write(HEAD)
  sockets.add(socket)
  socket.once('close', () => {
    sockets.delete(socket)
    setTimeout(() => void open(), 100)
  })
}
