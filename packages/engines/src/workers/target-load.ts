import type { Clock } from "@espalier/core";

/** The size of a request, as known when it is sent. */
export interface RequestSize {
  readonly promptTokens: number;
  /** Prompt tokens that the target probably has not cached and must compute; all of them if absent. */
  readonly uncachedTokens?: number;
  /** Tokens the answer is expected to have; 0 when nothing is known. */
  readonly expectedOutputTokens: number;
  /** Milliseconds that the target is expected to compute on the prompt; 0 when absent. */
  readonly workMs?: number;
  /** Whether its class yields to others. */
  readonly yields?: boolean;
  /**
   * How the target's answer comes: as a stream, or as a whole at its end. Absent if nothing is awaited from the target yet,
   * as while another one computes the prompt.
   */
  readonly answer?: "stream" | "whole" | undefined;
  /** The prompt's blocks, to be counted as active until the request ends. */
  readonly activeBlocks?: ActivePrompt | undefined;
}

/** The part of a target's load that one request makes up. Every call is idempotent or safe to repeat after `end`. */
export interface LoadTicket {
  /** The first token came: the prompt is no longer pending, it is context being decoded. */
  firstToken(): void;
  /** The whole stream has come, in this many tokens. Also after `end`. */
  streamed(tokens: number): void;
  /** `tokens` more were generated since the last call. Implies `firstToken`. */
  progress(tokens: number): void;
  /** The request has ended, successfully or not. */
  end(): void;
}

/** This router's load on one target. Plain numbers, so that reading them is cheap. */
export interface TargetLoad {
  /** Requests sent and not ended. */
  readonly inFlight: number;
  /** Those of classes that yield. */
  readonly yieldingInFlight: number;
  /** Of the requests in flight, those past their first token. */
  readonly answers: number;
  /** Prompt tokens to be computed for requests that have not produced a token yet. */
  readonly pendingPrefillTokens: number;
  /** Context tokens (prompt and generated so far) of requests past their first token. */
  readonly decodeTokens: number;
  /** Tokens in the active blocks of requests in flight, each block counted once. */
  readonly activeTokens: number;
  /** By how much a prompt would increase `activeTokens`. */
  newActiveTokens(prompt: ActivePrompt): number;
  /** Tokens that requests in flight are still expected to generate. */
  readonly outstandingOutputTokens: number;
  /** Milliseconds that the target is expected to compute on prompts that have not produced a token yet. */
  readonly pendingWorkMs: number;
  /** When such a prompt was last computed, on the monotonic clock; -Infinity before the first. */
  readonly computedMs: number;
  /** Start of the current period with at least one such prompt, on the same clock; Infinity without one. */
  readonly pendingSinceMs: number;
  /** Prompt tokens that the engine is sending to other engines. */
  readonly lendingTokens: number;
  /** The requests from which no first token has come. */
  waiting(): WaitingRequests;
  begin(size: RequestSize): LoadTicket;
  /** The engine begins to send this many tokens to another one. @returns ends that; safe to repeat */
  lend(tokens: number): () => void;
}

/** Requests without a first token. Times are on the monotonic clock; NaN without such a request. */
interface WaitingRequests {
  /** When the oldest one was sent. */
  readonly oldestMs: number;
  /** When the oldest one was sent whose answer is streamed. */
  readonly oldestStreamMs: number;
  /** Prompt tokens to be computed of the longest one. */
  readonly longestTokens: number;
}

/**
 * Larger counts are clamped to this, so that sums over all requests of a process stay exact integers and return to exactly
 * zero.
 */
const maxCount = 2 ** 31;

const wholeCount = (value: number): number => (value > 0 ? Math.min(Math.floor(value), maxCount) : 0);

interface TargetLoadOptions {
  readonly clock: Clock;
  /** A request began (+1) or ended (-1); the numbers have changed already. */
  readonly onInFlight?: (change: 1 | -1) => void;
  /** Any of the numbers changed. */
  readonly onChange?: () => void;
  /** The engine has generated tokens. */
  readonly onTokens?: () => void;
  /**
   * The first token of a stream came.
   *
   * @param tokensAhead prompt tokens that were to be computed when the request was sent, its own included
   */
  readonly onFirstToken?: (afterMs: number, tokensAhead: number) => void;
  /** A stream of more than one token has come. */
  readonly onStreamed?: (msPerToken: number) => void;
}

/** Begins idle. */
export function createTargetLoad(options: TargetLoadOptions): TargetLoad {
  return new Load(options);
}

const ignore = (): void => {};

class Load implements TargetLoad {
  inFlight = 0;
  yieldingInFlight = 0;
  answers = 0;
  pendingPrefillTokens = 0;
  decodeTokens = 0;
  /** Undefined as long as no request has active blocks. */
  #blocks: ActiveBlocks | undefined;
  outstandingOutputTokens = 0;
  pendingWorkMs = 0;
  computedMs = Number.NEGATIVE_INFINITY;
  pendingSinceMs = Number.POSITIVE_INFINITY;
  lendingTokens = 0;
  readonly #clock: Clock;
  readonly onInFlight: (change: 1 | -1) => void;
  readonly onChange: () => void;
  readonly onTokens: () => void;
  readonly onFirstToken: (afterMs: number, tokensAhead: number) => void;
  readonly onStreamed: (msPerToken: number) => void;
  /** Those without a first token, oldest first. */
  readonly #waiting = new Set<Ticket>();

  constructor(options: TargetLoadOptions) {
    const { clock, onInFlight = ignore, onChange = ignore, onTokens = ignore } = options;
    this.#clock = clock;
    this.onFirstToken = options.onFirstToken ?? ignore;
    this.onStreamed = options.onStreamed ?? ignore;
    this.onInFlight = onInFlight;
    this.onChange = onChange;
    this.onTokens = onTokens;
  }

  get activeTokens(): number {
    return this.#blocks?.tokens ?? 0;
  }

  newActiveTokens(prompt: ActivePrompt): number {
    return this.#blocks?.newTokens(prompt) ?? prompt.blockCount * prompt.blockSize;
  }

  begin(size: RequestSize): LoadTicket {
    if (size.activeBlocks) this.#blocks ??= new ActiveBlocks();
    const ticket = new Ticket(this, size, size.activeBlocks && this.#blocks?.add(size.activeBlocks));
    this.inFlight += 1;
    if (ticket.yields) this.yieldingInFlight += 1;
    this.addPending(ticket.pending, ticket.workMs);
    if (size.answer) {
      ticket.sent(this.nowMs(), this.pendingPrefillTokens);
      this.#waiting.add(ticket);
    }
    this.outstandingOutputTokens += ticket.outstanding;
    this.onInFlight(1);
    this.onChange();
    return ticket;
  }

  nowMs(): number {
    return this.#clock.nowMs();
  }

  waiting(): WaitingRequests {
    let oldestMs = Number.NaN;
    let oldestStreamMs = Number.NaN;
    let longestTokens = 0;
    for (const { sentMs, isStream, pending } of this.#waiting) {
      if (Number.isNaN(oldestMs)) oldestMs = sentMs;
      if (isStream && Number.isNaN(oldestStreamMs)) oldestStreamMs = sentMs;
      longestTokens = Math.max(longestTokens, pending);
    }
    return { oldestMs, oldestStreamMs, longestTokens };
  }

  waitsNoMore(ticket: Ticket): void {
    this.#waiting.delete(ticket);
  }

  lend(tokens: number): () => void {
    let left = wholeCount(tokens);
    this.lendingTokens += left;
    this.onChange();
    return () => {
      if (left === 0) return;
      this.lendingTokens -= left;
      left = 0;
      this.onChange();
    };
  }

  addPending(tokens: number, workMs: number): void {
    if (this.pendingWorkMs === 0 && workMs > 0) this.pendingSinceMs = this.#clock.nowMs();
    this.pendingPrefillTokens += tokens;
    this.pendingWorkMs += workMs;
  }

  removePending(tokens: number, workMs: number): void {
    this.pendingPrefillTokens -= tokens;
    this.pendingWorkMs -= workMs;
    if (this.pendingWorkMs === 0) this.pendingSinceMs = Number.POSITIVE_INFINITY;
  }

  hasComputed(): void {
    this.computedMs = this.#clock.nowMs();
  }
}

/** Records exactly what it added to the load, so that ending it subtracts neither more nor less. */
class Ticket implements LoadTicket {
  readonly #load: Load;
  #live = true;
  #decoding = false;
  pending: number;
  workMs: number;
  readonly #promptTokens: number;
  readonly isStream: boolean;
  /** NaN for one that does not count as waiting. */
  sentMs = Number.NaN;
  #tokensAhead = 0;
  #firstTokenMs = Number.NaN;
  #context = 0;
  outstanding: number;
  readonly yields: boolean;
  readonly #blocks: ActiveShare | undefined;

  constructor(load: Load, size: RequestSize, blocks: ActiveShare | undefined) {
    const { promptTokens, uncachedTokens = promptTokens, expectedOutputTokens, workMs = 0, yields = false } = size;
    this.#load = load;
    this.#blocks = blocks;
    this.yields = yields;
    this.isStream = size.answer === "stream";
    this.#promptTokens = wholeCount(promptTokens);
    this.pending = Math.min(this.#promptTokens, wholeCount(uncachedTokens));
    this.workMs = wholeCount(workMs);
    this.outstanding = wholeCount(expectedOutputTokens);
  }

  sent(nowMs: number, tokensAhead: number): void {
    this.sentMs = nowMs;
    this.#tokensAhead = tokensAhead;
  }

  firstToken(): void {
    if (!this.#live || this.#decoding) return;
    this.#decoding = true;
    this.#load.waitsNoMore(this);
    if (this.isStream) {
      this.#firstTokenMs = this.#load.nowMs();
      this.#load.onFirstToken(this.#firstTokenMs - this.sentMs, this.#tokensAhead);
    }
    // The first token of a prompt computed elsewhere says nothing about the prompts here.
    if (this.workMs > 0) this.#load.hasComputed();
    this.#load.removePending(this.pending, this.workMs);
    this.#load.decodeTokens += this.#promptTokens;
    this.#load.answers += 1;
    this.#context = this.#promptTokens;
    this.pending = 0;
    this.workMs = 0;
    this.#load.onChange();
  }

  progress(tokens: number): void {
    if (!this.#live) return;
    this.firstToken();
    const generated = wholeCount(tokens);
    const expected = Math.min(generated, this.outstanding);
    this.#context += generated;
    this.outstanding -= expected;
    this.#load.decodeTokens += generated;
    this.#load.outstandingOutputTokens -= expected;
    if (generated > 0) this.#load.onTokens();
    this.#load.onChange();
  }

  streamed(tokens: number): void {
    if (tokens > 1 && !Number.isNaN(this.#firstTokenMs)) {
      this.#load.onStreamed((this.#load.nowMs() - this.#firstTokenMs) / (tokens - 1));
    }
  }

  end(): void {
    if (!this.#live) return;
    this.#live = false;
    this.#load.waitsNoMore(this);
    this.#load.inFlight -= 1;
    if (this.yields) this.#load.yieldingInFlight -= 1;
    if (this.#decoding) this.#load.answers -= 1;
    this.#load.removePending(this.pending, this.workMs);
    this.#load.decodeTokens -= this.#context;
    this.#blocks?.release();
    this.#load.outstandingOutputTokens -= this.outstanding;
    this.#load.onInFlight(-1);
    this.#load.onChange();
  }
}

/** The prompt of a request in flight, in blocks. */
export interface ActivePrompt {
  /** Chain hashes of its full blocks, two words each, low word first. Kept until the request ends: must not change. */
  readonly chain: Uint32Array;
  readonly blockCount: number;
  /** Tokens of a block. */
  readonly blockSize: number;
}

/**
 * Most distinct blocks tracked for one target. Beyond it, further blocks of a prompt count as not shared, which they mostly
 * are. At 16 tokens a block it is more than the KV memory of any engine, and takes some 20 MB.
 */
export const maxActiveBlocks = 262_144;

/** The active blocks of one request. */
export interface ActiveShare {
  /** The request is over. Safe to repeat. */
  release(): void;
}

/** Prompt blocks of the requests in flight at one target. A block that several of them have counts once. */
export class ActiveBlocks {
  /** Tokens in them. */
  tokens = 0;
  readonly #maxBlocks: number;
  /** How many requests have each tracked block. If a block is tracked, so are all blocks before it in the chain. */
  readonly #counts = new Map<number, number>();

  constructor(maxBlocks: number = maxActiveBlocks) {
    this.#maxBlocks = maxBlocks;
  }

  /** A request is being sent. */
  add(prompt: ActivePrompt): ActiveShare {
    const { chain, blockCount, blockSize } = prompt;
    let block = 0;
    for (; block < blockCount; block++) {
      const key = keyOf(chain, block);
      const count = this.#counts.get(key) ?? 0;
      if (count === 0 && this.#counts.size >= this.#maxBlocks) break;
      if (count === 0) this.tokens += blockSize;
      this.#counts.set(key, count + 1);
    }
    const tracked = block;
    this.tokens += (blockCount - tracked) * blockSize;
    let isHeld = true;
    return {
      release: () => {
        if (isHeld) this.#remove(prompt, tracked);
        isHeld = false;
      },
    };
  }

  /** Tokens of a prompt's blocks that no request in flight has. */
  newTokens({ chain, blockCount, blockSize }: ActivePrompt): number {
    // If a block is tracked, all blocks before it are, so the first untracked one is found by binary search.
    let [low, high] = [0, blockCount];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#counts.has(keyOf(chain, middle))) low = middle + 1;
      else high = middle;
    }
    return (blockCount - low) * blockSize;
  }

  #remove({ chain, blockCount, blockSize }: ActivePrompt, tracked: number): void {
    for (let block = 0; block < tracked; block++) {
      const key = keyOf(chain, block);
      const count = this.#counts.get(key)!;
      if (count > 1) {
        this.#counts.set(key, count - 1);
      } else {
        this.#counts.delete(key);
        this.tokens -= blockSize;
      }
    }
    this.tokens -= (blockCount - tracked) * blockSize;
  }
}

/** 53 of the hash's 64 bits, which is what a number holds. At `maxActiveBlocks`, some two blocks collide in 1 of 260,000 cases. */
function keyOf(chain: Uint32Array, block: number): number {
  return (chain[2 * block + 1]! & 0x1f_ffff) * 2 ** 32 + chain[2 * block]!;
}
