import { createSeededRandom, type EngineRole } from "@espalier/core";
import { createPolicy, defaultObjectives, type PolicyName } from "@espalier/policies";
import type { AdmissionSettings, EngineOrder, Placement, PrefixKnowledge } from "@espalier/routing";
import { createVirtualTime, type VirtualTime } from "@espalier/testing";
import { createDelayedTier } from "../../src/delayed/delayed-tier.ts";
import type { FrontOutcome } from "../../src/fleet/front.ts";
import type { RouterView } from "../../src/fleet/router-view.ts";
import { ModelledEngine, type SimEngine } from "../../src/fleet/sim-engine.ts";
import { SimRouter, type SplitSettings } from "../../src/fleet/sim-router.ts";
import { createReadings, SimTarget } from "../../src/fleet/sim-target.ts";
import { defaultTiming } from "../../src/run.ts";
import { engineParameters, type RequestShape, requestOf } from "./requests.ts";

export const hopDelayMs = 2;

export interface RouterRig {
  readonly time: VirtualTime;
  readonly engines: readonly SimEngine[];
  readonly router: SimRouter;
  readonly outcomes: readonly FrontOutcome[];
  /** What was told of each placement, in order: its target, then what became of it. */
  readonly placed: readonly string[];
  send(shape: RequestShape): void;
  /** Sums of all targets' load. */
  load(): {
    readonly inFlight: number;
    readonly pending: number;
    readonly decode: number;
    readonly outstanding: number;
  };
}

export interface RouterRigOptions {
  readonly engines?: number;
  readonly policy?: PolicyName;
  readonly admission?: AdmissionSettings;
  readonly engineOrder?: EngineOrder;
  readonly roles?: readonly EngineRole[];
  readonly split?: SplitSettings;
}

/** One router alone, started, in front of engines whose events it reads. */
export async function createRouterRig({
  engines: count = 3,
  policy = "least_work",
  admission,
  engineOrder = "arrival",
  roles = [],
  split,
}: RouterRigOptions = {}): Promise<RouterRig> {
  const time = createVirtualTime();
  const { clock, scheduler } = time;
  const engines = Array.from(
    { length: count },
    (_, number) =>
      new ModelledEngine({
        ...{ number, parameters: engineParameters, clock, scheduler, hasEvents: true, keepsMessages: false },
      }),
  );
  const view: { value?: RouterView } = {};
  const readings = createReadings(count);
  const onChange = (target: SimTarget): void => view.value?.loadChanged(target);
  const targets = engines.map(
    (model) =>
      new SimTarget({
        ...{ model, index: model.number, clock, readings, onChange, delayMs: hopDelayMs, role: roles[model.number] },
      }),
  );
  const tier = createDelayedTier({
    ...{ sharing: "mesh", routers: 1, engines, timing: defaultTiming, clock, scheduler },
  });
  const placed: string[] = [];
  const seen = tier.viewOf(0, targets);
  view.value = {
    ...seen,
    knowledge: watched(seen.knowledge, placed),
    start: () => seen.start(),
    stop: () => seen.stop(),
  };
  const router = new SimRouter({
    ...{ view: view.value, targets, clock, trueClock: clock, scheduler, scrapeMs: 1_000 },
    random: createSeededRandom(3),
    policy: createPolicy(policy),
    objectives: defaultObjectives,
    admission,
    engineOrder,
    split,
  });
  await router.start();
  const outcomes: FrontOutcome[] = [];
  const sum = (of: (target: SimTarget) => number): number => targets.reduce((total, target) => total + of(target), 0);
  return {
    ...{ time, engines, router, outcomes, placed },
    send: (shape) => router.handle(requestOf(shape), (outcome) => outcomes.push(outcome)),
    load: () => ({
      inFlight: sum(({ load }) => load.inFlight),
      pending: sum(({ load }) => load.pendingPrefillTokens),
      decode: sum(({ load }) => load.decodeTokens),
      outstanding: sum(({ load }) => load.outstandingOutputTokens),
    }),
  };
}

export const idleLoad = { inFlight: 0, pending: 0, decode: 0, outstanding: 0 } as const;

function watched(knowledge: PrefixKnowledge, placed: string[]): PrefixKnowledge {
  return {
    ...knowledge,
    place(target, prompt, matchedTokens) {
      const placement = knowledge.place(target, prompt, matchedTokens);
      placed.push(target.key);
      return messages(placement, (what) => placed.push(`${target.key} ${what}`));
    },
  };
}

function messages(placement: Placement, tell: (what: string) => void): Placement {
  return {
    computed() {
      tell("computed");
      placement.computed();
    },
    withdraw() {
      tell("withdrawn");
      placement.withdraw();
    },
    answered(cachedTokens) {
      tell(`answered ${cachedTokens}`);
      placement.answered(cachedTokens);
    },
  };
}
