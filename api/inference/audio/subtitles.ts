/** A line of subtitles; times in seconds. */
interface Cue {
  readonly start: number
  readonly end: number
  readonly text: string
}

/** SubRip: numbered blocks. */
export function subRip(cues: readonly Cue[]): string {
  return sayingSomething(cues)
    .map(
      ({ start, end, text }, index) =>
        `${index + 1}\n${timestamp(start, ',')} --> ${timestamp(end, ',')}\n${cueText(text)}\n\n`,
    )
    .join('')
}

/** WebVTT. */
export function webVtt(cues: readonly Cue[]): string {
  const blocks = sayingSomething(cues).map(
    ({ start, end, text }) =>
      `${timestamp(start, '.')} --> ${timestamp(end, '.')}\n${cueText(text)}\n\n`,
  )
  return `WEBVTT\n\n${blocks.join('')}`
}

// Many players refuse a block without text.
function sayingSomething(cues: readonly Cue[]): readonly Cue[] {
  return cues.filter(({ text }) => text.trim() !== '')
}

// An arrow or an empty line in a text would end its block.
function cueText(text: string): string {
  return text
    .trim()
    .replaceAll('-->', '->')
    .replaceAll(/\s*\n\s*/g, '\n')
}

function timestamp(seconds: number, point: ',' | '.'): string {
  const ms = Math.max(0, Math.round(seconds * 1000))
  const part = (unitMs: number, modulo: number, digits: number): string =>
    String(Math.floor(ms / unitMs) % modulo).padStart(digits, '0')
  const hours = String(Math.floor(ms / 3_600_000)).padStart(2, '0')
  return `${hours}:${part(60_000, 60, 2)}:${part(1000, 60, 2)}${point}${part(1, 1000, 3)}`
}
