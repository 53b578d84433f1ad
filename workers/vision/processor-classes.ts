import { type Json, numberOf, recordOf, sidesOf } from './processor-file.ts'

/**
 * Settings of an image processor under the names of CLIP's, whose classes differ in what their
 * files leave out. Throws an `Error` for unsupported settings.
 */
export function withUsualNames(processor: Json): Json {
  const type = String(processor.image_processor_type ?? processor.feature_extractor_type)
  const row = CLASSES.find(([prefix]) => prefix.test(type))
  return row === undefined ? processor : row[1](processor)
}

const CLASSES: readonly (readonly [RegExp, (processor: Json) => Json])[] = [
  [/^JinaCLIPImage/, fromJina],
  [/^ConvNext/, fromConvNext],
  [/^(DeiT|Beit)/, fromDeiT],
  [/^EfficientNet/, fromEfficientNet],
  [/^Levit/, fromLevit],
  [/^MobileViT/, fromMobileViT],
  [/^PoolFormer/, fromPoolFormer],
]

/** The side to which the shorter side of an image is resized. */
function shortestOf(processor: Json): number {
  const { size } = processor
  return typeof size === 'number' ? size : numberOf(recordOf(processor, 'size'), 'shortest_edge')
}

/** ConvNeXt crops the margins of images below a side of 384, and squeezes larger ones. */
function fromConvNext({ crop_pct: share, ...processor }: Json): Json {
  const side = shortestOf(processor)
  if (side >= 384) return { ...processor, size: side, do_center_crop: false }
  const shortest = Math.trunc(side / (typeof share === 'number' ? share : 224 / 256))
  return { ...processor, size: shortest, crop_size: side, do_center_crop: true }
}

/** A size that is one number means both sides here, and the shorter side elsewhere. */
function fromDeiT(processor: Json): Json {
  const { size } = processor
  return typeof size === 'number'
    ? { ...processor, size: { height: size, width: size } }
    : processor
}

/** Values may lie around zero, and are divided by the deviation twice for classifiers. */
function fromEfficientNet(processor: Json): Json {
  const { image_mean: mean, image_std: std } = processor
  const offset = processor.rescale_offset === true ? 1 : 0
  const power = processor.include_top === false ? 1 : 2
  if (!isNumbers(mean) || !isNumbers(std) || processor.do_normalize === false) return processor
  return {
    ...processor,
    do_center_crop: processor.do_center_crop === true,
    image_mean: mean.map((value) => value + offset),
    image_std: std.map((value) => value ** power),
  }
}

function isNumbers(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'number')
}

/** LeViT resizes to 256 pixels for each 224 that its file states. */
function fromLevit(processor: Json): Json {
  return { ...processor, size: Math.trunc((256 / 224) * shortestOf(processor)) }
}

/** MobileViT does not normalize and mostly reads blue first. */
function fromMobileViT(processor: Json): Json {
  return {
    ...processor,
    do_normalize: processor.do_normalize === true,
    do_flip_channel_order: processor.do_flip_channel_order !== false,
  }
}

/** PoolFormer crops a share of an image, as ConvNeXt does at any size. */
function fromPoolFormer({ crop_pct: share = 0.9, ...processor }: Json): Json {
  if (typeof share !== 'number') return processor
  const { width } = sidesOf(processor.size) ?? { width: shortestOf(processor) }
  return { ...processor, size: Math.trunc(width / share) }
}

function fromJina(processor: Json): Json {
  const { size, mean, std, resize_mode: mode, interpolation } = processor
  if (mode !== 'shortest' || interpolation !== 'bicubic') {
    throw new Error(
      'preprocessor_config.json: only "resize_mode": "shortest" and "interpolation": "bicubic" are supported',
    )
  }
  return { size, crop_size: size, image_mean: mean, image_std: std, resample: 3 }
}
