import {
  type Cancel,
  type EngineId,
  EspalierError,
  type HttpClient,
  type Meter,
  type Startable,
  silentMeter,
} from "@espalier/core";
import { type ListedKeys, readMooncakeKeys } from "@espalier/engine-model/kv-events";
import { type LedgerSink, PoolKeys, type PoolKeysFault, tierNames } from "@espalier/prefix-index";
import type { EventReading, FeedOutput, FeedQuality, FeedTarget } from "@espalier/shared-tree";
import { createKvFeed, type FeedEndpoints, type FeedReason, type FeedState } from "@espalier/shared-tree/events";
import type { TargetFeedDescription } from "./engine-feeds.ts";
import type { TargetFeedParts } from "./target-feed.ts";

/** From one list of keys to the next. A pool is believed to hold what it evicted for so long, and not what is new. */
const listEveryMs = 1_000;
/** A list that takes long is read less often: at most this part of the time. */
const maxListShare = 0.25;
/** From the request to the last byte of the list. */
const timeoutMs = 10_000;
/** Longest list of keys: some 600,000 keys. */
export const maxListBytes = 67_108_864;
/** How long a pool is not believed after engines have named one block differently. */
const distrustMs = 600_000;

const faults: Readonly<Record<PoolKeysFault, string>> = {
  "block-size-ratio": "block-size-ratio",
  "different-hashes":
    "engines name one block by different hashes: give them one PYTHONHASHSEED, --prefix-caching-hash-algo and block size",
};

/** Metrics of pools whose masters list keys. */
export function createPoolMeters(meter: Meter) {
  return {
    lists: meter.counter(
      "espalier_kv_pool_lists_total",
      "Lists of keys read from the masters of KV pools by this router, by outcome.",
      ["pool", "outcome"],
    ),
    unknownKeys: meter.gauge(
      "espalier_kv_pool_unknown_keys",
      "Keys in the latest list of a KV pool that name no block its engines have announced.",
      ["pool"],
    ),
  };
}

/** A rank of an engine that uses the pool, and where it publishes its events. */
export interface PoolSource {
  readonly key: string;
  readonly endpoints: FeedEndpoints;
}

interface MooncakePoolOptions {
  /** Address of the master's HTTP server (`--metrics_port`). */
  readonly url: string;
  readonly keyPrefix: string;
  readonly name: string;
  readonly http: HttpClient;
  readonly parts: Pick<
    TargetFeedParts,
    | "blockSize"
    | "clock"
    | "decoder"
    | "digests"
    | "logger"
    | "meter"
    | "random"
    | "replayGate"
    | "scheduler"
    | "slices"
    | "transport"
  >;
}

/**
 * A pool in a Mooncake Store. Its master lists keys, which contain engines' hashes of blocks. What a hash stands for is in
 * the events of the engines: those are read beside the list by the router that reads the list.
 */
export class MooncakePool {
  readonly #options: MooncakePoolOptions;
  readonly #sources = new Map<EngineId, readonly PoolSource[]>();
  #reading: MooncakeReading | undefined;

  constructor(options: MooncakePoolOptions) {
    this.#options = options;
  }

  /** @param output receives everything; knows nothing of the pool yet */
  open(target: FeedTarget, output: FeedOutput): EventReading {
    const reading = new MooncakeReading(this.#options, target, output, () => [...this.#sources.values()].flat());
    this.#reading = reading;
    return reading;
  }

  /** What an engine's ranks publish from now on; nothing if it does not use the pool. */
  follow(engine: EngineId, sources: readonly PoolSource[]): void {
    if (sources.length > 0) this.#sources.set(engine, sources);
    else if (!this.#sources.delete(engine)) return;
    this.#reading?.sourcesChanged();
  }
}

class MooncakeReading implements EventReading {
  readonly #options: MooncakePoolOptions;
  readonly #target: FeedTarget;
  readonly #output: FeedOutput;
  readonly #sourcesNow: () => readonly PoolSource[];
  readonly #keys: PoolKeys;
  readonly #meters: ReturnType<typeof createPoolMeters>;
  readonly #open = new Map<string, Startable>();
  #isRunning = false;
  #cancel: Cancel = () => {};
  #state: FeedState = "off";
  #reason: FeedReason = "not-started";
  #unusable: string | undefined;
  #distrustedUntilMs = 0;
  #fault: PoolKeysFault | undefined;
  /** Of the last message for other routers; undefined before the first. */
  #sequence: number | undefined;
  #lists = 0;

  constructor(
    options: MooncakePoolOptions,
    target: FeedTarget,
    output: FeedOutput,
    sourcesNow: () => readonly PoolSource[],
  ) {
    const { blockSize, digests, meter } = options.parts;
    this.#options = options;
    this.#target = target;
    this.#output = output;
    this.#sourcesNow = sourcesNow;
    this.#meters = createPoolMeters(meter);
    this.#keys = new PoolKeys({ blockSize, digests, sink: output.sink });
  }

  get quality(): FeedQuality {
    if (this.#unusable !== undefined) return "none";
    if (this.#state === "live") return "complete";
    return this.#state === "off" ? "none" : "void";
  }

  async start(): Promise<void> {
    this.#isRunning = true;
    this.#enter("stale", "connecting", undefined);
    this.sourcesChanged();
    void this.#list();
  }

  async stop(): Promise<void> {
    this.#isRunning = false;
    this.#cancel();
    const open = [...this.#open.values()];
    this.#open.clear();
    await Promise.all(open.map((feed) => feed.stop()));
    this.#keys.clear();
    this.#meters.unknownKeys.forget("pool", this.#options.name);
  }

  /** Opens and closes the engines' feeds. */
  sourcesChanged(): void {
    if (!this.#isRunning) return;
    const wanted = new Map(this.#sourcesNow().map((source) => [JSON.stringify(source), source]));
    for (const [name, feed] of this.#open) {
      if (wanted.has(name)) continue;
      this.#open.delete(name);
      void feed.stop();
    }
    for (const [name, source] of wanted) if (!this.#open.has(name)) this.#open.set(name, this.#follow(source));
  }

  /** Nothing waits for a parent here. */
  attach(): void {}

  tellAll(sink: LedgerSink): void {
    this.#keys.tellAll(sink);
  }

  describe(): TargetFeedDescription {
    const { blocks, unnamedKeys } = this.#keys;
    return {
      target: this.#target.key,
      state: this.#state,
      reason: this.#reason,
      ...{ role: null, owner: null, endpoint: this.#options.url, messages: this.#lists },
      lastSequence: this.#lists === 0 ? null : this.#lists - 1,
      blocks: Object.fromEntries(
        tierNames.map((name) => [name, name === "external" ? blocks : 0]),
      ) as TargetFeedDescription["blocks"],
      floatingBlocks: unnamedKeys,
      unusable: this.#unusable ?? null,
    };
  }

  #follow(source: PoolSource): Startable {
    const { parts } = this.#options;
    const feed = createKvFeed({
      ...parts,
      // The engine's own feed has the metrics.
      meter: silentMeter,
      key: `${source.key} for ${this.#target.key}`,
      endpoints: source.endpoints,
      sink: {
        batch: (batch) => this.#keys.learn(batch),
        // The hashes stand for the same blocks as before, unless the pool shows that they do not.
        newEpoch() {},
        state() {},
      },
    });
    void feed.start();
    return feed;
  }

  /** Reads one list, and plans the next. */
  async #list(): Promise<void> {
    const { clock, scheduler } = this.#options.parts;
    const beganMs = clock.nowMs();
    try {
      const listed = await this.#read();
      if (!this.#isRunning) return;
      this.#apply(listed);
      this.#meters.lists.series(this.#options.name, listed.unusable === undefined ? "read" : "unusable").add();
    } catch (error) {
      if (!this.#isRunning) return;
      this.#meters.lists.series(this.#options.name, "failed").add();
      const isDown = error instanceof EspalierError && error.code !== "upstream_protocol_error";
      this.#enter("stale", "socket-lost", isDown ? undefined : `${this.#options.url}: ${String(error)}`);
    }
    const tookMs = clock.nowMs() - beganMs;
    this.#cancel = scheduler.after(Math.max(listEveryMs, tookMs / maxListShare), () => void this.#list());
  }

  async #read(): Promise<ListedKeys> {
    const { http, url, keyPrefix, parts } = this.#options;
    const { status, body } = await http({ url: `${url}/get_all_keys`, timeoutMs, maxBytes: maxListBytes });
    if (status !== 200) throw new EspalierError("upstream_protocol_error", `GET /get_all_keys: ${status}`);
    this.#keys.beginList();
    return readMooncakeKeys(
      body,
      keyPrefix,
      (low, high) => this.#keys.key(low, high),
      () => parts.slices.waitForTurn(),
    );
  }

  #apply({ perBlock, unusable }: ListedKeys): void {
    const { clock } = this.#options.parts;
    const nowMs = clock.nowMs();
    this.#lists++;
    // Keys of other models may be those of other contents.
    const hasChanged = this.#keys.endList(unusable === undefined ? Math.max(1, perBlock) : Number.POSITIVE_INFINITY);
    this.#meters.unknownKeys.series(this.#options.name).set(this.#keys.unnamedKeys);
    const fault = this.#keys.takeFault();
    if (fault) {
      this.#fault = fault;
      this.#distrustedUntilMs = nowMs + distrustMs;
    }
    const isDistrusted = this.#fault !== undefined && nowMs < this.#distrustedUntilMs;
    const why = unusable ?? (isDistrusted ? faults[this.#fault!] : undefined);
    // Engines replay what they have announced meanwhile.
    if (this.#lists === 1 && this.#keys.unnamedKeys > 0) this.#enter("replaying", "first-connection", why);
    else this.#enter("live", "complete", why);
    if (hasChanged || fault !== undefined || this.#sequence === undefined) this.#tell();
  }

  /**
   * Passes the changes on. No two readings share a message: each is an epoch of its own, and the later one has the higher
   * numbers.
   */
  #tell(): void {
    const { clock, random } = this.#options.parts;
    this.#sequence = this.#sequence === undefined ? Math.floor(clock.wallMs()) : this.#sequence + 1;
    const mark = {
      sequence: this.#sequence,
      timestampUs: Math.round(clock.wallMs() * 1_000),
      checksum: random.integer(2 ** 32),
    };
    this.#output.batch(mark, { isComplete: true, unknownRemovals: 0 });
  }

  #enter(state: FeedState, reason: FeedReason, unusable: string | undefined): void {
    if (state === this.#state && reason === this.#reason && unusable === this.#unusable) return;
    if (unusable !== undefined) {
      this.#options.parts.logger.warn("KV pool unusable", { feed: this.#target.key, unusable });
    }
    this.#state = state;
    this.#reason = reason;
    this.#unusable = unusable;
    this.#output.condition({ quality: this.quality, state, reason, unusable });
  }
}
