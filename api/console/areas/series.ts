import type { ConsoleArea, ConsoleCall } from '#api/console/api.ts'
import { SERIES_RANGES, type SeriesLog, type SeriesRange } from '#api/console/series-log.ts'

const QUERY = {
  type: 'object',
  additionalProperties: false,
  properties: { range: { type: 'string', enum: Object.keys(SERIES_RANGES) } },
}

/** The numbers of the last hour and day, for all processes together. */
export function seriesArea({ series }: { readonly series: SeriesLog }): ConsoleArea {
  return {
    actions: [],
    reads: [
      {
        path: '/series',
        query: QUERY,
        handle: async ({ query }: ConsoleCall<object, object, { range?: SeriesRange }>) => {
          const { range = 'hour' } = query
          const { bucketMs } = SERIES_RANGES[range]
          return { range, bucket_ms: bucketMs, points: await series.read(range) }
        },
      },
    ],
  }
}
