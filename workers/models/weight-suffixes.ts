/**
 * File name endings of one graph by the kind of their weights, best first. Fetching and loading
 * follow the same lists, so that a fetched file is found.
 */
export const WEIGHT_SUFFIXES = {
  // For processors 8-bit weights are about three times as fast as 32-bit ones at hardly any loss;
  // 4-bit ones lose more; 16-bit ones are computed as 32-bit there.
  cpu: ['_quantized', '_int8', '_uint8', '', '_q4', '_q4f16', '_bnb4', '_fp16'],
  // On a GPU half precision is the natural one, and 8-bit kernels are slow.
  cuda: ['_fp16', '_q4f16', '', '_quantized', '_int8', '_uint8', '_q4', '_bnb4'],
  // Images suffer visibly from 8-bit weights, and vectors are compared with those of others.
  precise: ['', '_fp16', '_quantized', '_int8', '_uint8', '_q4', '_q4f16', '_bnb4'],
} as const
