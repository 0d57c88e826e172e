import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BenchEngine } from "./bench-engine.ts";
import type { RunningContender, StartTraced } from "./contenders.ts";
import { type Load, measureLoad } from "./measure-load.ts";

/** One collection of V8's heap. */
export interface Collection {
  /** Since the isolate was created. */
  readonly atMs: number;
  readonly beforeBytes: number;
  readonly afterBytes: number;
}

const bytesPerMegabyte = 1_048_576;
/** Minimum collections in a measurement, so that the partial first and last ones do not matter. */
const leastCollections = 4;

/**
 * Computes how much a Node process allocates in V8's heap per request, from V8's report of its collections
 * (`--trace-gc`). Excludes buffers outside the heap.
 *
 * @returns bytes
 * @throws Error when there are too few collections
 */
export async function measureGarbage(start: StartTraced, load: Load, engine: BenchEngine): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), "espalier-bench-gc-"));
  const file = join(folder, "collections");
  let running: RunningContender | undefined;
  try {
    running = await start(engine.urls, openSync(file, "w"));
    const { requestsPerSecond, requests } = await measureLoad(running.system, load, engine.pid);
    await running.stop();
    running = undefined;
    const windowMs = (requests / requestsPerSecond) * 1_000;
    return allocatedPerMs(parseCollections(readFileSync(file, "utf8")), windowMs) / (requestsPerSecond / 1_000);
  } finally {
    await running?.stop();
    rmSync(folder, { recursive: true });
  }
}

/**
 * Reads lines such as `[7:0x5f]  1234 ms: Scavenge 12.3 (15.0) -> 10.2 (16.0) MB, ...` of the isolate that has the
 * most.
 */
export function parseCollections(text: string): readonly Collection[] {
  const isolates = new Map<string, Collection[]>();
  for (const match of text.matchAll(/^\[([^\]]+)\] +(\d+) ms: [^\d\n]+([\d.]+) \([\d.]+\) -> ([\d.]+) \(/gm)) {
    const [, isolate = "", atMs, before, after] = match;
    const collections = isolates.get(isolate) ?? [];
    isolates.set(isolate, collections);
    const [beforeBytes, afterBytes] = [Number(before) * bytesPerMegabyte, Number(after) * bytesPerMegabyte];
    collections.push({ atMs: Number(atMs), beforeBytes, afterBytes });
  }
  return [...isolates.values()].sort((one, other) => other.length - one.length)[0] ?? [];
}

/**
 * Bytes per millisecond over the last part of the report: the growth of the heap between collections.
 *
 * @throws Error when that part has fewer than 4 collections
 */
export function allocatedPerMs(collections: readonly Collection[], windowMs: number): number {
  const last = collections.at(-1)?.atMs ?? 0;
  const counted = collections.filter(({ atMs }) => atMs >= last - windowMs);
  if (counted.length < leastCollections) {
    throw new Error(`${counted.length} collections are too few for an estimate of allocation`);
  }
  const bytes = counted.slice(1).reduce((sum, each, at) => sum + each.beforeBytes - counted[at]!.afterBytes, 0);
  return bytes / (last - counted[0]!.atMs);
}
