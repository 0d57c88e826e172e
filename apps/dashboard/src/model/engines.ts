import type { EngineFacts, Overview } from "./overview.ts";

/** One target as the table of engines shows it. */
export interface EngineRow {
  readonly key: string;
  readonly models: string;
  readonly health: "up" | "draining" | "open" | "starting" | "down";
  readonly note: string;
  /** Requests of all routers. */
  readonly inFlight: number;
  readonly waiting: number | null;
  readonly pendingPrefillTokens: number;
  readonly kvUse: number | null;
  readonly blocks: number;
  readonly capacity: number | null;
  /** Of all blocks that are known of, from 0 to 1. */
  readonly share: number;
  /** Where the blocks are known from. */
  readonly source: "facts" | "placements" | "nothing";
  /** The router that reads its events. */
  readonly owner: string | null;
}

/** Rows of a router's overview, in its order; ranks of an engine are rows of their own. */
export function engineRows({ engines, load }: Pick<Overview, "engines" | "load">): readonly EngineRow[] {
  const loads = new Map(load.map((one) => [one.target, one]));
  const rows = engines.flatMap((engine) =>
    engine.targets.map((target) => {
      const sent = loads.get(target.target);
      const facts = target.held + target.slower;
      const blocks = facts > 0 ? facts : target.placed;
      return {
        ...{ key: target.target, models: engine.models.join(", "), ...healthOf(engine) },
        inFlight: (sent?.own ?? 0) + (sent?.others ?? 0),
        waiting: target.waiting,
        pendingPrefillTokens: sent?.pendingPrefillTokens ?? 0,
        ...{ kvUse: target.kvUse, blocks, capacity: target.capacity, owner: target.owner },
        source: sourceOf(facts, target.placed),
      };
    }),
  );
  const all = rows.reduce((sum, { blocks }) => sum + blocks, 0);
  return rows.map((row) => ({ ...row, share: all > 0 ? row.blocks / all : 0 }));
}

function sourceOf(facts: number, placed: number): EngineRow["source"] {
  if (facts > 0) return "facts";
  return placed > 0 ? "placements" : "nothing";
}

function healthOf({ state, reason, draining, breaker }: EngineFacts): Pick<EngineRow, "health" | "note"> {
  if (state === "starting") return { health: "starting", note: reason || "not heard of yet" };
  if (state !== "up") return { health: "down", note: reason || state };
  if (breaker !== "closed") return { health: "open", note: `circuit breaker ${breaker}` };
  return draining ? { health: "draining", note: "an operator has drained it" } : { health: "up", note: "" };
}

/** Engines that take requests, and how many there are. */
export function countHealthy(rows: readonly EngineRow[]): { readonly healthy: number; readonly all: number } {
  return { healthy: rows.filter(({ health }) => health === "up").length, all: rows.length };
}
