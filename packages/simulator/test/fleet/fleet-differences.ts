import { createPrefixIndex } from "@espalier/prefix-index";
import type { RealView } from "../../src/fleet/router-view.ts";
import { blockMoveOf, type SimEngine } from "../../src/fleet/sim-engine.ts";
import type { SimFleet } from "../../src/fleet/sim-fleet.ts";
import { viewsOf } from "./fleet-rig.ts";

/** What routers that run do not know of the engines that run, or of each other's load, in words. */
export function differencesIn(fleet: SimFleet): string[] {
  const views = viewsOf(fleet);
  return [...views].flatMap(([router, view]) => [
    ...fleet.engines.filter(({ isUp }) => isUp).flatMap((engine) => factDifferences(router, view, engine)),
    ...fleet.engines.flatMap((engine) => loadDifferences(router, fleet, engine)),
  ]);
}

function factDifferences(router: number, view: RealView, engine: SimEngine): string[] {
  const { key, number, messages } = engine;
  const found: string[] = [];
  const state = view.tier.replica.fold.state(key);
  const last = messages.length - 1;
  if (last >= 0 && state?.last?.sequence !== last) {
    found.push(`router ${router} has ${key} up to ${state?.last?.sequence}, not ${last}`);
  }
  if (view.index.digest(number).join() !== digestOf(engine)) {
    found.push(`router ${router} holds other blocks of ${key} than the engine`);
  }
  const quality = view.tier.replica.feeds.qualityOf(key);
  if (quality !== "complete") found.push(`router ${router} takes ${key} for ${quality}`);
  return found;
}

function loadDifferences(router: number, fleet: SimFleet, { number, key }: SimEngine): string[] {
  let actual = 0;
  for (const seat of fleet.routerNodes) {
    if (seat.number !== router && seat.router) actual += seat.router.targets[number]!.load.inFlight;
  }
  const believed = fleet.routerNodes[router]!.router!.view.sharedLoad.inFlight[number]!;
  return believed === actual ? [] : [`router ${router} sees ${believed} of the others at ${key}, not ${actual}`];
}

/** Of what the engine's messages leave behind. */
function digestOf({ messages }: SimEngine): string {
  const index = createPrefixIndex({ maxTargets: 1 });
  for (const { changes } of messages) {
    let from = 0;
    for (let run = 0; run < changes.runs; run++) {
      const to = changes.ends[run]!;
      const move = blockMoveOf(changes.kinds[run]!);
      if (move?.isStored) index.storeFacts(0, move.tier, changes.words, from, to);
      else if (move) index.removeFacts(0, move.tier, changes.words, from, to);
      else index.clearFacts(0);
      from = to;
    }
  }
  return index.digest(0).join();
}
