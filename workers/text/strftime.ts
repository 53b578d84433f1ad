const MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September'],
  ...['October', 'November', 'December'],
] as const
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'] as const

/** The letters of Python's `strftime` that chat templates use, in English and UTC. */
const FIELDS: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getUTCFullYear()),
  y: (date) => twoDigits(date.getUTCFullYear() % 100),
  m: (date) => twoDigits(date.getUTCMonth() + 1),
  d: (date) => twoDigits(date.getUTCDate()),
  e: (date) => String(date.getUTCDate()).padStart(2, ' '),
  b: (date) => (MONTHS[date.getUTCMonth()] as string).slice(0, 3),
  B: (date) => MONTHS[date.getUTCMonth()] as string,
  a: (date) => (DAYS[date.getUTCDay()] as string).slice(0, 3),
  A: (date) => DAYS[date.getUTCDay()] as string,
  H: (date) => twoDigits(date.getUTCHours()),
  I: (date) => twoDigits(date.getUTCHours() % 12 || 12),
  M: (date) => twoDigits(date.getUTCMinutes()),
  S: (date) => twoDigits(date.getUTCSeconds()),
  p: (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM'),
  '%': () => '%',
}

/** Formats a time like Python's `strftime` in UTC; unknown letters are unchanged. */
export function strftime(format: string, epochMs: number): string {
  const date = new Date(epochMs)
  return format.replace(/%([a-zA-Z%])/g, (field, letter: string) => FIELDS[letter]?.(date) ?? field)
}

function twoDigits(value: number): string {
  return String(value).padStart(2, '0')
}
