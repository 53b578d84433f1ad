import { readFileSync } from 'node:fs'

const TICKS_PER_SECOND = 100 // of /proc, the same on every Linux

/** User and system time of a process since it began, in milliseconds. Linux alone. */
export function cpuMsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  // After the name in parentheses, which may hold spaces, come the fields from the third on.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return ((Number(fields[11]) + Number(fields[12])) * 1000) / TICKS_PER_SECOND
}

/** Memory of a process that is in use, in MiB. Linux alone. */
export function residentMib(pid: number): number {
  const kib = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Number(kib ?? 0) / 1024
}
