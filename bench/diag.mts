import { openTestSubmitter, readAll, startRedis, toyRequest, log } from '../test/support/queue.ts'
import { startToyWorker } from '../test/support/toy-worker.ts'
import { openRedis } from '../shared/queue/connection.ts'
import { JobProducer } from '../shared/queue/producer.ts'
import { ReplyWriter } from '../shared/queue/reply-writer.ts'
import { JobRunner } from '../workers/job-runner.ts'
import { OwnedJob } from '../api/inference/owned-job.ts'
const T: Record<string, number[]> = {}
let t0 = 0
const mark = (n: string) => (T[n] ??= []).push(performance.now() - t0)
const wrap = (proto: any, name: string, a: string, b?: string) => { const f = proto[name]; proto[name] = function (...x: any[]) { mark(a); const r = f.apply(this, x); if (b) r.then(() => mark(b)); return r } }
wrap(JobProducer.prototype, 'enqueue', '1 admitted', '3 add acked')
wrap(JobRunner.prototype, 'run', '2 fetched')
wrap(ReplyWriter.prototype, 'push', '4 pushed')
wrap(OwnedJob.prototype, 'hear', '5 heard')
const redis = await startRedis()
const s = await openTestSubmitter(redis.url, 'd')
const w = await startToyWorker(redis.url, 'd')
const c = await openRedis(redis.url, 'worker', log)
await new Promise(r => setTimeout(r, 500))
for (let i = 0; i < 4000; i++) { if (i === 3000) for (const k in T) delete T[k]; t0 = performance.now(); await readAll(s.submit(toyRequest('x', 0))); mark('6 done') ; t0 = performance.now(); await c.ping(); mark('ping')}
for (const k of Object.keys(T).sort()) { const v = T[k]!.sort((a, b) => a - b); console.log(k, v[v.length >> 1]!.toFixed(3), v.length) }
await s.close(); await w.stop(); c.disconnect(); await redis.close()
