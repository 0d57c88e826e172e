import { afterEach, expect, test } from "vitest";
import {
  breakEvents,
  cacheRouter,
  createMovableClock,
  type Feed,
  feedsOf,
  type MovableClock,
  publishingSims,
  untilFeed,
  untilHeard,
} from "./cache-rig.ts";
import { ask, type Turn, tokensOf } from "./cached-turns.ts";
import { call, type Json } from "./client.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** Longer than what was sent is believed beside a complete feed: after it only events count. */
const guessesMs = 10_001;

interface Scene {
  readonly sim: Sim;
  readonly router: RunningRouter;
  readonly clock: MovableClock;
  /** Asks for the prompt of this number, which is always the same. */
  turn(number: number): Promise<Turn>;
  feed(): Promise<Feed>;
}

async function scene({ replay = true } = {}): Promise<Scene> {
  const [sim] = await publishingSims(rig, 1, { replay });
  const clock = createMovableClock();
  const router = await cacheRouter(rig, [sim!], { clock });
  return {
    sim: sim!,
    router,
    clock,
    turn: (number) => ask(router, "/v1/completions", { prompt: tokensOf(number, 100), max_tokens: 1 }),
    feed: async () => (await feedsOf(router))[0]!,
  };
}

interface FaultCase {
  readonly name: string;
  readonly fault: Json;
  readonly replay: boolean;
  readonly state: string;
  /** Of the prompts whose messages met the fault, those that are known all the same. */
  readonly known: readonly boolean[];
  readonly counts: Json;
}

/** What becomes of three messages after one that came as it should. */
const cases: readonly FaultCase[] = [
  {
    name: "lost messages are fetched from the engine's history",
    fault: { kind: "silence", count: 2 },
    replay: true,
    state: "live complete",
    known: [true, true, true],
    counts: { gaps: 0, missedMessages: 0, lastReplay: "complete" },
  },
  {
    name: "lost messages of an engine without a history are a hole",
    fault: { kind: "silence", count: 2 },
    replay: false,
    state: "partial gap",
    known: [false, false, true],
    counts: { gaps: 1, missedMessages: 2, lastReplay: null },
  },
  {
    name: "numbers that were never used are a hole that no history fills",
    fault: { kind: "gap", count: 3 },
    replay: true,
    state: "partial replay-failed",
    known: [true, true, true],
    counts: { gaps: 1, missedMessages: 3 },
  },
  {
    name: "messages that come twice count once",
    fault: { kind: "duplicate", count: 3 },
    replay: true,
    state: "live complete",
    known: [true, true, true],
    counts: { duplicates: 3, gaps: 0, restarts: 0 },
  },
  {
    name: "messages that come in another order are put in order",
    fault: { kind: "disorder", count: 1 },
    replay: false,
    state: "live complete",
    known: [true, true, true],
    counts: { gaps: 0, restarts: 0, duplicates: 0 },
  },
  {
    name: "messages that cannot be read are holes",
    fault: { kind: "junk", count: 2 },
    replay: true,
    state: "partial message-refused",
    known: [true, true, true],
    counts: { refusedMessages: 2, gaps: 2, missedMessages: 2, restarts: 0 },
  },
];

test.each(cases)("$name", async ({ fault, replay, state, known, counts }) => {
  const { sim, router, clock, turn, feed } = await scene({ replay });
  await turn(0);
  await untilHeard(router, [sim]);
  // On a busy machine the replay of the first connection brings the first message once more.
  if (replay) await untilFeed(router, sim, "live complete");
  const early = Number((await feed()).duplicates);
  await breakEvents(sim, fault);
  // Both messages of a pair that change places are on their way before the first is missed.
  await Promise.all([turn(1), turn(2)]);
  await turn(3);
  await untilHeard(router, [sim]);
  await untilFeed(router, sim, state);
  clock.advance(guessesMs);
  const { duplicates, ...others } = await feed();
  expect({ ...others, duplicates: Number(duplicates) - early }).toMatchObject(counts);
  const isComplete = state.startsWith("live");
  for (const [at, isKnown] of [true, ...known].entries()) {
    const { predicted, cached } = await turn(at);
    expect(cached).toBe(96);
    // What an engine with holes in its events was sent is believed for longer.
    if (isKnown || isComplete) expect(predicted, `prompt ${at}`).toBe(96);
  }
  expect((await feed()).blocks.gpu).toBe(6 * (1 + known.filter(Boolean).length));
  const page = await router.metrics();
  expect(page.sum("espalier_kv_feed_state", { feed: sim.id })).toBe(isComplete ? 4 : 3);
  for (const [name, kind] of [
    ["gaps", "gaps"],
    ["missedMessages", "missed_messages"],
    ["duplicates", "duplicates"],
    ["refusedMessages", "refused_messages"],
  ] as const) {
    expect(page.sum(`espalier_kv_feed_${kind}_total`, { feed: sim.id }), name).toBe((await feed())[name]);
  }
});

test("a history that does not answer leaves a hole, and the reason is told", async () => {
  const { sim, router, turn } = await scene();
  await turn(0);
  await untilHeard(router, [sim]);
  await breakEvents(sim, { kind: "replay-silent" });
  await breakEvents(sim, { kind: "silence", count: 1 });
  await turn(1);
  await turn(2);
  const feed = await untilFeed(router, sim, "partial replay-failed", 15_000);
  expect(feed).toMatchObject({ lastReplay: "failed", gaps: 1, missedMessages: 1, blocks: { gpu: 12 } });
  expect(feed.latestGaps).toEqual([{ from: 1, to: 1, reason: "replay-failed" }]);
  const warnings = router.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
  expect(warnings).toContain("KV event replay failed");
});

test("a router that comes when the history's beginning is gone knows the rest", async () => {
  const [sim] = await publishingSims(rig, 1);
  const send = (number: number) =>
    call(`${sim!.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "tiny", prompt: tokensOf(number, 100), max_tokens: 1 }),
    });
  for (let number = 0; number < 4; number++) await send(number);
  await breakEvents(sim!, { kind: "replay-truncated", keep: 2 });
  const router = await cacheRouter(rig, [sim!]);
  await untilFeed(router, sim!, "partial history-truncated");
  const turns: number[] = [];
  for (let number = 3; number >= 0; number--) {
    turns.push((await ask(router, "/v1/completions", { prompt: tokensOf(number, 100), max_tokens: 1 })).predicted);
  }
  expect(turns).toEqual([96, 96, 0, 0]);
});
