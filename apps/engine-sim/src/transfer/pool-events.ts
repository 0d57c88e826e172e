import type { WireEvent } from "@espalier/kv-events";
import type { PromptContent, StoreChange } from "./block-store.ts";

/** What a change of a store is about: the blocks of one prompt. */
export interface PutPrompt extends PromptContent {
  readonly names: readonly string[];
  readonly blockSize: number;
}

/** What the pool calls memory that belongs to no engine. */
const medium = "EXTERNAL";

/** How a pool that tells its blocks by their tokens announces a change: runs of blocks that came, then those that went. */
export function poolEventsOf({ added, removed }: StoreChange, prompt: PutPrompt): WireEvent[] {
  const events: WireEvent[] = runsOf(added).map(([from, to]) => storedEvent(prompt, from, to));
  if (removed.length > 0) events.push({ type: "removed", hashes: removed.map(hashOfName), medium });
  return events;
}

function storedEvent({ names, prompt, blockSize, adapter, cacheSalt }: PutPrompt, from: number, to: number): WireEvent {
  return {
    type: "stored",
    hashes: names.slice(from, to).map(hashOfName),
    parentHash: from === 0 ? undefined : hashOfName(names[from - 1] as string),
    tokens: prompt.slice(from * blockSize, to * blockSize),
    blockSize,
    adapter,
    cacheSalt,
    medium,
  };
}

/** Places that follow one another, as ranges with an exclusive end. */
function runsOf(places: readonly number[]): [number, number][] {
  const runs: [number, number][] = [];
  for (const place of places) {
    const last = runs.at(-1);
    if (last?.[1] === place) last[1] = place + 1;
    else runs.push([place, place + 1]);
  }
  return runs;
}

/** The first 64 bits of what is written in the name. */
function hashOfName(name: string): bigint {
  return Buffer.from(name, "base64url").readBigUInt64BE();
}
