/** The vectors of a text, one after another. */
export interface TokenMatrix {
  readonly values: Float32Array
  readonly dimensions: number
}

/**
 * The relevance of a document to a query: the sum, over the vectors of the query, of the largest
 * dot product with a vector of the document (MaxSim, Khattab and Zaharia 2020). `share` is awaited
 * between the vectors of the query, so that long documents do not block the event loop.
 */
export async function maxSim(
  query: TokenMatrix,
  document: TokenMatrix,
  share: () => Promise<void>,
): Promise<number> {
  if (document.values.length === 0) return 0
  let sum = 0
  for (let at = 0; at < query.values.length; at += query.dimensions) {
    sum += largestProduct(query.values.subarray(at, at + query.dimensions), document.values)
    await share()
  }
  return sum
}

function largestProduct(vector: Float32Array, others: Float32Array): number {
  let largest = -Infinity
  for (let start = 0; start < others.length; start += vector.length) {
    let product = 0
    for (let i = 0; i < vector.length; i++) {
      product += (vector[i] as number) * (others[start + i] as number)
    }
    if (product > largest) largest = product
  }
  return largest
}
