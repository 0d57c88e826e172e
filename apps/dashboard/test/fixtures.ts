import type { Decision } from "../src/model/decisions.ts";

/** A decision like others, with what matters put over it. */
export function decision(changes: Partial<Decision> = {}): Decision {
  return {
    ...{ router: "router-1", number: 1, atMs: 1_000, model: "m", policy: "predicted_latency", reason: "least_time" },
    ...{ target: "engine-a", promptTokens: 1_000, matchedTokens: 0, session: "00000001", className: null },
    ...{ queuedMs: 0, attempt: 1, prefillEngine: null, pull: null, requestId: "", excluded: [], end: null },
    ...changes,
  };
}

/** An overview as a router writes it, with two engines. */
export function sections({
  router = "router-1",
  links = [],
  traffic = {},
  more = {},
}: {
  readonly router?: string;
  readonly links?: readonly object[];
  readonly traffic?: object;
  /** Of the section `links`. */
  readonly more?: object;
} = {}): Record<string, unknown> {
  const engine = (id: string, held: number) => ({
    ...{ id, state: "up", reason: "", draining: false, breaker: "closed", role: "both", models: ["m"] },
    read: [
      {
        ...{ target: id, quality: "complete", owner: router, blocks: held, held, slower: 0, placed: 4 },
        ...{ kvUse: 0.25, running: 1, waiting: 0, capacity: 1_000 },
      },
    ],
  });
  return {
    engines: [engine("engine-a", 30), engine("engine-b", 10)],
    load: [{ target: "engine-a", own: 2, others: 3, pendingPrefillTokens: 700 }],
    links: { router, epoch: 1, admin: `http://${router}:9090`, address: null, feeds: null, links, ...more },
    queues: [{ name: "default", queued: 1, waited: 2, waitedMs: 300, shed: 4 }],
    traffic: { requests: 0, inFlight: 0, ...traffic },
    status: { ready: true, reasons: [], draining: false, reload: null },
  };
}

/** A router as another one is linked with it. */
export function link(router: string, changes: object = {}): object {
  return {
    ...{ router, state: "alive", isLinked: true, isDraining: false, address: `${router}:7946` },
    ...{ admin: `http://${router}:9090`, lagMs: 5, roundTripMs: 0 },
    ...changes,
  };
}
