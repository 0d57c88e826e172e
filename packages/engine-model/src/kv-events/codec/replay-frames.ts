/** A message of a publisher: its sequence number and its payload. */
export interface NumberedMessage {
  readonly sequence: number;
  readonly payload: Uint8Array;
}

const sequenceBytes = 8;

/**
 * The sequence number in a frame of 8 bytes, big-endian.
 *
 * @returns undefined when the frame has another length or the number exceeds 2^53 - 1, which no engine reaches: at
 *   1,000 messages a second it would take 285,000 years
 */
export function readSequence(frame: Uint8Array): number | undefined {
  if (frame.length !== sequenceBytes) return undefined;
  const view = new DataView(frame.buffer, frame.byteOffset, sequenceBytes);
  const high = view.getUint32(0);
  return high < 0x20_0000 ? high * 0x1_0000_0000 + view.getUint32(4) : undefined;
}

/** @param sequence from 0 to 2^53 - 1 */
export function writeSequence(sequence: number): Uint8Array {
  const frame = new Uint8Array(sequenceBytes);
  const view = new DataView(frame.buffer);
  view.setUint32(0, Math.floor(sequence / 0x1_0000_0000));
  view.setUint32(4, sequence % 0x1_0000_0000);
  return frame;
}

/** One answer of a replay socket. */
type ReplayAnswer =
  | { readonly kind: "data"; readonly sequence: number; readonly payload: Uint8Array }
  | { readonly kind: "end" }
  | { readonly kind: "malformed" };

const end: ReplayAnswer = { kind: "end" };
const malformed: ReplayAnswer = { kind: "malformed" };

/**
 * Reads one answer as a DEALER receives it. vLLM from 0.26 and SGLang 0.5.23 send an empty frame, topic, sequence and
 * payload; older engines omit the topic. The end marker is a sequence of all ones with an empty payload.
 */
export function readReplayAnswer(frames: readonly Uint8Array[]): ReplayAnswer {
  if (frames.length < 3 || frames.length > 4 || frames[0]!.length > 0) return malformed;
  const [sequenceFrame, payload] = [frames.at(-2)!, frames.at(-1)!];
  if (payload.length === 0) return isAllOnes(sequenceFrame) ? end : malformed;
  const sequence = readSequence(sequenceFrame);
  return sequence === undefined ? malformed : { kind: "data", sequence, payload };
}

function isAllOnes(frame: Uint8Array): boolean {
  return frame.length === sequenceBytes && frame.every((byte) => byte === 0xff);
}

interface ReplayRequest {
  /** The client to answer. */
  readonly client: Uint8Array;
  /** Rounded when beyond 2^53. */
  readonly start: number;
}

/**
 * Reads what a ROUTER socket received: the client, an empty delimiter, and the sequence to start from.
 *
 * @returns undefined for anything else, which engines ignore silently
 */
export function readReplayRequest(frames: readonly Uint8Array[]): ReplayRequest | undefined {
  const [client, delimiter, start] = frames;
  if (frames.length !== 3 || !client || delimiter?.length !== 0 || start?.length !== sequenceBytes) return undefined;
  const view = new DataView(start.buffer, start.byteOffset, sequenceBytes);
  return { client, start: Number(view.getBigUint64(0)) };
}

const empty = new Uint8Array(0);
const endSequence = new Uint8Array(sequenceBytes).fill(0xff);

/** @param topic undefined for engines that do not repeat it */
export function replayFrames(
  client: Uint8Array,
  topic: Uint8Array | undefined,
  { sequence, payload }: NumberedMessage,
): Uint8Array[] {
  return [client, empty, ...(topic ? [topic] : []), writeSequence(sequence), payload];
}

/** The end marker of a replay: a sequence of all ones and an empty payload. */
export function replayEndFrames(client: Uint8Array, carriesTopic: boolean): Uint8Array[] {
  return [client, empty, ...(carriesTopic ? [empty] : []), endSequence, empty];
}
