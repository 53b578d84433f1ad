import { join } from 'node:path'

const MODELS = join(import.meta.dirname, '../../models')
const FIXTURES = join(import.meta.dirname, '../fixtures')

/** Catalogue entries of the shipped text and embedding models, under plain names. */
export const TEXT_MODELS = [
  {
    id: 'chat',
    kind: 'completion',
    source: join(MODELS, 'tiny-chat'),
    capabilities: ['chat', 'completion', 'edit', 'search'],
  },
  { id: 'embed', kind: 'embedding', source: join(MODELS, 'tiny-embed') },
]

/** An image model of random weights, which draws at once. */
export const IMAGE_MODEL = {
  id: 'images',
  kind: 'image',
  source: join(FIXTURES, 'models/stable-diffusion'),
}
