import type { BufferedBatch } from "./batch-buffer.ts";

const sequenceBytes = 8;
const empty = new Uint8Array(0);
const endSequence = new Uint8Array(sequenceBytes).fill(0xff);

/** A sequence number as it goes over the wire: 8 bytes, big-endian. */
export function sequenceFrame(sequence: number): Uint8Array {
  const frame = new DataView(new ArrayBuffer(sequenceBytes));
  frame.setBigUint64(0, BigInt(sequence));
  return new Uint8Array(frame.buffer);
}

export interface ReplayRequest {
  /** Whom to answer. */
  readonly client: Uint8Array;
  /** Rounded when beyond 2^53. */
  readonly start: number;
}

/**
 * Reads what a ROUTER socket received: the client, an empty delimiter, and where to start.
 *
 * @returns undefined for anything else, which engines ignore without a word
 */
export function readReplayRequest(frames: readonly Uint8Array[]): ReplayRequest | undefined {
  const [client, delimiter, start] = frames;
  if (frames.length !== 3 || !client || delimiter?.length !== 0 || start?.length !== sequenceBytes) return undefined;
  const view = new DataView(start.buffer, start.byteOffset, sequenceBytes);
  return { client, start: Number(view.getBigUint64(0)) };
}

/** @param topic undefined for engines that do not repeat it */
export function replayFrames(
  client: Uint8Array,
  topic: Uint8Array | undefined,
  { sequence, payload }: BufferedBatch,
): Uint8Array[] {
  return [client, empty, ...(topic ? [topic] : []), sequenceFrame(sequence), payload];
}

/** What ends a replay: a sequence of all ones and nothing in it. */
export function replayEndFrames(client: Uint8Array, carriesTopic: boolean): Uint8Array[] {
  return [client, empty, ...(carriesTopic ? [empty] : []), endSequence, empty];
}
