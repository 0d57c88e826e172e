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
  /** Where it is, and milliseconds of a round trip between the source and it; null where unknown. */
  readonly region: string | null;
  readonly networkMs: number | null;
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
  /** Empty where it is unknown. */
  readonly version: string;
  /** Digest of the settings that all routers should have alike. */
  readonly settings: string;
  readonly links: readonly RouterLink[];
  readonly lost: readonly LostLink[];
  readonly refused: readonly RefusedLink[];
}

/** A router that failed in the last half hour. */
export interface LostLink {
  readonly router: string;
  readonly address: string | null;
  /** Milliseconds since the Unix epoch. */
  readonly sinceMs: number;
}

/** A router with which no link is made. */
export interface RefusedLink {
  readonly address: string;
  /** Whether the source refused it; else it refused the source. */
  readonly isByUs: boolean;
  readonly reason: string;
  readonly detail: string;
  readonly count: number;
  readonly lastMs: number;
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
  readonly version: string | null;
  readonly settings: string | null;
  /** In what it differs from the source: `version`, or sections of the configuration. */
  readonly differs: readonly string[];
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
    region: asTextOrNull(engine.region),
    networkMs: asNumberOrNull(engine.networkMs),
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

function readLinks({ router, admin, version, settings, links, lost, refused }: JsonObject): Links {
  return {
    router: asText(router),
    admin: asTextOrNull(admin),
    version: asText(version),
    settings: asText(settings),
    links: asList(links).map((one) => readLink(asObject(one))),
    lost: asList(lost).map((one) => readLost(asObject(one))),
    refused: asList(refused).map((one) => readRefused(asObject(one))),
  };
}

function readLost({ router, address, sinceMs }: JsonObject): LostLink {
  return { router: asText(router), address: asTextOrNull(address), sinceMs: asNumber(sinceMs) };
}

function readRefused({ address, by, reason, detail, count, lastMs }: JsonObject): RefusedLink {
  return {
    ...{ address: asText(address), isByUs: by !== "peer", reason: asText(reason), detail: asText(detail) },
    ...{ count: asNumber(count), lastMs: asNumber(lastMs) },
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
    version: asTextOrNull(link.version),
    settings: asTextOrNull(link.settings),
    differs: asList(link.differs).map((name) => asText(name)),
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
