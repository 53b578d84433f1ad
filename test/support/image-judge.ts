/** One flat-coloured thing of an image; centre as fractions of the sides. */
export interface ImageThing {
  readonly colour: string
  /** `?` where no template fits. */
  readonly shape: string
  readonly x: number
  readonly y: number
}

/** The expected content of an image. */
export interface ImageScene {
  readonly background: string
  readonly things: readonly { readonly colour: string; readonly shape: string }[]
  readonly relation: string | null
}

interface Rgb {
  readonly data: Uint8Array | Uint8ClampedArray
  readonly width: number
  readonly height: number
}

/** Pixels of one connected thing. */
type Region = readonly number[]

const BACKGROUNDS = { white: [250, 250, 250], black: [12, 12, 12], grey: [128, 128, 128] }
const COLOURS = {
  red: [214, 40, 40],
  green: [46, 160, 67],
  blue: [40, 90, 220],
  yellow: [250, 210, 40],
  purple: [140, 60, 190],
  orange: [245, 130, 30],
  cyan: [40, 190, 210],
  pink: [250, 120, 180],
}
const NAMES = [...Object.keys(BACKGROUNDS), ...Object.keys(COLOURS)]
const PALETTE = [...Object.values(BACKGROUNDS), ...Object.values(COLOURS)]
const GROUNDS = Object.keys(BACKGROUNDS).length
const SMALLEST = 0.012 // of the image's area; less is noise
const OVERLAP_MIN = 0.7 // common area by joint area; a shape with less counts as another

/** Whether a point lies inside of a shape of radius one around the origin; y grows downwards. */
const SHAPES: Readonly<Record<string, (x: number, y: number) => boolean>> = {
  circle: (x, y) => Math.hypot(x, y) < 1,
  square: (x, y) => Math.max(Math.abs(x), Math.abs(y)) < 0.9,
  triangle: (x, y) => Math.max(0.866 * x - 0.5 * y - 0.5, -0.866 * x - 0.5 * y - 0.5, y - 0.75) < 0,
  star: (x, y) => {
    const part = (2 * Math.PI) / 5
    const angle = Math.atan2(x, -y) + part / 2
    const folded = Math.abs(angle - Math.floor(angle / part) * part - part / 2)
    const radius = Math.hypot(x, y)
    return radius * Math.cos(folded) + radius * Math.sin(folded) * 1.38 < 1.05
  },
}
const UNITS = Object.entries(SHAPES).map(([shape, isInside]) => ({
  shape,
  isInside,
  ...measure(isInside),
}))

/** Area and centre of a shape of radius one. */
function measure(isInside: (x: number, y: number) => boolean) {
  const step = 0.01
  let [count, sumX, sumY] = [0, 0, 0]
  for (let y = -1.6; y < 1.6; y += step) {
    for (let x = -1.6; x < 1.6; x += step) {
      if (!isInside(x, y)) continue
      count++
      sumX += x
      sumY += y
    }
  }
  return { area: count * step * step, x: sumX / count, y: sumY / count }
}

/**
 * Background and things of an image, by nearest palette colour, connection and overlap with
 * templates.
 */
export function readImage(image: Rgb): {
  background: string
  things: readonly ImageThing[]
} {
  const { width, height } = image
  const labels = labelPixels(image)
  const edge = labels.filter((_, at) => isEdge(at, width, height))
  const ground = commonest(edge)
  const isThing = open(
    Array.from(labels, (label) => label !== ground),
    width,
  )
  const regions = connect(isThing, width).filter(
    (region) => region.length >= width * height * SMALLEST,
  )
  return {
    background: NAMES[ground] as string,
    things: regions.map((region) => {
      const isInside = maskOf(region, labels.length)
      const core = region.filter((at) => neighbours(at, width).every((near) => isInside[near]))
      const votes = (core.length > 0 ? core : region).map((at) => labels[at] as number)
      const colour = NAMES[commonest(votes.filter((label) => label >= GROUNDS))] ?? '?'
      const x = mean(region.map((at) => at % width))
      const y = mean(region.map((at) => Math.floor(at / width)))
      return { colour, shape: nameShape(region, width, x, y), x: x / width, y: y / height }
    }),
  }
}

/** Which properties of the scene an image has; `relation` only where the scene has one. */
export function judgeImage(image: Rgb, scene: ImageScene): Record<string, boolean> {
  const { background, things } = readImage(image)
  const found = {
    background: background === scene.background,
    count: things.length === scene.things.length,
    colour: isSameBag(things, scene.things, 'colour'),
    shape: isSameBag(things, scene.things, 'shape'),
  }
  if (scene.relation === null) return found
  const [asked, other] = scene.things
  const first = things.find(({ colour }) => colour === asked?.colour)
  const second = things.find((thing) => thing.colour === other?.colour && thing !== first)
  if (first === undefined || second === undefined) return { ...found, relation: false }
  const isAcross = scene.relation === 'left of' || scene.relation === 'right of'
  const isBefore = isAcross ? first.x < second.x : first.y < second.y
  const wantsBefore = scene.relation === 'left of' || scene.relation === 'above'
  return { ...found, relation: isBefore === wantsBefore || asked?.colour === other?.colour }
}

function labelPixels({ data, width, height }: Rgb): Uint8Array {
  const channels = data.length / (width * height)
  return Uint8Array.from({ length: width * height }, (_, at) => {
    const distances = PALETTE.map((colour) =>
      colour.reduce((sum, value, c) => sum + (value - (data[at * channels + c] as number)) ** 2, 0),
    )
    return distances.indexOf(Math.min(...distances))
  })
}

function isEdge(at: number, width: number, height: number): boolean {
  const [x, y] = [at % width, Math.floor(at / width)]
  return x === 0 || y === 0 || x === width - 1 || y === height - 1
}

function commonest(values: Iterable<number>): number {
  const counts = new Map<number, number>()
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1)
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? -1
}

/** The pixels above, below, left and right, -1 beyond the border. */
function neighbours(at: number, width: number): number[] {
  const x = at % width
  return [at - width, at + width, x > 0 ? at - 1 : -1, x < width - 1 ? at + 1 : -1]
}

/** Erosion, then dilation: takes single pixels away. */
function open(mask: readonly boolean[], width: number): boolean[] {
  const eroded = mask.map((is, at) => is && neighbours(at, width).every((near) => mask[near]))
  return eroded.map((is, at) => is || neighbours(at, width).some((near) => eroded[near]))
}

function connect(mask: readonly boolean[], width: number): Region[] {
  const left = new Set(mask.flatMap((is, at) => (is ? [at] : [])))
  const regions: Region[] = []
  for (const seed of left) {
    const region = [seed]
    left.delete(seed)
    for (const at of region) {
      for (const near of neighbours(at, width)) if (left.delete(near)) region.push(near)
    }
    regions.push(region)
  }
  return regions
}

function maskOf(region: Region, length: number): boolean[] {
  const mask = new Array<boolean>(length).fill(false)
  for (const at of region) mask[at] = true
  return mask
}

/** The template of equal area and centre with the best overlap. */
function nameShape(region: Region, width: number, x: number, y: number): string {
  const inside = new Set(region)
  let [best, name] = [OVERLAP_MIN, '?']
  for (const unit of UNITS) {
    const radius = Math.sqrt(region.length / unit.area)
    const [centreX, centreY] = [x - unit.x * radius, y - unit.y * radius]
    let [common, size] = [0, 0]
    for (let at = 0; at < width * width; at++) {
      const [dx, dy] = [(at % width) - centreX, Math.floor(at / width) - centreY]
      if (!unit.isInside(dx / radius, dy / radius)) continue
      size++
      if (inside.has(at)) common++
    }
    const overlap = common / (size + region.length - common)
    if (overlap > best) [best, name] = [overlap, unit.shape]
  }
  return name
}

function isSameBag(
  things: ImageScene['things'],
  wanted: ImageScene['things'],
  key: 'colour' | 'shape',
): boolean {
  const sorted = (list: ImageScene['things']) => list.map((thing) => thing[key]).sort()
  return sorted(things).join() === sorted(wanted).join()
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length
}
