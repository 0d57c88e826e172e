import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { chainRoot, createBlockHasher, createHasherDigests } from "@espalier/core";
import { createEventDecoder, readMooncakeKeys } from "@espalier/engine-model/kv-events";
import { createPrefixIndex, createPrefixMatches, FeedLedger, PoolKeys } from "@espalier/prefix-index";
import { expect, test } from "vitest";

/** What `mooncake_store.py` writes: a header, then in order of time what engines and master said. */
type CaptureLine =
  /** A message of an engine. */
  | { readonly events: string; readonly engine: number }
  /** What changed in the master's list of keys. */
  | { readonly keys: { readonly added: readonly string[]; readonly removed: readonly string[] } }
  /** A message of the master. */
  | { readonly master: string; readonly seq: number }
  /** What a client of the store, without an engine, has done; what follows came of it. */
  | { readonly phase: string }
  | {
      readonly request: { readonly prompt: readonly number[]; readonly cached_tokens: number };
      readonly engine: number;
    };
type EngineMessage = Extract<CaptureLine, { events: string }>;

const engines = 2;
/** The pool's target follows those of the engines. */
const pool = engines;

interface CaptureHeader {
  /** Absent without engines. */
  readonly groups?: readonly [{ readonly block_size: number }];
}

function read(name: string) {
  const file = new URL(`captures/${name}.jsonl.gz`, import.meta.url);
  const [header, ...lines] = gunzipSync(readFileSync(file)).toString().trim().split("\n");
  const { groups } = JSON.parse(header!) as CaptureHeader;
  return { blockSize: groups?.[0].block_size ?? 0, lines: lines.map((line) => JSON.parse(line) as CaptureLine) };
}

function createStore(engineBlockSize: number, blockSize: number) {
  const decoder = createEventDecoder();
  const index = createPrefixIndex({ maxTargets: engines + 1 });
  const matches = createPrefixMatches(engines + 1);
  const root = chainRoot({ seed: "captures", adapter: undefined, cacheSalt: undefined, blockSize, unit: "tokens" });
  const digests = createHasherDigests({ hasher: createBlockHasher(), root: () => root });
  const sinkOf = (target: number): ConstructorParameters<typeof FeedLedger>[0]["sink"] => ({
    stored: (tier, words, from, to) => index.storeFacts(target, tier, words, from, to),
    removed: (tier, words, from, to) => index.removeFacts(target, tier, words, from, to),
    orphaned: (tier, words, at, depth) => index.removeOrphan(target, tier, words, { index: at, depth }),
    holeGone: (_tier, words, at) => index.forgetOrphan(target, words, at),
    cleared: () => index.clearFacts(target),
  });
  const ledgers = [0, 1].map((target) => new FeedLedger({ blockSize, digests, sink: sinkOf(target) }));
  const keys = new PoolKeys({ blockSize, digests, sink: sinkOf(pool) });
  const listed = new Set<string>();
  return {
    apply({ engine, events }: EngineMessage): void {
      expect(decoder.decode(Buffer.from(events, "base64")).refused).toBeUndefined();
      ledgers[engine]!.apply(decoder.batch);
      keys.learn(decoder.batch);
    },
    change({ added, removed }: { readonly added: readonly string[]; readonly removed: readonly string[] }): void {
      for (const key of removed) listed.delete(key);
      for (const key of added) listed.add(key);
    },
    async list(): Promise<void> {
      keys.beginList();
      const onKey = (low: number, high: number): void => keys.key(low, high);
      const { perBlock, unusable } = await readMooncakeKeys([...listed].join("\n"), "", onKey, () => undefined);
      expect(unusable).toBeUndefined();
      keys.endList(Math.max(1, perBlock));
      expect(keys.takeFault()).toBeUndefined();
    },
    /** Tokens that an engine has or loads, in its own blocks, never the last token of a prompt. */
    match(engine: number, prompt: readonly number[]): { own: number; predicted: number } {
      const blocks = Math.floor((prompt.length - 1) / engineBlockSize) * (engineBlockSize / blockSize);
      if (blocks === 0) return { own: 0, predicted: 0 };
      const chain = new Uint32Array(2 * blocks);
      const contents = new Uint32Array(2 * blocks);
      digests.contents(Uint32Array.from(prompt), 0, blocks * blockSize, blockSize, contents);
      digests.mix(root, contents, 0, blocks, chain);
      index.match(chain, blocks, 0, matches);
      const tokensOf = (target: number): number =>
        Math.floor((matches.factBlocks[target]! * blockSize) / engineBlockSize) * engineBlockSize;
      const own = tokensOf(engine);
      return { own, predicted: Math.max(own, tokensOf(pool)) };
    },
  };
}

test.each([
  ["as large as", 1],
  ["half of", 2],
])("router blocks %s the engines': what each request is predicted to load is what vLLM reported", async (_, parts) => {
  const { blockSize, lines } = read("mooncake");
  const store = createStore(blockSize, blockSize / parts);
  const outcomes: { predicted: number; reported: number; loaded: number }[] = [];
  // Events that follow an earlier request, or come with the next one, whose answer they precede.
  let waiting: EngineMessage[] = [];
  for (const line of lines) {
    if ("events" in line) waiting.push(line);
    else if ("keys" in line) store.change(line.keys);
    else if ("request" in line) {
      await store.list();
      const { prompt, cached_tokens: reported } = line.request;
      const { own, predicted } = store.match(line.engine, prompt);
      outcomes.push({ predicted, reported, loaded: predicted - own });
      for (const message of waiting) store.apply(message);
      waiting = [];
    }
  }
  expect(outcomes.filter(({ predicted, reported }) => predicted !== reported)).toEqual([]);
  // The capture is worth it: much was loaded, and much evicted.
  expect(outcomes.filter(({ loaded }) => loaded > 0).length).toBeGreaterThan(outcomes.length / 5);
  const evicted = lines.reduce((sum, line) => sum + ("keys" in line ? line.keys.removed.length : 0), 0);
  expect(evicted).toBeGreaterThan(100);
});

test("the master's events lack what it evicts and what goes with a client; its list lacks nothing", () => {
  const phases: Record<string, { come: number; gone: number; announced: number; numbers: number[] }> = {};
  const begin = () => ({ come: 0, gone: 0, announced: 0, numbers: [] as number[] });
  let phase = begin();
  for (const line of read("mooncake-master").lines) {
    if ("phase" in line) {
      phase = begin();
      phases[line.phase] = phase;
    } else if ("keys" in line) {
      phase.come += line.keys.added.length;
      phase.gone += line.keys.removed.length;
    } else if ("master" in line) {
      phase.numbers.push(line.seq);
      phase.announced += Buffer.from(line.master, "base64").toString("latin1").split("BlockRemoved").length - 1;
    }
  }
  const lost = (name: string): readonly number[] => [phases[name]!.gone, phases[name]!.announced];
  expect(lost("removed")).toEqual([1, 1]);
  expect(lost("all removed")).toEqual([11, 11]);
  expect(lost("client gone")).toEqual([2, 0]);
  // Both keys that were there before, and 19 of the 30 that were put.
  expect(lost("evicted")).toEqual([2, 0]);
  expect([phases.evicted!.come, phases.evicted!.numbers.length]).toEqual([11, 30]);
  expect(lost("put again")).toEqual([0, 0]);
  expect(phases["put at another master"]!.numbers).toEqual([1, 2]);
});
