import { createSeededRandom } from "@espalier/core";
import { createPrefixMatches } from "@espalier/prefix-index";
import type { PromptBlocks } from "@espalier/routing";
import { createChainBuilder } from "../../src/clients/conversation.ts";
import { blockTokens } from "../../src/clients/workload.ts";
import type { RouterNode } from "../../src/fleet/router-node.ts";
import type { RealView } from "../../src/fleet/router-view.ts";
import { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { defaultTiming, type RunOptions } from "../../src/run.ts";
import { parametersOf } from "../../src/simulate.ts";
import { viewsOf } from "../fleet/fleet-rig.ts";
import { smallRun, smallScenario } from "./small-scenario.ts";

/** Milliseconds from when one router knows until another does, one entry for each other router and thing told. */
export interface MeasuredDelays {
  readonly facts: readonly number[];
  readonly placements: readonly number[];
  readonly load: readonly number[];
}

export interface DelayMeasurement {
  readonly seed: number;
  readonly routers: number;
  readonly engines: number;
  /** Sessions that begin in a second, of two requests on average. */
  readonly startsPerS: number;
  readonly durationS: number;
}

/** How often it is looked whether something has arrived: the error of what is measured. */
const lookMs = 0.5;
/** Between two things whose way is watched. */
const gapMs = 15;
/** Nothing takes longer but what is lost. */
const maxLooks = 800;
/** A prompt that no client sends, so that its load is seen among all others. */
const markTokens = 2 ** 24;

/** Runs real routers under load and watches what one of them says on its way to the others. */
export async function measureDelays(options: DelayMeasurement): Promise<MeasuredDelays> {
  const { seed, routers, engines, startsPerS, durationS } = options;
  const scenario = smallScenario({ startsPerS, durationS });
  const run: Omit<RunOptions, "admission"> = smallRun({ scenario, routers, engines, links: "real", seed });
  const fleet = new SimFleet({ ...run, parameters: parametersOf(run), timing: defaultTiming });
  await fleet.start();
  const facts: number[] = [];
  watchFacts(fleet, facts);
  const { clock, scheduler } = fleet.time;
  const workload = scenario.createWorkload({ seed, engines, kvTokens: 0, scale: 1 });
  workload.start({ clock, scheduler, send: (request, ended) => fleet.send(request, ended), finished() {} });
  // The first prompts are like no others: everything is new.
  await fleet.run(clock.nowMs() + 1_000);
  const placements: number[] = [];
  const load: number[] = [];
  const random = createSeededRandom(seed);
  const untilMs = clock.nowMs() + (durationS - 1.5) * 1_000;
  for (let mark = 0; clock.nowMs() < untilMs; mark++) {
    const route = { fleet, seat: fleet.routerNodes[random.integer(routers)]!, engine: random.integer(engines), mark };
    placements.push(...(await placementDelays(route)));
    load.push(...(await loadDelays(route)));
    await fleet.run(clock.nowMs() + gapMs * random.float());
  }
  await fleet.stop();
  return { facts, placements, load };
}

/** From when the router that reads an engine has a message until another one has applied it. */
function watchFacts(fleet: SimFleet, facts: number[]): void {
  const { clock, scheduler } = fleet.time;
  const readMs = fleet.engines.map((engine) => {
    const moments: number[] = [];
    engine.onMessage(({ sequence }) => {
      moments[sequence] = clock.nowMs() + defaultTiming.eventDelayMs;
    });
    return moments;
  });
  const watched = [...viewsOf(fleet).values()].flatMap(({ tier: { replica } }) =>
    fleet.engines.map(({ key, number }) => ({ replica, key, moments: readMs[number]!, next: 0 })),
  );
  scheduler.every(lookMs, () => {
    for (const one of watched) {
      const { replica, key, moments } = one;
      const last = replica.fold.state(key)?.last?.sequence ?? -1;
      if (last < one.next) continue;
      const isReader = replica.feeds.claimOf(key)?.origin.router === replica.ports.origin.router;
      for (; one.next <= last; one.next++) if (!isReader) facts.push(clock.nowMs() - moments[one.next]!);
    }
  });
}

interface Route {
  readonly fleet: SimFleet;
  readonly seat: RouterNode;
  readonly engine: number;
  readonly mark: number;
}

function placementDelays({ fleet, seat, engine, mark }: Route): Promise<number[]> {
  const chain = createChainBuilder({ seed: 77 });
  const blockCount = 8;
  chain.append(mark, blockCount * blockTokens);
  const words = chain.view();
  const tokens = blockCount * blockTokens;
  const prompt: PromptBlocks = {
    chain: words,
    contents: words,
    blockCount,
    blockSize: blockTokens,
    tokens,
    from: "tokens",
  };
  const router = seat.router!;
  const matches = createPrefixMatches(fleet.engineCount);
  const placement = router.view.knowledge.place(router.targets[engine]!, prompt, 0);
  return untilSeen(fleet, seat, ({ index }) => {
    index.match(words, blockCount, fleet.time.clock.nowMs(), matches);
    return matches.isListed[engine] === 1 && matches.placedBlocks[engine]! > 0;
  }).finally(() => placement.withdraw());
}

function loadDelays({ fleet, seat, engine }: Route): Promise<number[]> {
  const { load } = seat.router!.targets[engine]!;
  const ticket = load.begin({ promptTokens: markTokens, expectedOutputTokens: 1 });
  return untilSeen(fleet, seat, ({ sharedLoad }) => {
    return sharedLoad.pendingPrefillTokens[engine]! > markTokens / 2;
  }).finally(() => ticket.end());
}

/** Lets time pass until all other routers see something. @returns how long each took */
async function untilSeen(fleet: SimFleet, from: RouterNode, isSeen: (view: RealView) => boolean): Promise<number[]> {
  const { clock } = fleet.time;
  const fromMs = clock.nowMs();
  const waiting = new Map([...viewsOf(fleet)].filter(([router]) => router !== from.number));
  const delays: number[] = [];
  for (let looks = 0; waiting.size > 0; looks++) {
    if (looks === maxLooks) throw new Error("what a router said did not arrive");
    await fleet.run(clock.nowMs() + lookMs);
    for (const [router, view] of waiting) {
      if (!isSeen(view)) continue;
      waiting.delete(router);
      delays.push(clock.nowMs() - fromMs);
    }
  }
  return delays;
}
