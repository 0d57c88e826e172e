import { asList, asNumber, asNumberOrNull, asObject, asText, asTextOrNull, type JsonObject } from "./read-json.ts";

/** One router's view of itself and the fleet: its document `overview/<router>`. */
export interface Overview {
  readonly engines: readonly EngineFacts[];
  readonly load: readonly TargetLoad[];
  readonly links: Links;
  /** Empty where admission is off; null where the router has sent none. */
  readonly queues: readonly QueueCounts[] | null;
  readonly traffic: TrafficCounts;
}

export interface EngineFacts {
  readonly id: string;
  readonly state: string;
  readonly reason: string;
  readonly draining: boolean;
  readonly breaker: string;
  readonly role: string;
  readonly models: readonly string[];
  readonly targets: readonly TargetFacts[];
}

/** A rank of an engine. Null where there is no signal. */
export interface TargetFacts {
  readonly target: string;
  /** Quality of its event feed: `complete`, `partial`, or null where no events are shared. */
  readonly worth: string | null;
  /** The router that reads its events for all. */
  readonly owner: string | null;
  /** Blocks that it has reported: in its KV memory, and in slower memory. */
  readonly held: number;
  readonly slower: number;
  /** Blocks of requests that routers have lately sent there. */
  readonly placed: number;
  readonly kvUse: number | null;
  readonly running: number | null;
  readonly waiting: number | null;
  readonly capacity: number | null;
}

export interface TargetLoad {
  readonly target: string;
  readonly own: number;
  readonly others: number;
  readonly pendingPrefillTokens: number;
}

export interface Links {
  readonly router: string;
  readonly admin: string | null;
  readonly links: readonly RouterLink[];
}

export interface RouterLink {
  readonly router: string;
  readonly state: string;
  readonly isLinked: boolean;
  readonly isDraining: boolean;
  /** Origin of its admin listener. */
  readonly admin: string | null;
  readonly lagMs: number | null;
  readonly roundTripMs: number | null;
}

export interface QueueCounts {
  readonly name: string;
  readonly queued: number;
  readonly waited: number;
  readonly waitedMs: number;
  readonly shed: number;
}

/** Sums since the router's start, apart from `inFlight` and the sizes of the index. */
export interface TrafficCounts {
  readonly requests: number;
  readonly failed: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly firstBytes: number;
  readonly firstByteMs: number;
  readonly inFlight: number;
  readonly facts: number;
  readonly placed: number;
}

/** @param sections the map of the document, as plain JSON */
export function readOverview(sections: unknown): Overview {
  const { engines, load, links, queues, traffic } = asObject(sections);
  return {
    engines: asList(engines).map((one) => readEngine(asObject(one))),
    load: asList(load).map((one) => readLoad(asObject(one))),
    links: readLinks(asObject(links)),
    queues: Array.isArray(queues) ? asList(queues).map((one) => readQueue(asObject(one))) : null,
    traffic: readTraffic(asObject(traffic)),
  };
}

function readEngine(engine: JsonObject): EngineFacts {
  return {
    id: asText(engine.id),
    state: asText(engine.state, "unknown"),
    reason: asText(engine.reason),
    draining: engine.draining === true,
    breaker: asText(engine.breaker, "closed"),
    role: asText(engine.role, "both"),
    models: asList(engine.models).map((model) => asText(model)),
    targets: asList(engine.read).map((one) => readTarget(asObject(one))),
  };
}

function readTarget(target: JsonObject): TargetFacts {
  return {
    target: asText(target.target),
    worth: asTextOrNull(target.worth),
    owner: asTextOrNull(target.owner),
    held: asNumber(target.held),
    slower: asNumber(target.slower),
    placed: asNumber(target.placed),
    kvUse: asNumberOrNull(target.kvUse),
    running: asNumberOrNull(target.running),
    waiting: asNumberOrNull(target.waiting),
    capacity: asNumberOrNull(target.capacity),
  };
}

function readLoad(load: JsonObject): TargetLoad {
  return {
    target: asText(load.target),
    own: asNumber(load.own),
    others: asNumber(load.others),
    pendingPrefillTokens: asNumber(load.pendingPrefillTokens),
  };
}

function readLinks({ router, admin, links }: JsonObject): Links {
  return {
    router: asText(router),
    admin: asTextOrNull(admin),
    links: asList(links).map((one) => readLink(asObject(one))),
  };
}

function readLink(link: JsonObject): RouterLink {
  return {
    router: asText(link.router),
    state: asText(link.state, "unknown"),
    isLinked: link.isLinked === true,
    isDraining: link.isDraining === true,
    admin: asTextOrNull(link.admin),
    lagMs: asNumberOrNull(link.lagMs),
    roundTripMs: asNumberOrNull(link.roundTripMs),
  };
}

function readQueue(queue: JsonObject): QueueCounts {
  return {
    name: asText(queue.name),
    queued: asNumber(queue.queued),
    waited: asNumber(queue.waited),
    waitedMs: asNumber(queue.waitedMs),
    shed: asNumber(queue.shed),
  };
}

function readTraffic(traffic: JsonObject): TrafficCounts {
  return {
    requests: asNumber(traffic.requests),
    failed: asNumber(traffic.failed),
    promptTokens: asNumber(traffic.promptTokens),
    cachedTokens: asNumber(traffic.cachedTokens),
    completionTokens: asNumber(traffic.completionTokens),
    firstBytes: asNumber(traffic.firstBytes),
    firstByteMs: asNumber(traffic.firstByteMs),
    inFlight: asNumber(traffic.inFlight),
    facts: asNumber(traffic.facts),
    placed: asNumber(traffic.placed),
  };
}
