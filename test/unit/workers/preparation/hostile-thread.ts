import { parentPort } from 'node:worker_threads'

/** Does what a plan names, in place of compiling it. */
parentPort?.on('message', ({ plan }: { readonly plan: string }) => {
  if (plan === 'hang') for (;;);
  if (plan === 'crash') throw new Error('a defect of the thread')
  if (plan === 'exit') process.exit(3)
  if (plan === 'reject') return void Promise.reject(new Error('a defect of the thread'))
  if (plan === 'fail') return parentPort?.postMessage({ failure: 'no such file' })
  if (plan === 'fill') {
    const held: unknown[] = []
    for (;;) held.push(Array.from({ length: 1000 }, (_, index) => ({ index })))
  }
  if (plan === 'refuse') {
    const refusal = { message: 'No.', param: 'tools', code: 'invalid_json_schema' }
    return parentPort?.postMessage({ refusal })
  }
  parentPort?.postMessage({ result: { nodes: [], deadEnds: [] }, steps: 7 })
})
