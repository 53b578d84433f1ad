import { type Http, runJob } from '#api/jobs/run-inference.ts'
import { callerOf } from '#api/v1/request-context.ts'
import type { CatalogueModel } from '#shared/catalogue.ts'
import type { CompletionResult, TokenizeInput } from '#shared/contracts/completion.ts'

import { type RequestImages, requireVision, withImages } from './request-images.ts'
import type { InferenceServices } from './services.ts'

/** A prompt to tokenize, and its images. */
interface TokenizeRequest
  extends Pick<TokenizeInput, 'prompt'>,
    Partial<Pick<TokenizeInput, 'addSpecialTokens' | 'withTexts'>> {
  readonly model: CatalogueModel
  readonly images: RequestImages
}

/** The tokens of a prompt as the model reads it. No text is generated or charged. */
export async function tokenizePrompt(
  http: Http,
  services: InferenceServices,
  request: TokenizeRequest,
): Promise<Extract<CompletionResult, { readonly task: 'tokenize' }>> {
  const { model, images, prompt, addSpecialTokens = false, withTexts = false } = request
  requireVision(model, images)
  const input: TokenizeInput = { task: 'tokenize', prompt, addSpecialTokens, withTexts }
  const { organizationId } = callerOf(http.request)
  const { result } = await withImages(services, { images, organizationId }, () => {
    return runJob(http, services, { kind: 'completion', model, input })
  })
  if (result.task !== 'tokenize') throw new Error('a prompt was answered with something else')
  return result
}
