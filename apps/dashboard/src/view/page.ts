/// <reference lib="dom" />
import type { FleetState } from "../follow/fleet-follower.ts";
import { countHealthy, engineRows } from "../model/engines.ts";
import type { PrefixRow } from "../model/prefixes.ts";
import { queueRows } from "../model/queues.ts";
import { countAlive, routerRows } from "../model/routers.ts";
import { createBar } from "./bar.ts";
import { createDecisions } from "./decisions.ts";
import { setText } from "./dom.ts";
import { createEngines } from "./engines.ts";
import { createHues } from "./hues.ts";
import { noticeText } from "./notice-text.ts";
import { createPlots } from "./plots.ts";
import { createPrefixes } from "./prefixes.ts";
import { createQueues } from "./queues.ts";
import { createRouters } from "./routers.ts";
import { createSessions } from "./sessions.ts";
import { createTiles } from "./tiles.ts";

export interface PageState {
  readonly fleet: FleetState;
  readonly prefixes: readonly PrefixRow[];
  /** Milliseconds since the Unix epoch. */
  readonly nowMs: number;
}

/** Everything below `body`. */
export interface Page {
  update(state: PageState): void;
  /** Once a second: it is drawn anew. */
  updatePlots(state: FleetState): void;
}

export function createPage(): Page {
  const hueOf = createHues();
  const [bar, notice, main] = [byId("bar"), byId("notice"), byId("main")];
  const parts = {
    bar: createBar(bar),
    tiles: createTiles(),
    plots: createPlots(),
    engines: createEngines(hueOf),
    routers: createRouters(),
    decisions: createDecisions(hueOf),
    sessions: createSessions(hueOf),
    prefixes: createPrefixes(hueOf),
    queues: createQueues(),
  };
  const { bar: _, ...inMain } = parts;
  main.replaceChildren(...Object.values(inMain).map(({ node }) => node));
  let hasBeenLive = false;
  return {
    updatePlots: ({ series }) => parts.plots.update(series),
    update({ fleet, prefixes, nowMs }) {
      const { source, overview, decisions, skipped, sessions, takeovers, followed, live, rates, moved } = fleet;
      const isLive = source?.isLive === true;
      hasBeenLive ||= isLive;
      const engines = overview ? engineRows(overview) : [];
      const routers = routerRows(overview?.links, followed, isLive ? source.router : undefined);
      const told = live.map(({ queues }) => queues);
      for (const { key } of engines) hueOf(key);
      parts.bar.update({
        ...{ source: source?.router, isLive, policy: decisions[0]?.policy ?? "" },
        models: [...new Set(overview?.engines.flatMap(({ models }) => models) ?? [])],
      });
      setText(notice, noticeText({ moved, isLive, hasBeenLive, nowMs }));
      parts.tiles.update({
        ...{ isLive, rates, engines: countHealthy(engines) },
        inFlight: engines.reduce((sum, { inFlight }) => sum + inFlight, 0),
        queued: queueRows(told).reduce((sum, { queued }) => sum + queued, 0),
        routers: countAlive(routers),
        blocks: engines.reduce((sum, { blocks }) => sum + blocks, 0),
      });
      parts.engines.update(engines);
      parts.routers.update(routers);
      // Engines get their colours in the order of the fleet, whatever is decided before that is known.
      if (overview) parts.decisions.update({ decisions, skipped });
      if (overview) parts.sessions.update({ sessions, takeovers, letterOf });
      parts.prefixes.update(prefixes);
      parts.queues.update(told);
    },
  };
}

/** What tells routers apart in little room: the end of the name, which is its number as a rule. */
function letterOf(router: string): string {
  return /\d{1,2}$/.exec(router)?.[0] ?? router.slice(0, 1).toUpperCase();
}

function byId(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no ${id}`);
  return found;
}
