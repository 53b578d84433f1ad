/** Decoded sound: one array per channel, all of the same length. */
export interface Pcm {
  readonly channels: readonly Float32Array[]
  readonly sampleRate: number
}

/** Decodes the packets of one stream in order. */
export interface PacketDecoder {
  decode(packet: Uint8Array): Pcm | undefined
}

/** These decoders do not support the format. FFmpeg may. */
export class UnsupportedAudioError extends Error {}

/** More channels than any recording of speech has; each costs memory. */
export const CHANNELS_MAX = 8

/** The first samples of all channels, as views of the same memory. */
export function sliceOf(pcm: Pcm, from: number, to: number): Pcm {
  return { ...pcm, channels: pcm.channels.map((channel) => channel.subarray(from, to)) }
}
