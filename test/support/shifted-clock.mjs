// Preloaded into a process: its wall clock is wrong by CLOCK_SHIFT_MS, and SIGUSR2 sets it right.
const now = Date.now
let shiftMs = Number(process.env.CLOCK_SHIFT_MS ?? 0)
Date.now = () => now() + shiftMs
process.on('SIGUSR2', () => {
  shiftMs = 0
})
