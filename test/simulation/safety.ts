import { tier } from "@espalier/prefix-index";
import type { SimFleet } from "@espalier/simulator";
import type { EngineTruth } from "./engine-truth.ts";
import { FuzzyStates } from "./fuzzy-states.ts";
import { type LiveRouter, liveRouters } from "./live-router.ts";

/**
 * What no router may ever hold more of, in runs as small as these. They are far above what is reached and far below what
 * anything would come to that grows with every request.
 */
export const bounds = {
  /** Timers of one process, besides one per request in it. */
  timers: 400,
  factItems: 2_000,
  journals: 40,
  foldBytes: 4 * 1_024 * 1_024,
  bufferedBytes: 8 * 1_024 * 1_024,
} as const;

/** What must hold at every moment, whatever has gone wrong before, and does not, in words. */
export function safetyProblems(fleet: SimFleet, truth: EngineTruth, fuzzy = new FuzzyStates()): string[] {
  return liveRouters(fleet).flatMap((router) =>
    [...loadProblems(router), ...factProblems(router, fleet, { truth, fuzzy })].map(
      (problem) => `router ${router.number}: ${problem}`,
    ),
  );
}

/** What routers hold more of than they may, in words. */
export function sizeProblems(fleet: SimFleet): string[] {
  return liveRouters(fleet).flatMap((router) =>
    sizesOver(router).map((problem) => `router ${router.number}: ${problem}`),
  );
}

function loadProblems({ view, ownLoads }: LiveRouter): string[] {
  const found: string[] = [];
  const { inFlight, pendingPrefillTokens, decodeTokens, pendingWorkMs } = view.sharedLoad;
  for (const [name, values] of Object.entries({
    inFlight,
    pendingPrefillTokens,
    decodeTokens,
    pendingWorkMs,
  })) {
    const least = Math.min(...values);
    if (!(least >= 0)) found.push(`others' ${name} is ${least}`);
  }
  for (const { key, load } of ownLoads) {
    const least = Math.min(load.inFlight, load.pendingPrefillTokens, load.decodeTokens, load.pendingWorkMs);
    if (!(least >= 0)) found.push(`own load at ${key} is ${least}`);
  }
  return found;
}

/** Facts of a complete feed are what the engine held when it sent the message that was applied last. */
function factProblems(
  { number: router, epoch, view }: LiveRouter,
  { engines }: SimFleet,
  { truth, fuzzy }: { readonly truth: EngineTruth; readonly fuzzy: FuzzyStates },
): string[] {
  const found: string[] = [];
  for (const { key, number } of engines) {
    const blocks = view.index.factBlockCount(number, tier.gpu);
    if (blocks > truth.mostBlocks(number)) found.push(`${blocks} blocks of ${key}, which never stored as many`);
    const state = view.tier.replica.fold.state(key);
    if (!state?.last || !state.isComplete || state.progress === "loading") continue;
    const expected = truth.digestAt(number, state.last);
    if (expected === undefined) found.push(`${key} never sent the message ${state.last.sequence} that was applied`);
    else if (fuzzy.has({ router, epoch, engine: number }, state.last.sequence)) continue;
    else if (view.index.digest(number).join(".") !== expected) {
      found.push(`facts of ${key} are not what it held after message ${state.last.sequence} (${state.progress})`);
    }
  }
  return found;
}

function sizesOver({ view, timers, ownLoads, isPaused }: LiveRouter): string[] {
  const { replica, backend } = view.tier;
  const { journals, foldBytes } = replica.describe();
  const inFlight = ownLoads.reduce((sum, { load }) => sum + load.inFlight, 0);
  const sizes = {
    // What arrives at a process that is stopped waits in its sockets, which are timers here.
    timers: isPaused ? 0 : timers - 2 * inFlight,
    factItems: journals.ownFactItems,
    journals: journals.documents,
    foldBytes,
    bufferedBytes: Math.max(0, ...backend.describe().members.map(({ bufferedBytes }) => bufferedBytes)),
  };
  return Object.entries(bounds).flatMap(([name, bound]) => {
    const size = sizes[name as keyof typeof bounds];
    return size > bound ? [`${name} are ${size}, more than ${bound}`] : [];
  });
}
