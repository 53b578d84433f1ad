/** Steps and guidance of an image when the request sets none. */
export interface StepDefaults {
  readonly steps: number
  readonly guidance: number
}

interface DefaultsRow extends StepDefaults {
  fits(scheduler: Record<string, unknown>, isXl: boolean): boolean
}

const EULER = ['EulerDiscreteScheduler', 'EulerAncestralDiscreteScheduler']

// Distilled models need few steps and were trained without guidance (Luo et al. 2023; Sauer et al.
// 2023).
const ROWS: readonly DefaultsRow[] = [
  {
    fits: ({ _class_name: name }) => name === 'LCMScheduler' || name === 'TCDScheduler',
    steps: 4,
    guidance: 1,
  },
  {
    fits: ({ _class_name: name, timestep_spacing: spacing }) =>
      EULER.includes(String(name)) && spacing === 'trailing',
    steps: 4,
    guidance: 1,
  },
  // Podell et al. 2023 use 5.
  { fits: (_scheduler, isXl) => isXl, steps: 25, guidance: 5 },
  { fits: () => true, steps: 20, guidance: 7.5 },
]

// The guidance input of distilled models that have one.
const EMBEDDED_GUIDANCE = 8.5

/** The defaults for a scheduler's configuration. */
export function defaultsFor(
  scheduler: Record<string, unknown>,
  { takesGuidance, isXl }: { readonly takesGuidance: boolean; readonly isXl: boolean },
): StepDefaults {
  const { steps, guidance } = ROWS.find((row) => row.fits(scheduler, isXl)) as DefaultsRow
  return { steps, guidance: takesGuidance ? EMBEDDED_GUIDANCE : guidance }
}

/** The sinusoidal embedding of a guidance scale (Luo et al. 2023, after Ho and Salimans 2022). */
export function embedGuidance(guidance: number, width: number): Float32Array {
  const half = width / 2
  const embedding = new Float32Array(width)
  for (let i = 0; i < half; i++) {
    const angle = (guidance - 1) * 1000 * Math.exp((-Math.log(10_000) * i) / (half - 1))
    embedding[i] = Math.sin(angle)
    embedding[half + i] = Math.cos(angle)
  }
  return embedding
}
