import type { EngineParameters } from "@espalier/engine-model";
import type { TraceRequest } from "@espalier/workload";
import type { Scenario } from "../scenarios/scenario.ts";

/**
 * What routers share. `mesh`: everything, as they do. `none`: nothing, and engines tell nothing. `events-only`: every
 * router reads the events of all engines, but knows only its own load. `gossip-1s`: everything, once a second. `oracle`:
 * one router that sees everything.
 */
export type Sharing = "mesh" | "none" | "events-only" | "gossip-1s" | "oracle";

export const sharings: readonly Sharing[] = ["mesh", "none", "events-only", "gossip-1s", "oracle"];

/**
 * How the mesh is carried. `real`: journals, codec, links, membership and ownership of every router run. `delays`: one
 * copy of the index serves all routers, and what one of them says reaches the others after the delays that the real code
 * was measured with.
 */
export type LinkModel = "real" | "delays";

export const linkModels: readonly LinkModel[] = ["real", "delays"];

/** Delays of the simulated world, in milliseconds. */
export interface SimTiming {
  /** From a step's end until a reader has its KV events. */
  readonly eventDelayMs: number;
  /** One way between two routers. */
  readonly linkDelayMs: number;
  /** One way between router and engine, and between client and router. */
  readonly hopDelayMs: number;
  /** How often a router reads engines' metrics; as its policy needs it, or each second, when left out. */
  readonly scrapeMs?: number;
  /** What `delays` has for facts and placements on their way to another router, and for load. */
  readonly sharedFactsMs: number;
  readonly sharedLoadMs: number;
}

/** One run: one scenario, policy, fleet, seed. */
export interface RunOptions {
  readonly scenario: Scenario;
  /** Name of the variant, for rows. */
  readonly variant?: string;
  readonly policy: string;
  readonly policyOptions?: Readonly<Record<string, number | string>>;
  readonly routers: number;
  readonly engines: number;
  readonly sharing: Sharing;
  readonly links: LinkModel;
  readonly seed: number;
  readonly scale: number;
  readonly requests?: number;
  readonly durationS?: number;
  readonly trace?: readonly TraceRequest[];
  readonly parameters?: Partial<EngineParameters>;
  /** Whether requests wait in routers, by class, while engines are busy; as the scenario or its variant says when left out. */
  readonly admission?: boolean;
  readonly timing?: Partial<SimTiming>;
}
