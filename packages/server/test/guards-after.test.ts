/** What keeps requests from an overflow backend, after its cause has gone: the backend gets them again, at every router. */
import { silentMeter } from "@espalier/core";
import type { Note, NoteChannel } from "@espalier/shared-tree";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { CompiledConfig, OverflowConfig } from "../src/config/index.ts";
import { Overflow, OverflowBackend, type OverflowedRequest } from "../src/overflow/overflow.ts";
import { publishSpendMs } from "../src/overflow/overflow-spend.ts";

const backend: OverflowConfig = {
  ...{ name: "paid", url: "http://127.0.0.1:9", api: "openai", key: undefined, maxQueued: 0 },
  ...{ models: new Map([["m", "m"]]), when: new Set(["no_engine"] as const), exceptTenants: new Set<string>() },
  price: { input: 1e6, output: 0 },
  budget: { hour: 10, day: Number.POSITIVE_INFINITY },
};
const request = {
  ...{ pool: { model: "m" }, family: "openai", features: { promptTokens: 1, expectedOutputTokens: 1 } },
  overflow: { tenant: "", stripUsage: false, bodyFor: () => [] },
} as unknown as OverflowedRequest;

const hourMs = 3_600_000;

/** Two routers that hear each other's notes at once. */
async function routers() {
  const time = createVirtualTime();
  const listeners: ((note: Note) => void)[] = [];
  const channelOf = (self: number): NoteChannel => ({
    post(key, bytes) {
      const origin = { router: `router-${self}`, epoch: 1 } as Note["origin"];
      for (const [at, hear] of listeners.entries()) if (at !== self) hear({ origin, key, bytes, ageMs: 0 });
      return true;
    },
    onNote(listener) {
      listeners[self] = listener;
      return () => {};
    },
  });
  const all = [0, 1].map((self) => {
    return new Overflow({
      ...{ config: { overflow: [backend] } as unknown as CompiledConfig, clock: time.clock, scheduler: time.scheduler },
      ...{ meter: silentMeter, channel: channelOf(self) },
    });
  });
  for (const overflow of all) await overflow.start();
  return { time, all, stop: () => Promise.all(all.map((overflow) => overflow.stop())) };
}

type Routers = Awaited<ReturnType<typeof routers>>;

interface Guard {
  readonly guard: string;
  readonly withinMs: number;
  readonly withheld: readonly string[];
  /** @returns ends the cause */
  begin(routers: Routers, backend: OverflowBackend): () => void;
}

const guards: readonly Guard[] = [
  {
    guard: "a budget that is reserved, and not spent",
    withinMs: publishSpendMs,
    withheld: ["budget", "budget"],
    begin({ all: [one] }, paid) {
      const reserved = one!.reserve(paid, 10);
      return () => reserved.settle(0);
    },
  },
  {
    guard: "the budget of an hour",
    withinMs: hourMs,
    withheld: ["budget", "budget"],
    begin({ all: [one] }, paid) {
      one!.reserve(paid, 1).settle(10);
      return () => {};
    },
  },
  {
    guard: "a request of the hour before that costs more than it reserved",
    withinMs: publishSpendMs,
    withheld: ["budget", "budget"],
    begin({ all: [one], time }, paid) {
      const reserved = one!.reserve(paid, 10);
      return () => {
        time.advance(hourMs);
        reserved.settle(1_000);
      };
    },
  },
  {
    guard: "a failure",
    withinMs: 5_000,
    withheld: ["paused", "paid"],
    begin({ all: [one] }, paid) {
      one!.pause(paid, undefined);
      return () => {};
    },
  },
  {
    guard: "a failure that asks for a day",
    withinMs: 60_000,
    withheld: ["paused", "paid"],
    begin({ all: [one] }, paid) {
      one!.pause(paid, 24 * hourMs);
      return () => {};
    },
  },
];

test.each(guards)("every router sends requests to an overflow backend again once $guard has passed", async (row) => {
  const rig = await routers();
  const { all, time } = rig;
  const found = (): unknown[] =>
    all.map((overflow) => {
      const taker = overflow.find(request, "no_engine");
      return taker instanceof OverflowBackend ? taker.config.name : taker;
    });
  const end = row.begin(rig, all[0]!.backends[0]!);
  time.advance(publishSpendMs);
  expect(found()).toEqual(row.withheld);
  end();
  time.advance(row.withinMs);
  expect(found()).toEqual(["paid", "paid"]);
  await rig.stop();
});
