import { readSequence } from "./sequence-frame.ts";

/** One answer of a replay socket. */
export type ReplayAnswer =
  | { readonly kind: "data"; readonly sequence: number; readonly payload: Uint8Array }
  | { readonly kind: "end" }
  | { readonly kind: "malformed" };

const end: ReplayAnswer = { kind: "end" };
const malformed: ReplayAnswer = { kind: "malformed" };

/**
 * Reads one answer as a DEALER receives it. vLLM from 0.26 and SGLang 0.5.23 send an empty frame, topic, sequence and
 * payload; older engines leave the topic out. The end is a sequence of all ones with an empty payload.
 */
export function readReplayAnswer(frames: readonly Uint8Array[]): ReplayAnswer {
  if (frames.length < 3 || frames.length > 4 || frames[0]!.length > 0) return malformed;
  const [sequenceFrame, payload] = [frames.at(-2)!, frames.at(-1)!];
  if (payload.length === 0) return isAllOnes(sequenceFrame) ? end : malformed;
  const sequence = readSequence(sequenceFrame);
  return sequence === undefined ? malformed : { kind: "data", sequence, payload };
}

function isAllOnes(frame: Uint8Array): boolean {
  return frame.length === 8 && frame.every((byte) => byte === 0xff);
}
