import { type Context, context, ROOT_CONTEXT, type Span, trace } from '@opentelemetry/api'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import { beforeEach, describe, expect, it } from 'vitest'

import { DISCARD } from '#shared/telemetry/tracing.ts'
import { WholeTraces } from '#shared/telemetry/whole-traces.ts'

describe('the spans of a request', () => {
  let exporter: InMemorySpanExporter
  let provider: TracerProvider
  const exported = () => exporter.getFinishedSpans().map(({ name }) => name)
  const start = (name: string, parent: Context = ROOT_CONTEXT): { span: Span; below: Context } => {
    const span = provider.getTracer('test').startSpan(name, {}, parent)
    return { span, below: trace.setSpan(context.active(), span) }
  }

  beforeEach(() => {
    exporter = new InMemorySpanExporter()
    provider = new TracerProvider({
      spanProcessors: [new WholeTraces(new SimpleSpanProcessor({ exporter }))],
    })
  })

  it('are exported as soon as the outermost span of this process has ended', () => {
    const root = start('root')
    const child = start('child', root.below)
    start('grandchild', child.below).span.end()
    child.span.end()
    expect(exported()).toEqual([])
    root.span.end()
    expect(exported()).toEqual(['grandchild', 'child', 'root'])
  })

  it('count as outermost below a span of another process, which exports itself', () => {
    const remote = trace.setSpanContext(ROOT_CONTEXT, {
      traceId: '0af7651916cd43dd8448eb211c80319c',
      spanId: 'b7ad6b7169203331',
      traceFlags: 1,
      isRemote: true,
    })
    const root = start('taken', remote)
    start('inner', root.below).span.end()
    expect(exported()).toEqual([])
    root.span.end()
    expect(exported()).toEqual(['inner', 'taken'])
  })

  it('are left out below an unfinished span', () => {
    const root = start('root')
    const open = start('open', root.below)
    start('below open', open.below).span.end()
    root.span.end()
    expect(exported()).toEqual(['root'])
    open.span.end()
    expect(exported()).toEqual(['root', 'open'])
  })

  it('are all discarded if the process that waited for them is gone', () => {
    const root = start('root')
    start('child', root.below).span.end()
    root.span.setAttribute(DISCARD, true)
    root.span.end()
    expect(exported()).toEqual([])
  })

  it('do not mix with those of another request', () => {
    const [one, two] = [start('one'), start('two')]
    start('of one', one.below).span.end()
    start('of two', two.below).span.end()
    two.span.end()
    expect(exported()).toEqual(['of two', 'two'])
  })
})
