import { ModelLoadError } from './errors.ts'
import type { Pointer } from './native.ts'
import { callForPointer, check, type Native } from './native.ts'

/** The device that a model runs on. */
export type ExecutionProvider = 'cpu' | 'cuda'

/** Options for loading a model. */
export interface SessionOptions {
  /** Threads of one run; 0 means one per core. */
  readonly intraOpThreads?: number
  readonly executionProvider?: ExecutionProvider
  readonly graphOptimization?: 'none' | 'basic' | 'extended' | 'all'
  /**
   * Whether matrices are also held in the layout of their products: faster for few rows, but twice
   * the memory. True if absent.
   */
  readonly prepacksWeights?: boolean
  /** Whether products of quantized tensors become products of integers. True if absent. */
  readonly fusesQuantization?: boolean
}

const OPTIMIZATION_LEVELS = { none: 0, basic: 1, extended: 2, all: 99 } as const

/** ONNX Runtime settings of every session, each with its reason. */
const CONFIG_ENTRIES = {
  // Threads spin between the operators of a run, but not between runs: an idle worker costs
  // nothing.
  'session.force_spinning_stop': '1',
} as const

const DATA_FOLDER_ENTRY = 'session.model_external_initializers_file_folder_path'

/** Builds native session options; the caller releases them. */
export function createSessionOptions(
  native: Native,
  providers: readonly string[],
  { file, dataFolder }: { readonly file: string; readonly dataFolder: string | undefined },
  options: SessionOptions,
): Pointer {
  const { library } = native
  const handle = callForPointer(library, 'createSessionOptions')
  try {
    check(library, library.setIntraOpNumThreads(handle, options.intraOpThreads ?? 0))
    check(library, library.setInterOpNumThreads(handle, 1))
    const level = OPTIMIZATION_LEVELS[options.graphOptimization ?? 'all']
    check(library, library.setGraphOptimizationLevel(handle, level))
    // Shapes change with every step; a cached memory plan for each would only grow.
    check(library, library.disableMemPattern(handle))
    const entries = {
      ...CONFIG_ENTRIES,
      ...(dataFolder && { [DATA_FOLDER_ENTRY]: dataFolder }),
      ...(options.prepacksWeights === false && { 'session.disable_prepacking': '1' }),
      ...(options.fusesQuantization === false && { 'session.disable_quant_qdq': '1' }),
    }
    for (const [key, value] of Object.entries(entries)) {
      check(library, library.addSessionConfigEntry(handle, key, value))
    }
    if (options.executionProvider === 'cuda') appendCuda(native, handle, providers, file)
    return handle
  } catch (error) {
    library.releaseSessionOptions(handle)
    throw error instanceof ModelLoadError
      ? error
      : new ModelLoadError(file, (error as Error).message)
  }
}

function appendCuda(
  native: Native,
  handle: Pointer,
  providers: readonly string[],
  file: string,
): void {
  const { library } = native
  try {
    if (!providers.includes('CUDAExecutionProvider')) {
      throw new Error(`this library offers ${providers.join(', ')}`)
    }
    const cuda = callForPointer(library, 'createCudaOptions')
    try {
      check(library, library.appendCuda(handle, cuda))
    } finally {
      library.releaseCudaOptions(cuda)
    }
  } catch (error) {
    throw new ModelLoadError(
      file,
      `the execution provider cuda is not available (${(error as Error).message}); it needs an NVIDIA ` +
        'driver and onnxruntime-node installed with ONNXRUNTIME_NODE_INSTALL=cuda12',
    )
  }
}
