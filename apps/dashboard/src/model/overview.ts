import {
  asNumber,
  asNumberOrNull,
  asObject,
  asText,
  asTextOrNull,
  from,
  isTrue,
  listOf,
  objectOf,
  textOr,
} from "./read-json.ts";

/** A rank of an engine. Null where there is no signal. */
const readTarget = objectOf({
  target: asText,
  /** Quality of its event feed: `complete`, `partial`, or null where no events are shared. */
  quality: asTextOrNull,
  /** The router that reads its events for all. */
  owner: asTextOrNull,
  /** Blocks that it has reported: in its KV memory, and in slower memory. */
  held: asNumber,
  slower: asNumber,
  /** Blocks of requests that routers have lately sent there. */
  placed: asNumber,
  /** Its metrics say so. */
  isAsleep: isTrue,
  kvUse: asNumberOrNull,
  running: asNumberOrNull,
  waiting: asNumberOrNull,
  capacity: asNumberOrNull,
});

const readSlow = objectOf({ measure: textOr("ttft"), ms: asNumber, othersMs: asNumber });

export type EngineFacts = ReturnType<typeof readEngine>;

const readEngine = objectOf({
  id: asText,
  state: textOr("unknown"),
  reason: asText,
  /** Since when it is in this state, in milliseconds since the Unix epoch. */
  sinceMs: asNumber,
  draining: isTrue,
  /** By an RL framework. */
  paused: isTrue,
  breaker: textOr("closed"),
  breakerReason: asText,
  role: textOr("both"),
  models: listOf(asText),
  /** Where it is, and milliseconds of a round trip between the source and it; null where unknown. */
  region: asTextOrNull,
  networkMs: asNumberOrNull,
  /** Medians of this router's streams in the last minute; null without any. */
  ttftMs: asNumberOrNull,
  tpotMs: asNumberOrNull,
  /** Since when the oldest request waits for its first token, in milliseconds since the Unix epoch; null without one. */
  oldestSinceMs: asNumberOrNull,
  /** Since when nothing has come from it although it should; null where it works. */
  unresponsiveSinceMs: asNumberOrNull,
  /** In what it is slower than the others; null where it is not. */
  slow: (slow) => (slow === null || slow === undefined ? null : readSlow(slow)),
  targets: from("read", listOf(readTarget)),
});

const readLoad = objectOf({ target: asText, own: asNumber, others: asNumber, pendingPrefillTokens: asNumber });

const readLink = objectOf({
  router: asText,
  state: textOr("unknown"),
  isLinked: isTrue,
  isDraining: isTrue,
  /** Origin of its admin listener. */
  admin: asTextOrNull,
  lagMs: asNumberOrNull,
  roundTripMs: asNumberOrNull,
  version: asTextOrNull,
  settings: asTextOrNull,
  /** In what it differs from the source: `version`, or sections of the configuration. */
  differs: listOf(asText),
});

/** A router that failed in the last half hour, `sinceMs` milliseconds since the Unix epoch. */
const readLost = objectOf({ router: asText, address: asTextOrNull, sinceMs: asNumber });

/** A router with which no link is made. */
export type RefusedLink = ReturnType<typeof readRefused>;

const readRefused = objectOf({
  address: asText,
  /** Whether the source refused it; else it refused the source. */
  isByUs: from("by", (by) => by !== "peer"),
  /** Who it says it is, without proof: a router that dialed has no port of its own. */
  claimed: asTextOrNull,
  reason: asText,
  detail: asText,
  count: asNumber,
  lastMs: asNumber,
});

export type Links = ReturnType<typeof readLinks>;

const readLinks = objectOf({
  router: asText,
  admin: asTextOrNull,
  /** Empty where it is unknown. */
  version: asText,
  /** Digest of the settings that must match on all routers. */
  settings: asText,
  links: listOf(readLink),
  lost: listOf(readLost),
  refused: listOf(readRefused),
});

export type QueueCounts = ReturnType<typeof readQueue>;

const readQueue = objectOf({ name: asText, queued: asNumber, waited: asNumber, waitedMs: asNumber, shed: asNumber });

/** `requests`: since the router's start. */
const readTraffic = objectOf({
  requests: asNumber,
  inFlight: asNumber,
  /** KV event feeds; null where the router does not say. */
  feeds: asNumberOrNull,
});

const readReload = objectOf({
  atMs: asNumber,
  /** Null where it succeeded. */
  error: (error) => asTextOrNull(asObject(error).message),
  needsRestart: listOf(asText),
});

/** How a router is: whether a request would find an engine, and if not, why. */
export type RouterStatus = ReturnType<typeof readStatus>;

const readStatus = objectOf({
  ready: (ready) => ready !== false,
  reasons: listOf(asText),
  draining: isTrue,
  /** The last reload that changed something or failed; null before the first. */
  reload: (reload) => (reload === null || reload === undefined ? null : readReload(reload)),
});

/** One router's view of itself and the fleet: its document `overview/<router>`. */
export type Overview = ReturnType<typeof readOverview>;

/**
 * The same overview with its times on the page's clock.
 *
 * @param aheadMs by how much the router's clock is ahead
 */
export function onPageClock(overview: Overview, aheadMs: number): Overview {
  if (aheadMs === 0) return overview;
  const moved = (timeMs: number): number => timeMs - aheadMs;
  const movedOrNull = (timeMs: number | null): number | null => (timeMs === null ? null : moved(timeMs));
  const { engines, links, status } = overview;
  return {
    ...overview,
    engines: engines.map((engine) => ({
      ...engine,
      sinceMs: engine.sinceMs === 0 ? 0 : moved(engine.sinceMs),
      oldestSinceMs: movedOrNull(engine.oldestSinceMs),
      unresponsiveSinceMs: movedOrNull(engine.unresponsiveSinceMs),
    })),
    links: {
      ...links,
      lost: links.lost.map((lost) => ({ ...lost, sinceMs: moved(lost.sinceMs) })),
      refused: links.refused.map((refused) => ({ ...refused, lastMs: moved(refused.lastMs) })),
    },
    status: { ...status, reload: status.reload && { ...status.reload, atMs: moved(status.reload.atMs) } },
  };
}

/** Takes the map of the document, as plain JSON. */
export const readOverview = objectOf({
  engines: listOf(readEngine),
  load: listOf(readLoad),
  links: readLinks,
  /** Empty where admission is off; null where the router has sent none. */
  queues: (queues) => (Array.isArray(queues) ? listOf(readQueue)(queues) : null),
  traffic: readTraffic,
  status: readStatus,
});
