import { readReplayAnswer } from "@espalier/engine-model/kv-events";
import type { CapturedReplay, CaptureFiles } from "./capture-files.ts";
import { createEventFold } from "./event-fold.ts";

/**
 * Whether engines replayed what they had sent: the same bytes message by message, and the same blocks at the end from
 * either source.
 */
export function compareReplays(capture: CaptureFiles): boolean {
  return capture.replays.every((replay) => isEqual(capture, replay));
}

function isEqual(capture: CaptureFiles, { session, port_offset: rank, replies }: CapturedReplay): boolean {
  const answers = replies.map(({ frames }) => readReplayAnswer(frames.map((frame) => Buffer.from(frame, "base64"))));
  if (answers.some(({ kind }) => kind === "malformed")) return false;
  const replayed = answers.flatMap((answer) => (answer.kind === "data" ? [answer] : []));
  const live = new Map<number, Uint8Array>();
  for (const { session: of, endpoint, frames } of capture.messages) {
    if (of !== session || endpoint !== rank) continue;
    live.set(Number(Buffer.from(frames[1] ?? "", "base64").readBigUInt64BE()), Buffer.from(frames[2] ?? "", "base64"));
  }
  const { block_size: blockSize } = capture.sessions.find((one) => one.session === session)!;
  const fromReplay = createEventFold(blockSize);
  const fromLive = createEventFold(blockSize);
  for (const { sequence, payload } of replayed) {
    const sent = live.get(sequence);
    // A late reader gets the first messages only from the replay.
    if (sent && Buffer.compare(sent, payload) !== 0) return false;
    fromReplay.apply(payload);
    fromLive.apply(sent ?? payload);
  }
  const highest = replayed.at(-1)?.sequence ?? -1;
  const lowest = replayed[0]?.sequence ?? 0;
  const isComplete = [...live.keys()].every(
    (sequence) => sequence < lowest || sequence > highest || replayed.some((one) => one.sequence === sequence),
  );
  return isComplete && fromReplay.digest === fromLive.digest;
}
