/**
 * Each guard that leaves targets out, after its cause has gone: every target is a candidate again, within the time that
 * the guard states. A reason without a row fails the type check.
 */

import { createSeededRandom, silentMeter } from "@espalier/core";
import { type AdapterReading, type TargetExclusion, targetExclusions } from "@espalier/engines";
import { createPolicy } from "@espalier/policies";
import { createVirtualTime, promptOf, tokensOf } from "@espalier/testing";
import { expect, test } from "vitest";
import {
  createAdmission,
  createAdmissionMeters,
  defaultAdmissionSettings,
  noFleetUsage,
  noPeerLoad,
} from "../src/admission/index.ts";
import type { Exclusion } from "../src/decision-log.ts";
import { prefillCountHoldMs, prefillCountSettleMs } from "../src/disaggregation/index.ts";
import { createFleetRoles } from "../src/pairs/fleet-roles.ts";
import { PairPlanner } from "../src/pairs/pair-planner.ts";
import { createSplitMetrics } from "../src/pairs/split-metrics.ts";
import { createPeerTraffic } from "../src/peer-traffic.ts";
import type { PrefixKnowledge } from "../src/prefix/prefix-knowledge.ts";
import { createTargetSelector } from "../src/select-target.ts";
import { PoolWork } from "../src/work/pool-work.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";
import { nothingShared } from "./shared-load.ts";

const request = { tenant: "", promptTokens: 200, expectedOutputTokens: 100, sizeBytes: 1, deadlineMs: undefined };
const features = { promptTokens: 200, expectedOutputTokens: 100, sessionKey: undefined, prefixKey: undefined };

function rig() {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const targets = ["a", "b", "c", "d", "e"].map((key, index) => scriptedTarget(index, key, { clock }));
  const admission = createAdmission<ScriptedTarget>({
    ...{ settings: defaultAdmissionSettings, clock, scheduler, meters: createAdmissionMeters(silentMeter) },
    ...{ others: noPeerLoad, fleet: noFleetUsage },
  });
  const reasons: string[] = [];
  const pool = { policy: createPolicy("predicted_latency"), work: new PoolWork(clock) };
  const selector = createTargetSelector({
    random: createSeededRandom(1),
    knowledge: {} as PrefixKnowledge,
    onExcluded: (reason) => reasons.push(reason),
  });
  const tried = new Set<string>();
  return {
    ...{ time, targets, tried, pool, selector, onlyEngine: undefined as string | undefined },
    accepts: (_: ScriptedTarget): boolean => true,
    /** A request arrives, and is sent to a target if there is one. */
    arrive(className: string, promptTokens = request.promptTokens) {
      const tickets: { end(): void }[] = [];
      const listener = {
        targets: () => targets,
        admitted(open: readonly ScriptedTarget[], { yields }: { readonly yields: boolean }) {
          tickets.push(open[0]!.load.begin({ promptTokens, expectedOutputTokens: 100, yields }));
        },
        refused() {},
      };
      admission.enter({ ...request, promptTokens, className, onlyEngine: undefined }, listener);
      return () => {
        for (const ticket of tickets) ticket.end();
      };
    },
    /** What a decision for a request of a class leaves out now. */
    excluded(className: string): readonly string[] {
      reasons.length = 0;
      const { onlyEngine, accepts } = this;
      const { excluded } = admission.explain({ className, deadlineMs: undefined, onlyEngine }, targets);
      const open = targets.filter(({ key }) => !excluded.has(key));
      selector.select(pool, open, { features, prompt: undefined }, { tried, onlyEngine, accepts, excluded });
      return [...reasons];
    },
  };
}

type Rig = ReturnType<typeof rig>;

/** Fills an engine with requests. @returns ends them */
function load({ load }: ScriptedTarget, count: number, promptTokens = 1, yields = false): () => void {
  const begun = Array.from({ length: count }, () => load.begin({ promptTokens, expectedOutputTokens: 1, yields }));
  return () => {
    for (const ticket of begun) ticket.end();
  };
}

/** The engine's metrics are read now. */
interface Guard {
  /** The time after the end of the cause in which it has to end. */
  readonly withinMs: number;
  /** Class of the request that is decided about. */
  readonly className?: string;
  /** Brings the cause about. @returns ends it */
  begin(rig: Rig): () => void;
}

/** Chats and one job are there. @returns ends the job */
function partition(one: Rig): () => void {
  for (const target of one.targets) load(target, 1);
  one.arrive("interactive");
  return one.arrive("batch");
}

function keepOut(target: ScriptedTarget, reason: TargetExclusion): () => void {
  Object.assign(target, { usable: false, unusableBy: reason });
  return () => {
    target.usable = true;
  };
}

const guards: Readonly<
  Record<Exclude<Exclusion, TargetExclusion | "cache_memory"> | "below_hotspot", readonly Guard[]>
> = {
  role: [
    {
      // Of engines that may do both, some are assigned to compute prompts for the others.
      withinMs: prefillCountHoldMs,
      begin(one) {
        const { clock } = one.time;
        for (const { engine } of one.targets) Object.assign(engine, { kvTransfer: { protocol: "nixl" } });
        const roles = createFleetRoles(clock, undefined);
        const limits = { applyRoleBalance: true, thresholdTokens: undefined, minTokens: 1, maxTokens: 2 };
        const { selector } = one;
        const metrics = createSplitMetrics(silentMeter);
        const planner = new PairPlanner({ limits, selector, dryRunSelector: selector, roles, metrics });
        const { balance, assignment } = roles.of("");
        const assign = (): void =>
          assignment.update(() => one.targets.map(({ engine }) => engine), balance.prefillShare);
        balance.observe({ uncachedTokens: 100_000, outputTokens: 10 });
        assign();
        one.time.advance(prefillCountSettleMs);
        assign();
        roles.of("").paired();
        one.accepts = (target) => planner.alonePredicate(one.pool, one.targets, one.tried)(target);
        return () => {};
      },
    },
    {
      withinMs: 0,
      begin(one) {
        one.accepts = ({ key }) => key !== "a";
        return () => {
          one.accepts = () => true;
        };
      },
    },
  ],
  tried: [
    {
      withinMs: 0,
      begin({ tried }) {
        tried.add("a");
        return () => tried.clear();
      },
    },
  ],
  stored_response: [
    {
      withinMs: 0,
      begin(one) {
        one.onlyEngine = "a";
        return () => {
          one.onlyEngine = undefined;
        };
      },
    },
  ],
  class_partition: [
    { withinMs: 0, begin: partition },
    {
      className: "batch",
      withinMs: 30_001,
      begin(one) {
        const busy = one.targets.map((target) => load(target, 1));
        one.arrive("batch");
        const end = one.arrive("interactive");
        return () => {
          end();
          for (const each of busy) each();
          for (const target of one.targets) load(target, 1, 1, true);
        };
      },
    },
  ],
  saturated: [
    {
      withinMs: 0,
      begin(one) {
        const endJob = partition(one);
        const end = one.targets.slice(0, 2).map((target) => load(target, 1, 1_000_000));
        return () => {
          endJob();
          for (const each of end) each();
        };
      },
    },
    {
      // By the engine's metrics, which no scrape renews.
      withinMs: 2_001,
      begin(one) {
        const endJob = partition(one);
        const { nowMs } = one.time.clock;
        const scrapedMs = nowMs();
        for (const { signals } of one.targets.slice(0, 2)) {
          Object.assign(signals, { waiting: 100, kvUse: 1, inFlightAtScrape: 1, ageMs: () => nowMs() - scrapedMs });
        }
        return endJob;
      },
    },
  ],
  below_hotspot: [{ withinMs: 0, begin: ({ targets }) => load(targets[0]!, 1_000) }],
};

/** How these end is the workers' business. */
const unusable = targetExclusions.map((reason) => {
  return { reason, withinMs: 0, begin: ({ targets }: Rig) => keepOut(targets[0]!, reason) };
});
const rows = [
  ...unusable,
  ...Object.entries(guards).flatMap(([reason, all]) => all.map((guard) => ({ reason, ...guard }))),
].map((row, at) => ({ className: "interactive", ...row, at }));

test.each(rows)("every engine is a candidate again once the cause of $reason has gone, case $at", (row) => {
  const one = rig();
  const end = row.begin(one);
  expect(one.excluded(row.className)).toContain(row.reason);
  end();
  one.time.advance(row.withinMs);
  expect(one.excluded(row.className)).toEqual([]);
});

/**
 * In a burst, prompts that are cold from the same block on meet at one engine. Of even traffic that is busy enough, each prompt goes
 * where there is least to do.
 */
test("prompts of a common prefix are spread again a moment after a burst", () => {
  const time = createVirtualTime();
  const shared = { ...nothingShared(5), originCount: 3 };
  const traffic = createPeerTraffic(time.clock, shared, () => false);
  const knowledge = { match() {}, describe() {} } as unknown as PrefixKnowledge;
  const selector = createTargetSelector({ random: createSeededRandom(3), knowledge, shared, traffic });
  const targets = Array.from({ length: 5 }, (_, index) =>
    scriptedTarget(index, `engine-${index}`, { clock: time.clock }),
  );
  const pool = { policy: createPolicy("predicted_latency"), work: new PoolWork(time.clock) };
  const prompt = promptOf(tokensOf("common", 1_024));
  const asked = { features: { ...features, promptTokens: 1_024 }, prompt };
  /** Prompts that come so many milliseconds apart. @returns how many engines got them */
  const send = (count: number, apartMs: number): number => {
    const used = new Set<string>();
    for (let sent = 0; sent < count; sent++) {
      used.add(selector.select(pool, targets, asked, { tried: new Set() })!.target.key);
      time.advance(apartMs);
    }
    return used.size;
  };
  send(200, 10);
  expect(send(20, 10)).toBe(5);
  expect(send(40, 0)).toBeLessThan(5);
  time.advance(40);
  expect(send(20, 10)).toBe(5);
});

const loaded = (slots: number): AdapterReading => ({ slots, running: [], waiting: [] });

/** Where adapters have taken all slots, another one costs two loads: its own, and that of the adapter that it evicts. */
test.each<[string, (adapters: ScriptedTarget["adapters"]) => void]>([
  ["are unloaded", (adapters) => adapters.unloaded("y")],
  [
    "are gone with the engine's process",
    (adapters) => {
      adapters.forget();
      adapters.accept(loaded(1), 2, true);
    },
  ],
])("an engine is as good as any for an adapter once the adapters in its slots %s", (_, end) => {
  const targets = [0, 1, 2].map((index) => scriptedTarget(index, `engine-${index}`));
  for (const { adapters } of targets) adapters.accept(loaded(1), 1, true);
  const [first] = targets;
  first!.adapters.sent("y");
  const states = (): unknown[] => targets.map(({ adapters }) => adapters.stateOf("x"));
  expect(states()).toEqual(["none", "room", "room"]);
  end(first!.adapters);
  expect(states()).toEqual(["room", "room", "room"]);
});
