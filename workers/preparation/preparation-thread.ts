import { parentPort } from 'node:worker_threads'

import { systemClock } from '#shared/clock.ts'
import { ServiceError } from '#shared/errors.ts'
import { openImage, PROMPT_IMAGE_FORMATS } from '#workers/image/image-file.ts'
import type { ConstraintPlan } from '#workers/processors/constraint-plan.ts'
import { compileConstraint } from '#workers/processors/constraint-plan.ts'
import { toGrammarData } from '#workers/sampling/constraint/grammar-data.ts'
import { loadTextModel, readPromptSource, type TextModel } from '#workers/text/text-model.ts'
import { type PixelValues, pixelValues } from '#workers/vision/pixel-values.ts'

import type { PreparationTask, ThreadReply } from './preparation-task.ts'
import { WorkBudget } from './work-budget.ts'

parentPort?.on('message', async (task: PreparationTask) => {
  const reply = await prepare(task)
  parentPort?.postMessage(reply)
})

async function prepare(task: PreparationTask): Promise<ThreadReply> {
  try {
    if (task.kind === 'grammar') {
      const budget = new WorkBudget()
      const grammar = compileConstraint(JSON.parse(task.plan) as ConstraintPlan, budget)
      return { result: toGrammarData(grammar), steps: budget.used }
    }
    if (task.kind === 'image') return { result: await readPixels(task), steps: 0 }
    const budget = new WorkBudget(task.stepsMax)
    const model = await textModelOf(task.folder)
    const result = await readPromptSource(model, task.source, { ...task.options, budget })
    return { result, steps: budget.used }
  } catch (error) {
    if (!(error instanceof ServiceError)) return { failure: String(error) }
    const { message, param, code } = error
    return { refusal: { message, param: param ?? null, code: code ?? null } }
  }
}

async function readPixels({
  bytes,
  param,
  layout,
  settings,
}: Extract<PreparationTask, { readonly kind: 'image' }>): Promise<PixelValues> {
  const image = await openImage(Buffer.from(bytes), param, PROMPT_IMAGE_FORMATS)
  return pixelValues(await image.colours(), layout, settings)
}

let loaded: { readonly folder: string; readonly model: Promise<TextModel> } | undefined

/** A thread serves one model. */
function textModelOf(folder: string): Promise<TextModel> {
  if (loaded?.folder !== folder) loaded = { folder, model: loadTextModel(folder, systemClock) }
  return loaded.model
}
