// Someone who asks over a socket of their own, and may hang up whenever they like.

import { once } from 'node:events'
import { connect } from 'node:net'
import { until } from './books.mjs'

export class Asker {
  text = ''

  /** Sends a POST. */
  static async post(url, path, headers, body) {
    const { hostname, port } = new URL(url)
    const asker = new Asker()
    asker.socket = connect(Number(port), hostname)
    await once(asker.socket, 'connect')
    asker.socket.on('data', (piece) => (asker.text += piece.toString('latin1')))
    asker.socket.on('error', () => {})
    const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
    const all = { host: hostname, 'content-type': 'application/json', 'content-length': bytes.length, ...headers }
    const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    asker.socket.write(`POST ${path} HTTP/1.1\r\n${head.join('')}\r\n`)
    asker.socket.write(bytes)
    return asker
  }

  async sees(text) {
    await until(() => this.text.includes(text))
  }

  hangUp() {
    this.socket.destroy()
  }
}
