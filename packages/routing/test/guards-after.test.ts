/**
 * Each guard that leaves targets out, after its cause has gone: every target is a candidate again, within the time that
 * the guard states. A reason without a row fails the type check.
 */
import {
  createAdmission,
  createAdmissionMeters,
  defaultAdmissionSettings,
  noFleetUsage,
  noPeerLoad,
} from "@espalier/admission";
import { createSeededRandom, silentMeter } from "@espalier/common";
import { createPolicy } from "@espalier/policies";
import { createVirtualTime } from "@espalier/testing";
import { type TargetExclusion, targetExclusions } from "@espalier/workers";
import { expect, test } from "vitest";
import type { Exclusion } from "../src/decision-log.ts";
import type { PrefixKnowledge } from "../src/prefix/prefix-knowledge.ts";
import { createTargetSelector } from "../src/select-target.ts";
import { type ScriptedTarget, scriptedTarget } from "./scripted-target.ts";

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
  const selector = createTargetSelector({
    random: createSeededRandom(1),
    knowledge: {} as PrefixKnowledge,
    onLeftOut: (reason) => reasons.push(reason),
  });
  const tried = new Set<string>();
  return {
    ...{ time, targets, tried, onlyEngine: undefined as string | undefined },
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
    leftOut(className: string): readonly string[] {
      reasons.length = 0;
      const { onlyEngine, accepts } = this;
      const leftOut = admission.explain({ className, deadlineMs: undefined, onlyEngine }, targets);
      const open = targets.filter(({ key }) => !leftOut.has(key));
      const pool = { policy: createPolicy("predicted_latency") };
      selector.select(pool, open, { features, prompt: undefined }, { tried, onlyEngine, accepts, leftOut });
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
  expect(one.leftOut(row.className)).toContain(row.reason);
  end();
  one.time.advance(row.withinMs);
  expect(one.leftOut(row.className)).toEqual([]);
});
