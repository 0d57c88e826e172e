import { type Clock, systemClock } from "@espalier/core";
import type { EngineParameters } from "@espalier/engine-model";
import type { EventDialect } from "@espalier/engine-model/kv-events";
import type { EngineSimOptions } from "@espalier/engine-sim";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { call, type Json, post } from "./client.ts";
import type { Rig, RouterOptions, RunningRouter, Sim } from "./rig.ts";

/** The engine whose events a dialect is for. */
const flavourOf = (dialect: EventDialect): "vllm" | "sglang" => (dialect.startsWith("sglang") ? "sglang" : "vllm");

export interface PublishingOptions extends Omit<EngineSimOptions, "parameters"> {
  readonly dialect?: EventDialect;
  readonly replay?: boolean;
  readonly parameters?: Partial<EngineParameters>;
}

/** Simulated engines with the small model that comes along, which tell what they cache. */
export function publishingSims(rig: Rig, count: number, options: PublishingOptions = {}): Promise<readonly Sim[]> {
  const { dialect = "vllm-0.32", replay = true, parameters, ...more } = options;
  return rig.sims(count, {
    tokenizer: "espalier-tiny",
    kvEvents: { dialect, replay },
    ...more,
    parameters: { flavour: flavourOf(dialect), ...parameters },
  });
}

/** Simulated engines with the same model that tell nothing. */
export function quietSims(rig: Rig, count: number, options: EngineSimOptions = {}): Promise<readonly Sim[]> {
  return rig.sims(count, { tokenizer: "espalier-tiny", ...options });
}

/** The part of a feed's description that tests read. */
export interface Feed {
  readonly target: string;
  readonly state: string;
  readonly reason: string;
  readonly lastSequence: number | null;
  readonly pendingMessages: number;
  readonly blocks: Readonly<Record<string, number>>;
  readonly [counter: string]: unknown;
}

export async function feedsOf(router: RunningRouter): Promise<readonly Feed[]> {
  return (await router.admin("GET", "/admin/feeds")).json.feeds as readonly Feed[];
}

/** A router for the small model. It knows the engines' block sizes before it is handed over, and their feeds, if any. */
export async function cacheRouter(
  rig: Rig,
  engines: readonly (Sim | Json)[],
  { config = {}, feeds = engines.length, ...more }: RouterOptions & { readonly feeds?: number } = {},
): Promise<RunningRouter> {
  const router = await rig.router({
    ...more,
    engines: engines.map((engine) => ("stop" in engine ? engine.url : engine)) as (string | Json)[],
    config: {
      // What no cache has goes where the least is held: that is the same in every run.
      policy: { name: "cache_aware", "miss-to-free-cache": 1 },
      tokenizers: [{ path: shippedModelFolder() }],
      // A busy machine must not look like a prompt that takes too long.
      tokenize: { budget: "10s" },
      scrape: { interval: "100ms" },
      ...config,
    },
  });
  await waitFor(async () => (await signalsOf(router)).every((signals) => signals.block_size !== null), {
    what: "block sizes of the engines",
  });
  const isSettled = ({ state }: Feed): boolean => state === "live" || state === "partial";
  await waitFor(async () => (await feedsOf(router)).filter(isSettled).length === feeds, { what: `${feeds} feeds` });
  return router;
}

async function signalsOf(router: RunningRouter): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const engines = (await router.engines()) as unknown as readonly { readonly targets: readonly { signals: Json }[] }[];
  return engines.flatMap(({ targets }) => targets.map(({ signals }) => signals));
}

/**
 * Waits until the router has read everything that the engines have published. SGLang's first message, that its cache is
 * empty, goes out before anybody listens.
 */
export async function untilHeard(router: RunningRouter, sims: readonly Sim[]): Promise<void> {
  const isHeard = async (sim: Sim): Promise<boolean> => {
    const { nextSequence, dialect } = await eventsOf(sim);
    const feed = (await feedsOf(router)).find(({ target }) => target.startsWith(sim.id));
    const unheard =
      String(dialect).startsWith("sglang") && feed?.replayEndpoint === null && nextSequence === 1 ? 0 : -1;
    return feed?.pendingMessages === 0 && (feed.lastSequence ?? unheard) === Number(nextSequence) - 1;
  };
  await waitFor(async () => (await Promise.all(sims.map(isHeard))).every(Boolean), { what: "all KV events" });
}

/** Where an engine publishes, and the number it comes to next. */
export async function eventsOf(sim: Sim): Promise<Json> {
  return (await call(`${sim.url}/sim/kv-events`)).json;
}

/** Makes something go wrong with an engine's KV events. */
export async function breakEvents(sim: Sim, fault: Json): Promise<void> {
  const answer = await post(`${sim.url}/sim/kv-events`, fault);
  if (answer.status !== 200) throw new Error(answer.text);
}

/** The engine's process dies and starts again at once. */
export async function restartEngine(sim: Sim): Promise<void> {
  const answer = await post(`${sim.url}/sim/reset`, {});
  if (answer.status !== 200) throw new Error(answer.text);
}

/** Waits until the feed of an engine is in a state, written `state reason`. */
export function untilFeed(router: RunningRouter, sim: Sim, expected: string, deadlineMs = 15_000): Promise<Feed> {
  return waitFor(
    async () => {
      const feed = (await feedsOf(router)).find(({ target }) => target.startsWith(sim.id));
      return feed && `${feed.state} ${feed.reason}` === expected && feed;
    },
    { what: `feed that is ${expected}`, deadlineMs },
  );
}

/** What the router has counted of its predictions. */
export async function cacheCounts(router: RunningRouter): Promise<Readonly<Record<string, number>>> {
  const page = await router.metrics();
  const kinds = ["predicted", "reported", "over", "under"];
  return Object.fromEntries(kinds.map((kind) => [kind, page.sum("espalier_cache_tokens_total", { kind })]));
}

/** The system's clock, which can be put forward; its timers are not. */
export interface MovableClock extends Clock {
  advance(byMs: number): void;
}

export function createMovableClock(): MovableClock {
  let aheadMs = 0;
  return {
    nowMs: () => systemClock.nowMs() + aheadMs,
    wallMs: () => systemClock.wallMs() + aheadMs,
    advance(byMs) {
      aheadMs += byMs;
    },
  };
}
