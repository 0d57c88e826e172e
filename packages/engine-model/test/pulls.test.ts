import { createSeededRandom } from "@espalier/core";
import {
  type BlockReport,
  type BlockRequest,
  createBlockEngine,
  createEngine,
  createPullSource,
  enginePresets,
  type KvEvent,
  type PullLimits,
} from "@espalier/engine-model";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { smallEngine, upFrom } from "./harness.ts";
import { createFleet, pullingEngine, smallLink } from "./pull-harness.ts";

const inCpu = (event: KvEvent): boolean => event.type === "stored" && event.medium === "CPU";

describe("a pull", () => {
  test("gets what the source has in CPU memory, at the cost of latency, link and load", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    const sinceMs = fleet.nowMs();
    const report = fleet.run(1, "B", upFrom(1, 43), { from: 0 });
    expect(report).toMatchObject({ cachedTokens: 40, pulledTokens: 40, importedTokens: 0 });
    // Latency, ten blocks over the pair's link, ten blocks to the GPU, one step over three tokens.
    expect(report.firstTokenMs - sinceMs).toBeCloseTo(3 + 80 + 20 + 1.03, 6);
    const [source, pulling] = fleet.engines.map(({ engine }) => engine.stats());
    expect(source).toMatchObject({ pulledTokens: 0, cpuBlocks: 10 });
    expect(pulling).toMatchObject({ pulledTokens: 40, pulls: 1, emptyPulls: 0, loadedTokens: 40, pulling: 0 });
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ served: 1, sentTokens: 40, sending: 0, queued: 0 });
  });

  test("leaves blocks in both memories of the engine that pulled, and its events describe them", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 16));
    fleet.run(1, "B", upFrom(1, 17), { from: 0 });
    const { events, engine } = fleet.engines[1]!;
    const described = events.filter(inCpu);
    expect(described.map((event) => (event.type === "stored" ? [...event.tokens] : []))).toEqual(
      [0, 1, 2, 3].map((block) => upFrom(1 + 4 * block, 4)),
    );
    expect(described[0]).toMatchObject({ parentHash: undefined, blockSize: 4 });
    for (let at = 1; at < 4; at++) {
      const [parent, child] = [described[at - 1]!, described[at]!];
      if (parent.type !== "stored" || child.type !== "stored") throw new Error("not stored");
      expect(child.parentHash).toBe(parent.hashes[0]);
    }
    const inGpu = events.filter((event) => event.type === "stored" && event.medium === undefined);
    expect(inGpu.length).toBeGreaterThan(0);
    expect(engine.stats()).toMatchObject({ cpuBlocks: 4, cachedBlocks: 4 });
    // The next request finds them without another pull, and a third engine can pull them from here.
    expect(fleet.run(1, "C", upFrom(1, 17), { from: 0 })).toMatchObject({ cachedTokens: 16, pulledTokens: 0 });
    expect(engine.stats()).toMatchObject({ pulls: 1, emptyPulls: 0 });
  });

  test("is made once for requests with the same prompt, which wait for it", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    const sinceMs = fleet.nowMs();
    for (const id of ["B", "C", "D"]) fleet.submit(1, id, upFrom(1, 43), { from: 0 });
    // The source has found the blocks; this one was not told of it, and waits for them, too.
    fleet.runUntil(sinceMs + 10);
    fleet.submit(1, "E", upFrom(1, 43));
    fleet.submit(1, "other", upFrom(700, 43), { from: 0 });
    fleet.runUntil(sinceMs + 20);
    expect(fleet.engines[1]!.engine.stats()).toMatchObject({ pulling: 4, emptyPulls: 1 });
    fleet.engines[1]!.engine.abort("C", fleet.nowMs());
    fleet.settle();
    const { engine, reports } = fleet.engines[1]!;
    for (const id of ["B", "D", "E"]) {
      expect(reports.get(id)).toMatchObject({ cachedTokens: 40, pulledTokens: id === "B" ? 40 : 0 });
      expect(reports.get(id)!.firstTokenMs - sinceMs).toBeLessThan(3 + 80 + 3 * 20 + 10);
    }
    expect(engine.stats()).toMatchObject({ pulls: 1, pulling: 0, finished: 5 });
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ served: 1, sentTokens: 40 });
  });

  test("of a request that goes away lets those that wait for it pull themselves, or compute", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 43), { from: 0 });
    fleet.submit(1, "C", upFrom(1, 43), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 10);
    fleet.submit(1, "D", upFrom(1, 43));
    fleet.runUntil(fleet.nowMs() + 10);
    fleet.engines[1]!.engine.abort("B", fleet.nowMs());
    fleet.settle();
    const { reports } = fleet.engines[1]!;
    expect(reports.get("C")).toMatchObject({ pulledTokens: 40 });
    expect(reports.get("D")).toMatchObject({ pulledTokens: 0, finishReason: "length" });
  });

  test("asks only for what the engine has in neither memory", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    fleet.run(1, "head", upFrom(1, 16));
    const report = fleet.run(1, "B", upFrom(1, 43), { from: 0 });
    expect(report).toMatchObject({ cachedTokens: 40, pulledTokens: 24 });
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ sentTokens: 24 });
  });

  test("of a prompt that the source has in part gets that part, and the rest is computed", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 20));
    expect(fleet.run(1, "B", [...upFrom(1, 20), ...upFrom(500, 20)], { from: 0 })).toMatchObject({
      cachedTokens: 20,
      pulledTokens: 20,
    });
  });

  test("finds nothing of another adapter or salt, and the prompt is computed", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 20), { adapter: "a", cacheSalt: "s" });
    expect(fleet.run(1, "B", upFrom(1, 20), { from: 0 })).toMatchObject({ cachedTokens: 0, pulledTokens: 0 });
    expect(fleet.engines[1]!.engine.stats()).toMatchObject({ pulls: 0, emptyPulls: 1, finished: 1 });
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ missed: 1 });
    const same = { from: 0, adapter: "a", cacheSalt: "s" };
    expect(fleet.run(1, "C", upFrom(1, 21), same)).toMatchObject({ pulledTokens: 20 });
  });

  test("with `prompt`, prompts are in CPU memory and outputs are not; with `all`, both are", () => {
    for (const [cpuWrites, found] of [
      ["prompt", 16],
      ["all", 24],
    ] as const) {
      const fleet = createFleet(2, { ...pullingEngine, cpuWrites });
      fleet.run(0, "A", upFrom(1, 17), { outputTokens: 9 });
      const next = [...upFrom(1, 17), ...upFrom(1_000_000, 9), 7, 7];
      expect(fleet.run(1, "B", next, { from: 0 }).pulledTokens).toBe(found);
    }
  });

  test("lets other requests pass, and goes on when there is room", () => {
    const fleet = createFleet(2, { ...pullingEngine, maxRunning: 1 });
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.submit(1, "C", upFrom(600, 10), { outputTokens: 120 });
    fleet.settle();
    const [b, c] = ["B", "C"].map((id) => fleet.engines[1]!.reports.get(id)!);
    expect(c!.firstTokenMs).toBeLessThan(b!.firstTokenMs);
    expect(b!.firstTokenMs - c!.finishedMs).toBeCloseTo(20 + 1.01, 6);
  });
});

test("requests that had their turn go on in order of arrival, before those that had none", () => {
  const fleet = createFleet(2, { ...pullingEngine, maxRunning: 2 });
  for (const [at, id] of ["C", "first", "second", "D", "last"].entries()) {
    const from = id === "first" || id === "second" ? { from: 0 } : {};
    fleet.submit(1, id, upFrom(1_000 * (at + 1), 10), { outputTokens: 20 + 7 * at, ...from });
  }
  fleet.settle();
  const scheduled = ["C", "D", "first", "second", "last"].map((id) => fleet.engines[1]!.reports.get(id)!.scheduledMs);
  expect(scheduled).toEqual([...scheduled].sort((a, b) => a - b));
  expect(scheduled[4]).toBeGreaterThan(scheduled[3]!);
  expect(fleet.engines[1]!.engine.stats().emptyPulls).toBe(2);
});

describe("blocks of a pull in flight", () => {
  test("are not evicted at the source, and are again once they are sent", () => {
    const fleet = createFleet(2, { ...pullingEngine, cpuBlocks: 12 });
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 20);
    expect(fleet.engines[0]!.source.stats().sending).toBe(1);
    // There is room for two blocks beside the pull: what needs more is not stored.
    for (let at = 1; at <= 3; at++) fleet.submit(0, `other${at}`, upFrom(1_000 * at, at < 3 ? 8 : 12));
    fleet.runUntil(fleet.nowMs() + 30);
    expect(fleet.engines[0]!.engine.stats().cpuBlocks).toBe(12);
    fleet.settle();
    expect(fleet.engines[1]!.reports.get("B")).toMatchObject({ pulledTokens: 40 });
    fleet.run(0, "again", upFrom(5_000, 48));
    expect(fleet.run(1, "C", upFrom(1, 45), { from: 0 }).pulledTokens).toBe(0);
  });

  test("take room at both ends, which is given back when the request is aborted", () => {
    const fleet = createFleet(3, { ...pullingEngine, cpuBlocks: 12 });
    fleet.run(0, "A", upFrom(1, 40));
    fleet.run(1, "old", upFrom(900, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 30);
    const { engine, events } = fleet.engines[1]!;
    expect(engine.stats()).toMatchObject({ pulling: 1, waiting: 1, importing: 0, freeBlocks: 64 });
    // Ten blocks are on their way: the old ones made room.
    expect(engine.stats().cpuBlocks).toBe(2);
    engine.abort("B", fleet.nowMs());
    expect(engine.stats()).toMatchObject({ pulling: 0, waiting: 0, pulledTokens: 0, pulls: 0, emptyPulls: 0 });
    expect(fleet.engines[1]!.reports.get("B")).toMatchObject({ finishReason: "aborted", pulledTokens: 0 });
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ sending: 0, cancelled: 1, served: 0 });
    expect(fleet.engines[0]!.source.nextEventMs()).toBeUndefined();
    // Life goes on: all room is there again, at both ends.
    expect(fleet.run(1, "C", upFrom(1, 41), { from: 0 }).pulledTokens).toBe(40);
    fleet.run(1, "D", upFrom(3_000, 48));
    fleet.run(0, "E", upFrom(3_000, 48));
    for (const at of [0, 1]) expect(fleet.engines[at]!.engine.stats().cpuBlocks).toBe(12);
    expect(fleet.run(2, "F", upFrom(1, 41), { from: 0 }).pulledTokens).toBe(0);
    expect(events.some((event) => event.type === "removed" && event.medium === "CPU")).toBe(true);
  });

  test("more than fits into CPU memory is not asked for", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 80));
    const small = createEngine({
      parameters: { ...pullingEngine, cpuBlocks: 5 },
      hashSeed: 9,
      observer: {},
    });
    const ranges: unknown[] = [];
    const remote = {
      pull(range: unknown) {
        ranges.push(range);
        return () => {};
      },
    };
    const request = { id: "B", promptTokens: Uint32Array.from(upFrom(1, 81)), outputTokens: 1, outputToken: () => 0 };
    small.submit({ ...request, remote }, 0);
    small.advanceTo(0);
    expect(ranges).toEqual([{ fromTokens: 0, toTokens: 20 }]);
  });

  test("that vanish with a reset of the source's cache are computed", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 20);
    expect(fleet.engines[0]!.engine.resetPrefixCache(fleet.nowMs())).toBe(true);
    fleet.settle();
    expect(fleet.engines[1]!.reports.get("B")).toMatchObject({ cachedTokens: 0, pulledTokens: 0 });
    expect(fleet.engines[1]!.engine.stats()).toMatchObject({ emptyPulls: 1, cpuBlocks: 10 });
  });

  test("that vanish with a reset of the pulling engine's cache are computed", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 20);
    expect(fleet.engines[1]!.engine.resetPrefixCache(fleet.nowMs())).toBe(true);
    fleet.settle();
    expect(fleet.engines[1]!.reports.get("B")).toMatchObject({ cachedTokens: 0, pulledTokens: 0 });
    expect(fleet.run(1, "C", upFrom(1, 41), { from: 0 })).toMatchObject({ cachedTokens: 40, pulledTokens: 0 });
  });

  test("of a source that dies are computed at once, and its next process serves again", () => {
    const fleet = createFleet(2);
    fleet.run(0, "A", upFrom(1, 40));
    fleet.submit(1, "B", upFrom(1, 41), { from: 0 });
    fleet.runUntil(fleet.nowMs() + 20);
    fleet.crash(0);
    fleet.settle();
    const report = fleet.engines[1]!.reports.get("B")!;
    expect(report).toMatchObject({ cachedTokens: 0, pulledTokens: 0 });
    expect(report.firstTokenMs - report.arrivedMs).toBeLessThan(25);
    fleet.run(0, "A2", upFrom(300, 40));
    expect(fleet.run(1, "C", upFrom(300, 41), { from: 0 }).pulledTokens).toBe(40);
  });
});

/** Random requests, pulls, aborts, resets and crashes of three engines, to their end. */
function randomRun(seed: number) {
  const random = createSeededRandom(seed);
  const cpuBlocks = 20 + random.integer(60);
  const limits = {
    ...smallLink,
    pairBytesPerSecond: 700,
    maxTransfers: 1 + random.integer(3),
    maxQueued: random.integer(3),
  };
  const fleet = createFleet(3, { ...pullingEngine, blockCount: 52, cpuBlocks }, limits);
  let crashes = 0;
  for (let at = 0; at < 120; at++) {
    fleet.runUntil(fleet.nowMs() + random.integer(60));
    const engine = random.integer(3);
    const action = random.float();
    if (action < 0.1 && at > 0) fleet.engines[engine]!.engine.abort(`r${random.integer(at)}`, fleet.nowMs());
    if (action > 0.97) fleet.engines[engine]!.engine.resetPrefixCache(fleet.nowMs());
    if (action > 0.94 && action < 0.95) {
      fleet.crash(engine);
      crashes++;
    }
    const prompt = [...upFrom(1_000 * (1 + random.integer(6)), 20 + random.integer(80)), ...upFrom(at * 9 + 50_000, 3)];
    const from = random.float() < 0.7 ? { from: (engine + 1 + random.integer(2)) % 3 } : {};
    fleet.submit(engine, `r${at}`, prompt, { outputTokens: 1 + random.integer(9), ...from });
  }
  fleet.settle();
  return { fleet, cpuBlocks, crashes };
}

test.each(fixedSeeds(30, 1))(
  "random pulls leave nothing behind, and the events tell both memories: seed %i",
  (seed) => {
    const { fleet, cpuBlocks, crashes } = randomRun(seed);
    const shown = (run: ReturnType<typeof randomRun>) =>
      run.fleet.engines.map(({ engine, reports }) => [engine.stats(), [...reports.values()]]);
    expect(shown(randomRun(seed)), `seed ${seed}`).toEqual(shown({ fleet, cpuBlocks, crashes }));
    let pulls = 0;
    for (const { engine, source, events } of fleet.engines) {
      const stats = engine.stats();
      expect(stats).toMatchObject({ running: 0, waiting: 0, pulling: 0, importing: 0, freeBlocks: 52 });
      expect(source.stats()).toMatchObject({ sending: 0, queued: 0 });
      expect(source.nextEventMs()).toBeUndefined();
      pulls += stats.pulls;
      if (crashes > 0) continue;
      const inMemory = new Map([
        ["GPU", new Map<bigint, number>()],
        ["CPU", new Map<bigint, number>()],
      ]);
      for (const event of events) {
        if (event.type === "cleared") {
          for (const memory of inMemory.values()) memory.clear();
          continue;
        }
        const memory = inMemory.get(event.medium ?? "GPU")!;
        for (const hash of event.hashes) {
          const count = (memory.get(hash) ?? 0) + (event.type === "stored" ? 1 : -1);
          if (count === 0) memory.delete(hash);
          else memory.set(hash, count);
        }
      }
      expect(
        [...inMemory.get("CPU")!.values()].every((count) => count === 1),
        `seed ${seed}`,
      ).toBe(true);
      expect(inMemory.get("CPU")!.size).toBe(stats.cpuBlocks);
      expect([...inMemory.get("GPU")!.values()].reduce((sum, count) => sum + count, 0)).toBe(stats.cachedBlocks);
      // All of CPU memory can be used again.
      for (let at = 0; at < 4; at++)
        fleet.run(
          fleet.engines.findIndex((each) => each.engine === engine),
          `f${at}`,
          upFrom(9_000 + 200 * at, 190),
        );
      expect(engine.stats().cpuBlocks).toBe(cpuBlocks);
    }
    expect(pulls).toBeGreaterThan(1);
  },
);

describe("bounds of a source", () => {
  const limits: PullLimits = { ...smallLink, maxTransfers: 1, maxQueued: 1 };

  test("one transfer past them waits, one past that gets nothing, and later ones are served", () => {
    const fleet = createFleet(4, pullingEngine, limits);
    fleet.run(0, "A", upFrom(1, 40));
    for (const at of [1, 2, 3]) fleet.submit(at, "B", upFrom(1, 41), { from: 0 });
    const sinceMs = fleet.nowMs();
    fleet.runUntil(sinceMs + 20);
    expect(fleet.engines[0]!.source.stats()).toMatchObject({ sending: 1, queued: 1, refused: 1 });
    fleet.settle();
    const tokens = [1, 2, 3].map((at) => fleet.engines[at]!.reports.get("B")!.pulledTokens);
    expect(tokens).toEqual([40, 40, 0]);
    const [first, second] = [1, 2].map((at) => fleet.engines[at]!.reports.get("B")!.firstTokenMs - sinceMs);
    expect(second! - first!).toBeCloseTo(80, 6);
    expect(fleet.run(3, "C", [...upFrom(1, 20), 8, 8], { from: 0 }).cachedTokens).toBe(20);
    expect(fleet.run(3, "D", upFrom(1, 42), { from: 0 }).cachedTokens).toBe(40);
  });

  test.each([
    [{ bytesPerSecond: 0 }, "bytesPerSecond"],
    [{ pairBytesPerSecond: Number.NaN }, "pairBytesPerSecond"],
    [{ bytesPerToken: -1 }, "bytesPerToken"],
    [{ latencyMs: -1 }, "latencyMs"],
    [{ maxTransfers: 0 }, "maxTransfers"],
    [{ maxQueued: 0.5 }, "maxQueued"],
  ])("%j is refused", (wrong, word) => {
    const engine = () => ({ hold: () => undefined });
    expect(() => createPullSource({ engine, limits: { ...smallLink, ...wrong } })).toThrow(word);
  });
});

test("engines whose requests carry hashes pull, too", () => {
  const reports: BlockReport[] = [];
  const createOne = () =>
    createBlockEngine({ parameters: pullingEngine, observer: { finished: (report) => void reports.push(report) } });
  const [first, second] = [createOne(), createOne()];
  const source = createPullSource<BlockRequest>({ engine: () => first, limits: smallLink });
  const request = { id: 1, promptTokens: 41, outputTokens: 1, chain: Uint32Array.from(upFrom(1, 20)) };
  first.submit(request, 0);
  first.advanceTo(100);
  second.submit({ ...request, id: 2, remote: source.sourceFor(request, "second") }, 100);
  second.advanceTo(100);
  for (let at = source.nextEventMs(); at !== undefined; at = source.nextEventMs()) source.advanceTo(at);
  second.advanceTo(1_000);
  expect(reports).toMatchObject([
    { id: 1, pulledTokens: 0 },
    { id: 2, pulledTokens: 40, cachedTokens: 40 },
  ]);
});

test.each([
  [{ cpuBlocks: 0 }, {}],
  [{ prefixCaching: false }, {}],
  [{ flavour: "sglang", cpuWrites: "write_back" }, {}],
  [{ cpuChunkBlocks: 2 }, {}],
  [{}, { imported: { tokens: 4, setupMs: 0, msPerToken: 0 } }],
] as const)("an engine %j refuses a remote source with %j", (changes, more) => {
  const engine = createEngine({ parameters: { ...pullingEngine, ...changes }, hashSeed: 1, observer: {} });
  const request = { id: "a", promptTokens: Uint32Array.from(upFrom(1, 9)), outputTokens: 1, outputToken: () => 0 };
  expect(() => engine.submit({ ...request, ...more, remote: { pull: () => () => {} } }, 0)).toThrow(RangeError);
  engine.submit(request, 0);
});

test.each([
  [{ flavour: "sglang", cpuWrites: "all" } as const, "cpuWrites all is not write_through or"],
  [{ flavour: "vllm", cpuWrites: "write_back" } as const, "cpuWrites write_back is not prompt or all"],
  [{ flavour: "sglang", cpuChunkBlocks: 2 } as const, "only vLLM's flavour has cpuChunkBlocks"],
  [{ flavour: "vllm", cpuChunkBlocks: 0 } as const, "cpuChunkBlocks 0 is not a whole number"],
])("what the engine of a flavour has not is refused: %o", (settings, message) => {
  const parameters = { ...smallEngine, cpuBlocks: 4, ...settings };
  expect(() => createEngine({ parameters, hashSeed: 1, observer: {} })).toThrow(message);
});

/**
 * llm-d's reports on peer-to-peer KV cache sharing: time to first token in ms for prompts that another engine has, computed
 * and pulled.
 */
const published = [
  ["h200-gpt-oss-120b", 2, 78, 35],
  ["h200-gpt-oss-120b", 8, 250, 57],
  ["h200-gpt-oss-120b", 16, 510, 86],
  ["h200-gpt-oss-120b", 32, 1_173, 165],
  ["h200-gpt-oss-120b", 48, 1_988, 235],
  ["h200-llama-8b", 1, 30, 34],
  ["h200-llama-8b", 4, 99, 59],
  ["h200-llama-8b", 8, 236, 88],
  ["h200-llama-8b", 16, 503, 155],
] as const;

test.each(published)(
  "%s, %ik tokens: %i ms computed, %i ms pulled, within an eighth",
  (preset, size, computed, pulled) => {
    const { parameters, pull, kvBytesPerToken } = enginePresets[preset];
    const fleet = createFleet(2, parameters, { ...pull!, bytesPerToken: kvBytesPerToken });
    const prompt = upFrom(1, 1_024 * size);
    const first = fleet.run(0, "A", prompt);
    const second = fleet.run(1, "B", prompt, { from: 0 });
    expect(second.pulledTokens).toBe(1_024 * size);
    for (const [report, wanted] of [
      [first, computed],
      [second, pulled],
    ] as const) {
      const ms = report.firstTokenMs - report.arrivedMs;
      expect(ms / wanted).toBeGreaterThan(7 / 8);
      expect(ms / wanted).toBeLessThan(9 / 8);
    }
  },
);
