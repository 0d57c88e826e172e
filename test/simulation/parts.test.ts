import { createSeededRandom } from "@espalier/core";
import type { FleetControls } from "@espalier/simulator";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { Conversations } from "./conversations.ts";
import { createEventLog, logged } from "./event-log.ts";
import { type FaultKind, faultKindNames, faultKinds } from "./fault-kinds.ts";
import { CountedCuts, type FaultWorld } from "./fault-world.ts";
import { noCounts } from "./run-counts.ts";
import { commandOf } from "./run-seed.ts";
import { readSeedRequest } from "./seeds.ts";
import { shrinkKinds } from "./shrink.ts";
import { drawSwarm } from "./swarm.ts";

test("the hash of a log depends on the time, the kind, the numbers and the order of its events", () => {
  const digestOf = (...events: readonly (readonly [number, number, number])[]): string => {
    const log = createEventLog();
    for (const [atMs, one, other] of events) log.add(atMs, logged.role, one, other);
    return log.digest();
  };
  const same = digestOf([1, 2, 3], [4, 5, 6]);
  expect(digestOf([1, 2, 3], [4, 5, 6])).toBe(same);
  const others = [
    digestOf(),
    digestOf([1, 2, 3]),
    digestOf([4, 5, 6], [1, 2, 3]),
    digestOf([1, 2, 3], [4.000001, 5, 6]),
    digestOf([1, 3, 2], [4, 5, 6]),
    digestOf([1, 2, 3], [4, 5, 6], [0, 0, 0]),
  ];
  expect(new Set([same, ...others]).size).toBe(1 + others.length);
});

test("an event log does what 64-bit FNV-1a over words does with big integers", () => {
  const log = createEventLog();
  let expected = 0xcbf2_9ce4_8422_2325n;
  const random = createSeededRandom(5);
  for (let event = 0; event < 500; event++) {
    const atMs = random.float() * 10_000;
    const numbers = [logged.sent, random.integer(2 ** 32), random.integer(2 ** 32), random.integer(100)] as const;
    log.add(atMs, ...numbers);
    const words = [...new Uint32Array(Float64Array.of(atMs).buffer), ...numbers];
    for (const word of words) expected = BigInt.asUintN(64, (expected ^ BigInt(word)) * 0x100_0000_01b3n);
  }
  expect(log.digest()).toBe(expected.toString(16).padStart(16, "0"));
  expect(log.events).toBe(500);
});

test("shrinking leaves what is needed, whatever else is on", async () => {
  const kinds = ["a", "b", "c", "d", "e", "f"];
  let runs = 0;
  const needs =
    (...needed: readonly string[]) =>
    async (left: readonly string[]): Promise<boolean> => {
      runs++;
      return needed.every((kind) => left.includes(kind));
    };
  expect(await shrinkKinds(kinds, needs("b", "e"))).toEqual(["b", "e"]);
  expect(await shrinkKinds(kinds, needs())).toEqual([]);
  expect(await shrinkKinds(kinds, needs(...kinds))).toEqual(kinds);
  expect(runs).toBeLessThanOrEqual(3 * 21);
});

test("one that fails with any two of three is shrunk to two", async () => {
  const left = await shrinkKinds(["a", "b", "c"], async (kinds) => kinds.length >= 2);
  expect(left).toHaveLength(2);
});

test("leaving out kinds of faults changes nothing else of what a seed draws", () => {
  for (let seed = 1; seed < 50; seed++) {
    const { kinds, ...all } = drawSwarm(seed);
    const { kinds: fewer, ...rest } = drawSwarm(seed, ["kill", "pause"]);
    expect(rest).toEqual(all);
    expect(fewer).toEqual(kinds.filter((kind) => kind === "kill" || kind === "pause"));
  }
});

test("over many seeds every kind of fault is on somewhere and off somewhere", () => {
  const swarms = Array.from({ length: 100 }, (_, seed) => drawSwarm(seed));
  for (const kind of faultKindNames) {
    const on = swarms.filter(({ kinds }) => kinds.includes(kind)).length;
    expect(on, kind).toBeGreaterThan(10);
    expect(on, kind).toBeLessThan(90);
  }
});

/** What a kind of fault does to a fleet of which all is always up. */
function played(kind: FaultKind, seed: number): readonly string[] {
  const time = createVirtualTime();
  const calls: string[] = [];
  const note =
    (name: string) =>
    (...values: unknown[]): void => {
      calls.push(`${Math.round(time.clock.nowMs())} ${name} ${JSON.stringify(values)}`);
    };
  const actions = [
    "partition",
    "cutLink",
    "mendLink",
    "resetLink",
    "setLinkSpeed",
    "heal",
    "killRouter",
    "leaveRouter",
  ];
  const more = ["startRouter", "pauseRouter", "resumeRouter", "jumpClock", "setDrift", "killEngine", "startEngine"];
  const events = ["loseEvents", "setReplay"];
  const fleet = {
    ...Object.fromEntries([...actions, ...more, ...events].map((name) => [name, note(name)])),
    ...{ routerCount: 5, engineCount: 4, isRouterUp: () => true, isEngineUp: () => true },
  } as unknown as FleetControls;
  const world: FaultWorld = {
    ...{ fleet, scheduler: time.scheduler, random: createSeededRandom(seed), paceMs: 500 },
    ...{ cuts: new CountedCuts(fleet), counts: noCounts(), spares: [5, 6], replaced: new Set<number>() },
    ...{ paused: new Set<number>(), isOver: false, note: () => {} },
  };
  faultKinds[kind](world);
  time.advance(20_000);
  world.isOver = true;
  const before = calls.length;
  time.advance(100_000);
  expect(calls.length, `${kind} goes on after all was healed`).toBe(before);
  return calls;
}

test.each(faultKindNames.filter((kind) => kind !== "duplicates"))(
  "%s: does something, and stops when told to",
  (kind) => {
    const [first, again, other] = [played(kind, 1), played(kind, 1), played(kind, 2)];
    expect(first.length).toBeGreaterThan(1);
    expect(again).toEqual(first);
    expect(other).not.toEqual(first);
  },
);

test("a direction that two faults cut is mended when both are over", () => {
  const calls: string[] = [];
  const fleet = {
    routerCount: 3,
    cutLink: (from: number, to: number) => calls.push(`cut ${from}>${to}`),
    mendLink: (from: number, to: number) => calls.push(`mend ${from}>${to}`),
  } as unknown as FleetControls;
  const cuts = new CountedCuts(fleet);
  const first = cuts.separate([0], [1]);
  const second = cuts.cut(0, 1);
  first();
  first();
  expect(calls.filter((call) => call.startsWith("mend"))).toEqual(["mend 1>0"]);
  second();
  expect(calls.filter((call) => call.startsWith("mend"))).toEqual(["mend 1>0", "mend 0>1"]);
});

test("turns of a conversation begin with what was said before; conversations share no more than their beginning", () => {
  const conversations = new Conversations({ random: createSeededRandom(3), count: 6, maxTokens: 700 });
  const last = new Map<number, Uint32Array>();
  const seen = new Map<string, number>();
  for (let sent = 0; sent < 400; sent++) {
    const request = conversations.next()!;
    const { chain, session, promptTokens, outputTokens } = request;
    expect(chain.length).toBe(2 * Math.floor((promptTokens + outputTokens) / 16));
    expect(promptTokens + outputTokens).toBeLessThanOrEqual(700);
    const before = last.get(session);
    if (before) expect(chain.subarray(0, before.length)).toEqual(before);
    last.set(session, chain);
    for (let block = 6; block < chain.length / 2; block++) {
      const name = `${chain[2 * block]} ${chain[2 * block + 1]}`;
      expect(seen.get(name) ?? session).toBe(session);
      seen.set(name, session);
    }
    conversations.ended(request, true);
  }
  expect(last.size).toBeGreaterThan(20);
});

test("a conversation waits for its answer, and ends without one", () => {
  const conversations = new Conversations({ random: createSeededRandom(3), count: 2, maxTokens: 700 });
  const [one, other] = [conversations.next(), conversations.next()];
  expect(new Set([one?.session, other?.session]).size).toBeLessThanOrEqual(2);
  expect(conversations.next()).toBeUndefined();
  conversations.ended(one!, false);
  expect(conversations.next()?.session).not.toBe(one?.session);
});

test("the command of a failure is read as it was written", () => {
  expect(commandOf(7, ["kill", "clock-jump"])).toBe("npm run simulate:seeds -- --seed 7 --only kill,clock-jump");
  expect(commandOf(7, [])).toBe("npm run simulate:seeds -- --seed 7 --only none");
  const request = (only?: string) => JSON.stringify({ first: 7, count: 3, step: 2, only, reportFile: "x" });
  expect(readSeedRequest(request("kill,clock-jump"))).toEqual({
    seeds: [7, 9, 11],
    only: ["kill", "clock-jump"],
    reportFile: "x",
    traceFile: undefined,
  });
  expect(readSeedRequest(request("none")).only).toEqual([]);
  expect(readSeedRequest(request()).only).toEqual(faultKindNames);
  expect(() => readSeedRequest(request("kill,kil"))).toThrow(/no fault is called kil/);
});
