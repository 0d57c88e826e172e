import {
  backoffDelayMs,
  type Cancel,
  type EngineId,
  type HttpClient,
  type KvEventsSpec,
  parseJson,
  plainHost,
  type Random,
  type Startable,
  type TargetIndex,
} from "@espalier/core";
import { type Described, nullable, record, Type } from "@espalier/core/schema";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { type EngineRecord, type Fleet, rankNumber, type Target } from "@espalier/engines";
import { tierNames } from "@espalier/prefix-index";
import { type KnownPool, maxKnownTargets } from "@espalier/routing";
import type {
  EventReading,
  FeedHost,
  FeedOutput,
  FeedQuality,
  FeedStatus,
  FeedTarget,
  HostedFeed,
} from "@espalier/shared-tree";
import {
  createReplayGate,
  type EventSource,
  endpointsOfRank,
  type FeedEndpoints,
  type FeedReason,
  type KvFeedDescription,
  readSglangEventSources,
  readVllmEventSources,
} from "@espalier/shared-tree/events";
import type { KvPoolConfig } from "../config/index.ts";
import { globPattern } from "../routing/pools.ts";
import { MooncakePool, type PoolSource } from "./mooncake-pool.ts";
import { TargetFeed, type TargetFeedParts } from "./target-feed.ts";

/** A target's feed; if another router reads it, only what that router reports. */
export type TargetFeedDescription = Partial<Omit<KvFeedDescription, "state" | "reason">> &
  FeedStatus & {
    /** By its engine's numbers; absent where the engine has one rank. */
    readonly rank?: number;
    /** Restarts of its engine's process; absent for a pool. A feed meets none that happens while nobody reads it. */
    readonly engineRestarts?: number;
    /** Blocks announced in this epoch without tokens and otherwise unknown; they do not count. */
    readonly unplacedBlocks?: number;
  };

/** How far a feed is trusted; see `FeedQuality`. */
export const feedQuality = Type.Enum(["complete", "partial", "void", "none"], {
  title: "FeedQuality",
  description: "Quality of the cache state; only `complete` and `partial` are used.",
});

export const feedReport = Type.Object(
  {
    target: Type.String(),
    state: Type.String(),
    reason: Type.String(),
    role: nullable(Type.String(), { description: "Role of this router: owner or backup." }),
    owner: nullable(Type.String(), { description: "Router that reads the feed." }),
    blocks: record(Type.Integer(), { description: "Blocks by tier." }),
    floatingBlocks: Type.Integer(),
    rank: Type.Optional(
      Type.Integer({ description: "Rank by the engine's numbering; absent for an engine with one rank." }),
    ),
    endpoint: Type.Optional(nullable(Type.String())),
    messages: Type.Optional(Type.Integer()),
    gaps: Type.Optional(Type.Integer()),
    restarts: Type.Optional(
      Type.Integer({ description: "New sequences of events met while this router has read the feed." }),
    ),
    engineRestarts: Type.Optional(
      Type.Integer({ description: "Restarts of the engine's process, by its metrics; absent for a pool." }),
    ),
    lastSequence: Type.Optional(nullable(Type.Integer())),
    lagMs: Type.Optional(nullable(Type.Number())),
    unusable: Type.Optional(nullable(Type.String(), { description: "Reason why the events are unusable." })),
  },
  { title: "Feed", description: "State of a feed; for a feed of another router, as that router reports it." },
);

export type FeedReport = Described<typeof feedReport>;

interface EngineFeedsOptions extends Omit<TargetFeedParts, "decoder" | "onLag" | "replayGate"> {
  readonly fleet: Fleet;
  readonly http: HttpClient;
  readonly random: Random;
  /** Endpoint for engines that connect to the router, with their target's key as topic. */
  readonly listen: string | undefined;
  readonly maxReplays: number;
  readonly host: FeedHost;
  /** KV pools, read from start to stop; none by default. */
  readonly pools?: readonly PoolTarget[];
}

/** Backoff of discovery for an engine that does not answer. */
const askAgain = { firstDelayMs: 250, maxDelayMs: 30_000 };

interface EngineEntry {
  readonly engine: EngineRecord;
  readonly feeds: HostedFeed[];
  /** Where its targets publish. */
  sources: readonly PoolSource[];
  /** The endpoints of the current feeds, as text. */
  made: string;
  cancelAsk: Cancel;
  /** Counts updates of the engine: answers to earlier discovery requests are stale. */
  looks: number;
  /** Discovery attempts since then. */
  asks: number;
}

/** The KV event feeds of the fleet's engines and of KV pools. Discovers them and keeps one feed per target. */
export class EngineFeeds implements Startable {
  readonly #options: EngineFeedsOptions;
  readonly #parts: TargetFeedParts;
  readonly #entries = new Map<EngineId, EngineEntry>();
  readonly #byTarget: (HostedFeed | undefined)[] = [];
  readonly #pools: HostedFeed[] = [];
  /** Pools that list keys, and which engines use them. */
  readonly #keyed: { readonly pool: MooncakePool; readonly reaches: (engine: EngineRecord) => boolean }[] = [];
  #worstLagMs: number | undefined;
  /** Whether a feed was left out and logged. */
  #excluded = false;
  #unsubscribe = (): void => {};

  constructor(options: EngineFeedsOptions) {
    this.#options = options;
    this.#parts = {
      ...options,
      decoder: createEventDecoder(),
      replayGate: createReplayGate(options.maxReplays),
      onLag: (lagMs) => {
        this.#worstLagMs = Math.max(this.#worstLagMs ?? 0, lagMs);
      },
    };
  }

  async start(): Promise<void> {
    const { fleet, pools = [] } = this.#options;
    for (const pool of pools) {
      const { endpoint, replay, topic, mooncake } = pool.config;
      if (mooncake !== undefined) this.#openKeyed(pool, mooncake);
      const endpoints = endpoint === undefined ? undefined : sourceBySpec({ endpoint, replay, topic }, 0);
      if (endpoints) this.#pools.push(this.#open(pool, endpoints));
    }
    for (const engine of fleet.engines) this.#look(engine);
    this.#unsubscribe = fleet.onChange((change, engine) => {
      if (change === "gone") this.#drop(engine);
      else if (change === "added" || change === "state" || change === "spec") this.#look(engine);
      // One found restarted as it came up has just been asked.
      else if (change === "restarted" && !engine.isUnread) this.#look(engine);
      if (change === "models") this.#offer(this.#entries.get(engine.id));
    });
  }

  async stop(): Promise<void> {
    this.#unsubscribe();
    const feeds = [...this.#entries.values()].flatMap((entry) => {
      entry.cancelAsk();
      return entry.feeds;
    });
    this.#entries.clear();
    this.#keyed.length = 0;
    feeds.push(...this.#pools.splice(0));
    await Promise.all(feeds.map((feed) => feed.stop()));
  }

  feedQualityOf(target: TargetIndex): FeedQuality {
    return this.#byTarget[target]?.quality ?? "none";
  }

  /** Tells that a prompt was placed at a target, which may attach floating blocks of its feed. */
  attach(target: TargetIndex): void {
    this.#byTarget[target]?.attach();
  }

  /** The longest lag of a live message since the last call, in milliseconds; undefined when none came. */
  takeWorstLagMs(): number | undefined {
    const worstMs = this.#worstLagMs;
    this.#worstLagMs = undefined;
    return worstMs;
  }

  /** Of engines and of KV pools. */
  get count(): number {
    return [...this.#entries.values()].reduce((sum, { feeds }) => sum + feeds.length, this.#pools.length);
  }

  /** Every target with a feed, for operators. */
  describe(): readonly TargetFeedDescription[] {
    const ofEngines = [...this.#entries.values()].flatMap(({ engine, feeds }) =>
      feeds.map((feed) => ofEngine(feed.describe(), engine)),
    );
    return [...ofEngines, ...this.#pools.map((pool) => pool.describe())];
  }

  /** Ensures that a reachable engine has its feeds. */
  #look(engine: EngineRecord): void {
    if (engine.state === "removed") return;
    let entry = this.#entries.get(engine.id);
    if (entry && entry.engine !== engine) {
      this.#drop(entry.engine);
      entry = undefined;
    }
    if (!entry) {
      entry = { engine, feeds: [], sources: [], made: "", cancelAsk: () => {}, looks: 0, asks: 0 };
      this.#entries.set(engine.id, entry);
    }
    this.#offer(entry);
    entry.cancelAsk();
    entry.looks++;
    entry.asks = 0;
    const { listen } = this.#options;
    const { kvEvents } = engine;
    if (kvEvents) this.#make(entry, (target) => sourceBySpec(kvEvents, rankNumber(target)));
    else if (listen !== undefined) {
      this.#make(entry, ({ key }) => ({ endpoint: listen, mode: "bind", topic: key, replayEndpoint: undefined }));
    } else if (engine.state === "up") void this.#ask(entry);
  }

  async #ask(entry: EngineEntry): Promise<void> {
    const { http, random, scheduler } = this.#options;
    const { engine, looks } = entry;
    const attempt = entry.asks++;
    const sources = await findEventSources(http, engine.url);
    // The engine may have gone or changed meanwhile.
    if (this.#entries.get(engine.id) !== entry || entry.looks !== looks || engine.state !== "up") return;
    if (sources) {
      // As many as there are ranks are those ranks, whatever the first one's number.
      const areAll = sources.length === engine.targets.length;
      this.#make(entry, (target) =>
        areAll ? sources[target.rank] : sources.find(({ rank }) => rank === rankNumber(target)),
      );
      if (sources.length > 0 && entry.feeds.length < engine.targets.length) {
        const [ranks, published] = [engine.targets.map(rankNumber), sources.map(({ rank }) => rank)];
        this.#options.logger.warn("KV event ranks of an engine differ from its configuration", {
          ...{ engine: engine.id, ranks, published },
        });
      }
      return;
    }
    entry.cancelAsk = scheduler.after(backoffDelayMs(attempt, askAgain, random), () => void this.#ask(entry));
  }

  #make(entry: EngineEntry, endpointsOf: (target: Target) => FeedEndpoints | undefined): void {
    const wanted = entry.engine.targets.flatMap((target) => {
      const endpoints = endpointsOf(target);
      return endpoints ? [{ target, endpoints }] : [];
    });
    const made = JSON.stringify([
      entry.engine.region,
      ...wanted.map(({ target, endpoints }) => [target.key, endpoints]),
    ]);
    if (made === entry.made) return;
    entry.made = made;
    this.#stopFeeds(entry);
    entry.sources = wanted.map(({ target, endpoints }) => ({ key: target.key, endpoints }));
    this.#offer(entry);
    for (const { target, endpoints } of wanted) {
      const { index, key } = target;
      if (index < maxKnownTargets) entry.feeds.push(this.#open({ index, key, region: entry.engine.region }, endpoints));
      else entry.feeds.push(this.#leaveOut(key));
    }
  }

  /** A target beyond the bound of the index. */
  #leaveOut(key: string): HostedFeed {
    const unusable = `limit of ${maxKnownTargets} tracked targets reached`;
    if (!this.#excluded) this.#options.logger.warn("KV event feed ignored", { feed: key, unusable });
    this.#excluded = true;
    const reason: FeedReason = "over-limit";
    const status = { state: "off", reason, role: null, owner: null, floatingBlocks: 0, unusable } as const;
    const blocks = Object.fromEntries(tierNames.map((name) => [name, 0])) as FeedStatus["blocks"];
    return {
      quality: "none",
      attach() {},
      describe: () => ({ target: key, ...status, blocks }),
      async stop() {},
    };
  }

  #open(target: FeedTarget, endpoints: FeedEndpoints): HostedFeed {
    return this.#host(target, (output) => new TargetFeed(this.#parts, target, endpoints, output));
  }

  #openKeyed(target: PoolTarget, url: string): void {
    const { http } = this.#options;
    const pool = new MooncakePool({ ...target.config, url, http, parts: this.#parts });
    this.#keyed.push({ pool, reaches: reachOf(target.config) });
    this.#pools.push(this.#host(target, (output) => pool.open(target, output)));
  }

  #host(target: FeedTarget, make: (output: FeedOutput) => EventReading): HostedFeed {
    const feed = this.#options.host.open(target, make);
    this.#byTarget[target.index] = feed;
    return feed;
  }

  /** Has the pools that an engine uses read its events, too. */
  #offer(entry: EngineEntry | undefined): void {
    if (!entry) return;
    const { engine, sources } = entry;
    for (const { pool, reaches } of this.#keyed) pool.follow(engine.id, reaches(engine) ? sources : []);
  }

  #drop(engine: EngineRecord): void {
    const entry = this.#entries.get(engine.id);
    if (entry?.engine === engine) {
      entry.cancelAsk();
      this.#stopFeeds(entry);
      this.#entries.delete(engine.id);
      for (const { pool } of this.#keyed) pool.follow(engine.id, []);
    }
  }

  #stopFeeds({ engine, feeds }: EngineEntry): void {
    for (const feed of feeds.splice(0)) void feed.stop();
    for (const { index } of engine.targets) this.#byTarget[index] = undefined;
  }
}

function ofEngine(feed: TargetFeedDescription, { targets, restarts }: EngineRecord): TargetFeedDescription {
  const target = targets.length > 1 && targets.find(({ key }) => key === feed.target);
  return { ...feed, engineRestarts: restarts, ...(target ? { rank: rankNumber(target) } : {}) };
}

const timeoutMs = 2_000;
/** Largest answer of an engine's server information. */
const maxBytes = 1_048_576;

/**
 * Discovers where an engine publishes its KV events: vLLM at `/kv_event_sources` (0.32), SGLang at `/server_info`
 * (0.5.23).
 *
 * @param url address of the engine
 * @returns an empty list when it publishes none or does not say; undefined when it did not answer, or only with server
 *   errors, so that the caller should ask again
 */
export async function findEventSources(http: HttpClient, url: string): Promise<readonly EventSource[] | undefined> {
  const host = plainHost(new URL(url).hostname);
  let hasFailed = false;
  for (const [path, read] of [
    ["/kv_event_sources", readVllmEventSources],
    ["/server_info", readSglangEventSources],
  ] as const) {
    const answer = await ask(http, url + path);
    if (answer === undefined) return undefined;
    const sources = read(answer.json, host);
    if (sources.length > 0) return sources;
    hasFailed ||= answer.status >= 500;
  }
  return hasFailed ? undefined : [];
}

/** Where a rank publishes, according to the engine's configuration entry. */
export function sourceBySpec({ endpoint, replay, topic }: KvEventsSpec, rank: number): FeedEndpoints | undefined {
  const host = plainHost(new URL(endpoint).hostname);
  const found = endpointsOfRank({ endpoint, replayEndpoint: replay, topic }, { host, rank });
  // The entry is an address to dial, whatever the engine's own configuration says.
  return found && { ...found, mode: "connect" };
}

interface Answer {
  readonly status: number;
  /** Undefined unless the status is 200 and the body is JSON. */
  readonly json: unknown;
}

/** @returns undefined when there was no answer */
async function ask(http: HttpClient, url: string): Promise<Answer | undefined> {
  try {
    const { status, body } = await http({ url, timeoutMs, maxBytes });
    return { status, json: status === 200 ? parseJson(body) : undefined };
  } catch {
    return undefined;
  }
}

/**
 * A configured KV pool: its events are read like an engine's, for a target that takes no requests. One without an endpoint
 * names what its engines announce in external memory.
 */
export interface PoolTarget extends KnownPool, FeedTarget {
  readonly config: KvPoolConfig;
}

/** The key of a pool, the same in every router. Engine ids have no spaces, so no target has the same key. */
export function poolKey(name: string): string {
  return `pool ${name}`;
}

/** Which engines use a pool. */
export function reachOf({ models, labels }: KvPoolConfig): (engine: EngineRecord) => boolean {
  const patterns = models.map(globPattern);
  const wanted = Object.entries(labels);
  return (engine) =>
    wanted.every(([name, value]) => engine.labels[name] === value) &&
    (engine.models ?? []).some(({ id }) => patterns.some((pattern) => pattern.test(id)));
}

/** @param indexOf the target index of a pool, from its key and its position in the configuration */
export function poolTargets(
  configs: readonly KvPoolConfig[],
  indexOf: (key: string, at: number) => TargetIndex,
): readonly PoolTarget[] {
  return configs.map((config, at) => {
    const key = poolKey(config.name);
    return { name: config.name, key, index: indexOf(key, at), config };
  });
}
