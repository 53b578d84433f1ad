import { Problem } from './problem.js'

/** The longest recording that fits into a request. */
const SECONDS_MAX = 600
/** Formats that browsers can record and the server can read, the smallest first. */
const TYPES = [
  { type: 'audio/webm;codecs=opus', name: 'recording.webm' },
  { type: 'audio/ogg;codecs=opus', name: 'recording.ogg' },
  { type: 'audio/mp4', name: 'recording.m4a' },
]

/** Records from the microphone. @param {{ onTime: (seconds: number) => void }} options */
export function createRecorder({ onTime }) {
  /** @type {MediaRecorder | undefined} */
  let recorder
  let isRecording = false
  let isStopped = false
  return {
    /** Set from the start, also while the browser asks for permission. */
    get isRecording() {
      return isRecording
    },
    stop: () => {
      isStopped = true
      if (recorder?.state === 'recording') recorder.stop()
    },
    /** Resolves with the recording when it is stopped. @returns {Promise<File>} */
    async record() {
      isRecording = true
      isStopped = false
      try {
        return await listen()
      } finally {
        isRecording = false
      }
    },
  }

  async function listen() {
    if (navigator.mediaDevices === undefined) {
      throw new Problem(
        'Browsers only give the microphone to pages served over HTTPS or from this machine.',
      )
    }
    const chosen = TYPES.find(({ type }) => MediaRecorder.isTypeSupported(type))
    if (chosen === undefined)
      throw new Problem('This browser cannot record in a form that is understood here.')
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).catch(() => {
      throw new Problem('The microphone was not allowed, or there is none.')
    })
    try {
      if (isStopped) throw new Problem('Nothing was recorded.')
      const made = new MediaRecorder(stream, { mimeType: chosen.type })
      recorder = made
      return new File(await piecesOf(made, onTime), chosen.name, { type: chosen.type })
    } finally {
      recorder = undefined
      for (const track of stream.getTracks()) track.stop()
    }
  }
}

/**
 * @param {MediaRecorder} recorder @param {(seconds: number) => void} onTime @returns
 * {Promise<Blob[]>}
 */
function piecesOf(recorder, onTime) {
  /** @type {Blob[]} */
  const pieces = []
  let seconds = 0
  onTime(seconds)
  const timer = setInterval(() => {
    seconds += 1
    onTime(seconds)
    if (seconds >= SECONDS_MAX) recorder.stop()
  }, 1000)
  return new Promise((resolve, reject) => {
    recorder.addEventListener('dataavailable', ({ data }) => pieces.push(data))
    recorder.addEventListener('stop', () => {
      clearInterval(timer)
      resolve(pieces)
    })
    recorder.addEventListener('error', () => {
      clearInterval(timer)
      reject(new Problem('The recording broke off.'))
    })
    recorder.start()
  })
}
