import type { CancelPull, KvHold, PullReceiver, RemoteSource, TokenRange } from "./kv-pull.ts";
import { createSharedLink, type LinkRates } from "./shared-link.ts";

/** Bounds and times of what an engine sends to others. */
export interface PullLimits extends LinkRates {
  /** From the request of the other engine to the first byte: the connection, the lookup and their messages. */
  readonly latencyMs: number;
  /** Bytes of KV per token. */
  readonly bytesPerToken: number;
  /** Transfers at once; 32 by default. Further ones wait, in order, and their blocks stay in CPU memory. */
  readonly maxTransfers?: number;
  /** Pulls that wait; 1,024 by default. Further ones get nothing. */
  readonly maxQueued?: number;
}

/** The engine of the model whose CPU memory others pull from. */
export interface HeldEngine<Request> {
  hold(request: Request, range: TokenRange, timeMs: number): KvHold | undefined;
}

/** One engine's service to those that pull from it. It runs on engine time, like an engine: the caller advances it. */
export interface PullSource<Request> {
  /**
   * The source as one request of another engine sees it.
   *
   * @param request the same prompt, adapter and salt; only these count
   * @param to names the other engine: pulls of one engine share the bandwidth of the pair
   */
  sourceFor(request: Request, to: string): RemoteSource;
  /** Handles everything up to `timeMs`. Receivers are called from within. */
  advanceTo(timeMs: number): void;
  nextEventMs(): number | undefined;
  /** The engine stops or starts over: every pull ends with nothing. */
  drop(timeMs: number): void;
  stats(): PullStats;
}

/** Gauges, and counters since the start. */
export interface PullStats {
  /** Pulls that send, and that wait to. */
  readonly sending: number;
  readonly queued: number;
  /** Pulls that got blocks, found none, were cancelled, and were too many. */
  readonly served: number;
  readonly missed: number;
  readonly cancelled: number;
  readonly refused: number;
  /** Tokens of the served ones. */
  readonly sentTokens: number;
}

interface PullSourceOptions<Request> {
  /** The engine as it is now; another one after a restart. */
  readonly engine: () => HeldEngine<Request>;
  readonly limits: PullLimits;
  /** `nextEventMs` may have changed. It must not call back. */
  readonly changed?: () => void;
}

interface Pull<Request> {
  readonly request: Request;
  readonly range: TokenRange;
  readonly to: string;
  readonly receiver: PullReceiver;
  /** When it is looked up. */
  readonly dueMs: number;
  hold: KvHold | undefined;
}

/** Pulls that an engine sends at once, unless it is set. */
export const defaultMaxTransfers = 32;

/** Pulls that wait at an engine, unless it is set. */
export const defaultMaxQueued = 1_024;

/**
 * Serves pulls of blocks as vLLM's P2P tier does (`kv_offload/tiering/p2p`, 0.32): a lookup in CPU memory, then one
 * transfer of what it found. Blocks that are found stay in CPU memory until they are sent.
 *
 * @throws RangeError when a limit makes no sense
 */
export function createPullSource<Request>(options: PullSourceOptions<Request>): PullSource<Request> {
  const { engine, limits, changed = () => {} } = options;
  checkLimits(limits);
  const { latencyMs, bytesPerToken, maxTransfers = defaultMaxTransfers, maxQueued = defaultMaxQueued } = limits;
  const link = createSharedLink<Pull<Request>>(limits);
  /** In the order of `dueMs`. */
  const asked = new Set<Pull<Request>>();
  const queued = new Set<Pull<Request>>();
  const sending = new Set<Pull<Request>>();
  const counters = { served: 0, missed: 0, cancelled: 0, refused: 0, sentTokens: 0 };
  let reachedMs = Number.NEGATIVE_INFINITY;

  const send = (pull: Pull<Request>, nowMs: number): void => {
    sending.add(pull);
    const tokens = pull.hold!.toTokens - pull.range.fromTokens;
    link.start(pull, { to: pull.to, bytes: tokens * bytesPerToken }, nowMs);
  };
  const sendNext = (nowMs: number): void => {
    for (const pull of queued) {
      if (sending.size >= maxTransfers) return;
      queued.delete(pull);
      send(pull, nowMs);
    }
  };
  const lookUp = (pull: Pull<Request>): void => {
    const { request, range, receiver, dueMs } = pull;
    asked.delete(pull);
    const isFull = sending.size >= maxTransfers && queued.size >= maxQueued;
    pull.hold = isFull ? undefined : engine().hold(request, range, dueMs);
    if (!pull.hold) {
      if (isFull) counters.refused++;
      else counters.missed++;
      receiver.done(range.fromTokens, dueMs);
      return;
    }
    if (sending.size < maxTransfers) send(pull, dueMs);
    else queued.add(pull);
    receiver.found(pull.hold.toTokens, dueMs);
  };
  const finish = (pull: Pull<Request>, endMs: number): void => {
    // Cancelled by the receiver of another pull that ended at the same time.
    if (!sending.delete(pull)) return;
    const { receiver, range, hold } = pull;
    const isThere = hold!.release();
    if (isThere) {
      counters.served++;
      counters.sentTokens += hold!.toTokens - range.fromTokens;
    } else counters.missed++;
    receiver.done(isThere ? hold!.toTokens : range.fromTokens, endMs);
  };
  const cancel = (pull: Pull<Request>, timeMs: number): void => {
    if (!asked.delete(pull) && !queued.delete(pull) && !sending.delete(pull)) return;
    const nowMs = Math.max(timeMs, reachedMs);
    pull.hold?.release();
    link.stop(pull, nowMs);
    sendNext(nowMs);
    counters.cancelled++;
    changed();
  };
  const nextEventMs = (): number | undefined => {
    const endMs = link.nextEndMs();
    for (const { dueMs } of asked) return endMs === undefined ? dueMs : Math.min(dueMs, endMs);
    return endMs;
  };
  return {
    sourceFor: (request, to) => ({
      pull(range, receiver, timeMs): CancelPull {
        const dueMs = Math.max(timeMs, reachedMs) + latencyMs;
        const pull: Pull<Request> = { request, range, to, receiver, dueMs, hold: undefined };
        asked.add(pull);
        changed();
        return (atMs) => cancel(pull, atMs);
      },
    }),
    advanceTo(timeMs) {
      for (let at = nextEventMs(); at !== undefined && at <= timeMs; at = nextEventMs()) {
        reachedMs = Math.max(reachedMs, at);
        if (link.nextEndMs() === at) {
          const ended = link.takeEnded();
          for (const pull of ended) finish(pull, at);
          sendNext(at);
        } else {
          for (const pull of asked) {
            lookUp(pull);
            break;
          }
        }
      }
      reachedMs = Math.max(reachedMs, timeMs);
    },
    nextEventMs,
    drop(timeMs) {
      reachedMs = Math.max(reachedMs, timeMs);
      const all = [...asked, ...queued, ...sending];
      for (const pull of all) {
        link.stop(pull, reachedMs);
        pull.hold?.release();
      }
      for (const pulls of [asked, queued, sending]) pulls.clear();
      counters.missed += all.length;
      changed();
      for (const { receiver, range } of all) receiver.done(range.fromTokens, reachedMs);
    },
    stats: () => ({ sending: sending.size, queued: queued.size, ...counters }),
  };
}

/** @throws RangeError */
function checkLimits(limits: PullLimits): void {
  for (const name of ["bytesPerSecond", "pairBytesPerSecond", "bytesPerToken"] as const) {
    const value = limits[name];
    if (!(Number.isFinite(value) && value > 0)) throw new RangeError(`${name} ${value} is not a number above 0`);
  }
  const { latencyMs, maxTransfers = defaultMaxTransfers, maxQueued = defaultMaxQueued } = limits;
  if (!(Number.isFinite(latencyMs) && latencyMs >= 0)) throw new RangeError(`latencyMs ${latencyMs} is not a duration`);
  if (!(Number.isSafeInteger(maxTransfers) && maxTransfers >= 1)) {
    throw new RangeError(`maxTransfers ${maxTransfers} is not a whole number > 0`);
  }
  if (!(Number.isSafeInteger(maxQueued) && maxQueued >= 0)) {
    throw new RangeError(`maxQueued ${maxQueued} is not a whole number from 0`);
  }
}
