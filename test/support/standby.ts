import { execFileSync } from 'node:child_process'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { Client } from 'pg'

import { startPostgres } from '#launcher/embedded/postgres.ts'

import { eventually } from './queue.ts'

type Server = Awaited<ReturnType<typeof startPostgres>>

const PASSWORD = 'test'

/** A primary and a streaming replica of it. */
export interface StandbyPair {
  readonly primary: Server
  /** The replica that runs at the moment. */
  standby(): Server
  /** Replays nothing of what the primary writes from now on. */
  pauseReplay(): Promise<void>
  resumeReplay(): Promise<void>
  stopStandby(): Promise<void>
  /** Starts it again at the same port. */
  restartStandby(): Promise<void>
  stop(): Promise<void>
}

/** Starts a primary and its streaming replica, from a copy of the stopped primary's data. */
export async function startStandbyPair(folder: string): Promise<StandbyPair> {
  const [from, to] = [join(folder, 'primary'), join(folder, 'standby')]
  const source = await stoppedDataOf(from)
  const target = await stoppedDataOf(to)
  await rm(target, { recursive: true })
  execFileSync('cp', ['-a', source, target])
  // A copy belongs to the owner of the data, also where that is another user.
  execFileSync('cp', ['-a', join(target, 'PG_VERSION'), join(target, 'standby.signal')])
  await writeFile(join(target, 'standby.signal'), '')
  const primary = await startPostgres(from, { password: PASSWORD })
  const { port } = new URL(primary.url)
  const settings = {
    primary_conninfo: `host=127.0.0.1 port=${port} user=millrace password=${PASSWORD}`,
  }
  let standby = await startPostgres(to, { password: PASSWORD, settings })
  const standbyPort = Number(new URL(standby.url).port)
  return {
    primary,
    standby: () => standby,
    async pauseReplay() {
      await runOn(standby.url, 'select pg_wal_replay_pause()')
      await eventually(async () => {
        const [row] = await runOn(standby.url, 'select pg_get_wal_replay_pause_state() as state')
        return (row as { readonly state: string }).state === 'paused'
      })
    },
    resumeReplay: async () => void (await runOn(standby.url, 'select pg_wal_replay_resume()')),
    stopStandby: () => standby.stop(),
    async restartStandby() {
      standby = await startPostgres(to, { password: PASSWORD, settings, port: standbyPort })
    },
    async stop() {
      await standby.stop()
      await primary.stop()
    },
  }
}

/** Runs a statement on a server. */
export async function runOn(url: string, statement: string): Promise<readonly unknown[]> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(statement)).rows
  } finally {
    await client.end()
  }
}

async function stoppedDataOf(folder: string): Promise<string> {
  const server = await startPostgres(folder, { password: PASSWORD })
  const [row] = await runOn(server.url, 'show data_directory')
  await server.stop()
  return (row as { readonly data_directory: string }).data_directory
}
