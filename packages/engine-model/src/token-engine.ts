import { mixWord } from "@espalier/core";
import { createLoop, type EngineFrontend } from "./engine-loop.ts";
import { partialGroupsOf } from "./hybrid-cache.ts";
import { type CacheLog, type GroupPositions, type HashChain, silentLog } from "./kv-cache.ts";
import type { RemoteSource } from "./kv-pull.ts";
import type { RequestChain } from "./sequence.ts";
import type {
  BlockInputs,
  CacheFlavour,
  CpuMedium,
  Engine,
  EngineHash,
  EngineObserver,
  EngineParameters,
  EngineRequest,
  ImportedPrompt,
  KvEvent,
  MediaRange,
  PartialGroup,
} from "./types.ts";
import { checkParameters, checkRequest } from "./validation.ts";

export interface EngineOptions {
  readonly parameters: EngineParameters;
  /** Makes this engine's block hashes unique: the same content has different hashes under different seeds. */
  readonly hashSeed: number;
  /** Without a method `events` the engine makes no events. */
  readonly observer: EngineObserver;
  /**
   * Whether events of vLLM's CPU memory describe blocks by their tokens (`self_describing_kv_events`); false by default.
   * SGLang's always do.
   */
  readonly describesCpuBlocks?: boolean;
}

/**
 * One LLM engine in virtual time. The same calls give the same results.
 *
 * @throws RangeError when a parameter makes no sense
 */
export function createEngine({ parameters, hashSeed, observer, describesCpuBlocks }: EngineOptions): Engine {
  checkParameters(parameters);
  const log = createTokenLog(parameters, observer, parameters.flavour === "sglang" || describesCpuBlocks === true);
  return createLoop(parameters, createTokenFrontend({ parameters, hashSeed, observer, log }), log);
}

/** Frontend for requests with tokens: reports every token and every cache event. */
function createTokenFrontend(options: TokenFrontendOptions): EngineFrontend<string, EngineRequest, TokenRequest> {
  const { parameters, hashSeed, observer, log } = options;
  return {
    check({ id, promptTokens, outputTokens, imported, remote }) {
      checkRequest({ id, promptTokens: promptTokens.length, outputTokens, imported, remote }, parameters);
    },
    open: (request) => new TokenRequest(request, hashSeed, parameters.blockSize),
    imported: (chain, tokens, timeMs) => observer.imported?.(chain.id, tokens, timeMs),
    generated(chain, index, timeMs) {
      const token = chain.outputToken(index);
      chain.tokens[chain.promptTokens + index] = token;
      observer.token?.(chain.id, index, token, timeMs);
    },
    quietTokens: () => 0,
    finished: (_chain, report) => observer.finished?.(report),
    nothingToPublish: () => false,
    publish(timeMs) {
      const taken = log.take();
      if (taken) observer.events?.(taken, timeMs);
    },
  };
}

interface TokenFrontendOptions {
  readonly parameters: EngineParameters;
  readonly hashSeed: number;
  readonly observer: EngineObserver;
  readonly log: EventLog;
}

/** The log for an observer: a silent one when it takes no events. */
function createTokenLog(parameters: EngineParameters, observer: EngineObserver, describesCpuBlocks: boolean): EventLog {
  const { flavour, cpuBlocks = 0, cpuChunkBlocks = 1 } = parameters;
  return observer.events
    ? createEventLog({
        flavour,
        describesCpuBlocks: cpuBlocks > 0 && describesCpuBlocks,
        cpuChunkBlocks,
        partialGroups: partialGroupsOf(parameters),
      })
    : { ...silentLog, take: () => undefined };
}

const MULTIPLIER_A = 0x85ebca6b;

const MULTIPLIER_B = 0xc2b2ae35;

interface TokenChainOptions {
  readonly hashSeed: number;
  readonly blockSize: number;
  readonly promptTokens: Uint32Array;
  readonly media: readonly MediaRange[] | undefined;
  /** Tokens that will be generated; memory for them is allocated at once. */
  readonly outputTokens: number;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
}

/** The tokens of one request with the hashes of their full blocks. */
class TokenChain implements HashChain {
  readonly promptTokens: number;
  readonly totalTokens: number;
  readonly blockSize: number;
  /** The prompt, then the generated tokens as they come. */
  readonly tokens: Uint32Array;
  readonly hashes: Uint32Array;
  readonly adapter: string | undefined;
  readonly cacheSalt: string | undefined;
  readonly #media: readonly MediaRange[] | undefined;
  readonly #rootA: number;
  readonly #rootB: number;
  #hashedBlocks = 0;

  /** Copies the prompt, so that the caller may reuse its array. */
  constructor({ hashSeed, blockSize, promptTokens, media, outputTokens, adapter, cacheSalt }: TokenChainOptions) {
    this.promptTokens = promptTokens.length;
    this.totalTokens = promptTokens.length + outputTokens;
    this.blockSize = blockSize;
    this.tokens = new Uint32Array(this.totalTokens);
    this.tokens.set(promptTokens);
    this.hashes = new Uint32Array(2 * Math.floor(this.totalTokens / blockSize));
    this.adapter = adapter;
    this.cacheSalt = cacheSalt;
    this.#media = media && media.length > 0 ? media : undefined;
    let rootA = mixWord(hashSeed ^ 0x9e3779b9);
    let rootB = mixWord(Math.imul(hashSeed, MULTIPLIER_B) + 0x7f4a7c15);
    if (adapter !== undefined || cacheSalt !== undefined) {
      const name = `${adapter?.length ?? -1}:${adapter ?? ""}${cacheSalt === undefined ? "" : `/${cacheSalt}`}`;
      rootA = textA(rootA, name);
      rootB = textB(rootB, name);
      rootA = mixWord(rootA ^ rootB);
      rootB = mixWord(rootB);
    }
    this.#rootA = rootA;
    this.#rootB = rootB;
  }

  /** Per block from `from` to `to`: what it contains of images and the like; undefined without any. */
  inputs(blocks: readonly number[]): readonly BlockInputs[] | undefined {
    if (!this.#media) return undefined;
    const all = blocks.map((block) => this.#inputsOf(block));
    return all.some((inputs) => inputs) ? all : undefined;
  }

  #inputsOf(block: number): BlockInputs {
    const start = block * this.blockSize;
    const inside = this.#media?.filter((one) => one.start < start + this.blockSize && one.start + one.length > start);
    return inside && inside.length > 0 ? inside.map((one) => [one.identifier, one.start - start]) : undefined;
  }

  hashBlocks(blocks: number): void {
    const { hashes, tokens, blockSize } = this;
    let block = this.#hashedBlocks;
    if (block >= blocks) return;
    let a = block === 0 ? this.#rootA : hashes[2 * block - 2]!;
    let b = block === 0 ? this.#rootB : hashes[2 * block - 1]!;
    let at = block * blockSize;
    for (; block < blocks; block++) {
      for (const end = at + blockSize; at < end; at++) {
        const token = tokens[at]!;
        a = stepA(a, token);
        b = stepB(b, token);
      }
      for (const [identifier, offset] of this.#inputsOf(block) ?? []) {
        a = stepA(textA(a, identifier), offset);
        b = stepB(textB(b, identifier), offset);
      }
      // Crossing the two words makes the pair one 64-bit hash instead of two of 32 bits.
      const crossed = mixWord(a ^ Math.imul(b, MULTIPLIER_A));
      b = mixWord(b + a);
      a = crossed;
      hashes[2 * block] = a;
      hashes[2 * block + 1] = b;
    }
    this.#hashedBlocks = blocks;
  }
}

/** An engine's hashes of the full blocks of a prompt, as its events name them. */
export function blockHashes(options: Omit<TokenChainOptions, "outputTokens" | "media">): EngineHash[] {
  const chain = new TokenChain({ ...options, outputTokens: 0, media: undefined });
  const blocks = Math.floor(options.promptTokens.length / options.blockSize);
  chain.hashBlocks(blocks);
  return Array.from({ length: blocks }, (_, block) => hashAt(chain.hashes, block));
}

/** A request with its tokens. */
class TokenRequest extends TokenChain implements RequestChain<string> {
  readonly id: string;
  readonly priority: number;
  readonly imported: ImportedPrompt | undefined;
  readonly remote: RemoteSource | undefined;
  readonly pinned: boolean;
  readonly outputToken: (index: number) => number;

  constructor(request: EngineRequest, hashSeed: number, blockSize: number) {
    const { promptTokens, media, outputTokens, adapter, cacheSalt } = request;
    super({ hashSeed, blockSize, promptTokens, media, outputTokens, adapter, cacheSalt });
    this.id = request.id;
    this.priority = request.priority ?? 0;
    this.imported = request.imported;
    this.remote = request.remote;
    this.pinned = request.pinned ?? false;
    this.outputToken = request.outputToken;
  }
}

function stepA(word: number, token: number): number {
  const mixed = Math.imul(word ^ token, MULTIPLIER_A);
  return mixed ^ (mixed >>> 15);
}

function stepB(word: number, token: number): number {
  const mixed = Math.imul(word + token, MULTIPLIER_B);
  return mixed ^ (mixed >>> 13);
}

function textA(word: number, text: string): number {
  let mixed = word;
  for (let at = 0; at < text.length; at++) mixed = stepA(mixed, text.charCodeAt(at));
  return mixed;
}

function textB(word: number, text: string): number {
  let mixed = word;
  for (let at = 0; at < text.length; at++) mixed = stepB(mixed, text.charCodeAt(at));
  return mixed;
}

/** Collects KV events between two publications. */
interface EventLog extends CacheLog<TokenChain> {
  /** Returns the collected events and starts over; undefined when there are none. */
  take(): KvEvent[] | undefined;
}

interface EventLogOptions {
  readonly flavour: CacheFlavour;
  /** Whether there is CPU memory whose blocks are described. */
  readonly describesCpuBlocks: boolean;
  readonly cpuChunkBlocks: number;
  /** Of a hybrid model. */
  readonly partialGroups: readonly PartialGroup[];
}

/**
 * vLLM announces every block that leaves KV memory separately, and the salt with the first block of a chain. SGLang joins
 * consecutive events where one goes on from the other (`KVCacheEventRecorder.enqueue`, 0.5.23) and puts the salt on every
 * event.
 *
 * For chunks that move to CPU memory, vLLM gives only the hash of the last block, with a block size of 0
 * (`_placeholder_stored` of its offloading connector), unless it is told to describe them (`self_describing_kv_events`,
 * 0.32). Then it announces all blocks of each. SGLang describes what it copies like all else.
 */
function createEventLog({ flavour, describesCpuBlocks, cpuChunkBlocks, partialGroups }: EventLogOptions): EventLog {
  const joins = flavour === "sglang";
  const medium = cpuMedia[flavour];
  /** Events of the blocks in SGLang's GPU memory, to be repeated for host memory. */
  const contents = describesCpuBlocks && joins ? new Map<EngineHash, StoredEvent>() : undefined;
  let events: KvEvent[] = [];
  /** Removals that the next one joins. */
  let open:
    | { readonly hashes: EngineHash[]; readonly adapter: string | undefined; readonly isOfCpu: boolean }
    | undefined;

  const groupFields = (group: number) => {
    const partial = partialGroups[group];
    if (!partial) return { group, specKind: "full_attention" };
    if (partial.kind === "state") return { group, specKind: "mamba" };
    return { group, specKind: "sliding_window", slidingWindow: partial.tokens };
  };
  const push = (event: KvEvent): void => {
    open = undefined;
    events.push(event);
  };
  const remove = (hashes: readonly EngineHash[], isOfCpu: boolean, adapter?: string, group?: number): void => {
    if (joins && open && open.adapter === adapter && open.isOfCpu === isOfCpu) {
      open.hashes.push(...hashes);
      return;
    }
    const all = [...hashes];
    push({ type: "removed", hashes: all, ...(isOfCpu && { medium }), ...(group === undefined ? {} : { group }) });
    open = { hashes: all, adapter, isOfCpu };
  };
  const eventOf = (chain: TokenChain, from: number, to: number, only?: GroupPositions): StoredEvent => {
    const blocks = only?.kept ?? Array.from({ length: to - from }, (_, at) => from + at);
    const hashes = blocks.map((block) => hashAt(chain.hashes, block));
    const inputs = chain.inputs(blocks);
    return {
      type: "stored",
      hashes,
      parentHash: from === 0 ? undefined : hashAt(chain.hashes, from - 1),
      tokens: chain.tokens.slice(from * chain.blockSize, to * chain.blockSize),
      blockSize: chain.blockSize,
      adapter: chain.adapter,
      cacheSalt: from === 0 || joins ? chain.cacheSalt : undefined,
      ...(inputs && { inputs }),
      ...(only && groupFields(only.group)),
    };
  };
  return {
    everyCopy: true,
    stored(chain, from, to, only) {
      const event = eventOf(chain, from, to, only);
      push(event);
      if (contents) for (const [at, hash] of event.hashes.entries()) contents.set(hash, blockOf(event, at));
    },
    removed(hashes, adapter, group) {
      const gone = hashesIn(hashes);
      for (const hash of gone) contents?.delete(hash);
      remove(gone, false, adapter, group);
    },
    cleared() {
      contents?.clear();
      push({ type: "cleared" });
    },
    offloaded(hashes, chain, from) {
      if (contents) {
        const blocks = hashesIn(hashes).map((hash) => contents.get(hash)!);
        push({ ...joined(blocks), medium });
        return;
      }
      const blocks = hashes.length / 2;
      const described = describesCpuBlocks && chain && from !== undefined;
      const event = described ? eventOf(chain, from, from + blocks) : bare(hashAt(hashes, blocks - 1));
      push({ ...event, medium });
    },
    discarded(hashes) {
      const all = hashesIn(hashes);
      remove(describesCpuBlocks ? all : all.filter((_, at) => (at + 1) % cpuChunkBlocks === 0), true);
    },
    take() {
      if (events.length === 0) return undefined;
      const taken = events;
      events = [];
      open = undefined;
      return taken;
    },
  };
}

type StoredEvent = Extract<KvEvent, { readonly type: "stored" }>;

const cpuMedia: Readonly<Record<CacheFlavour, CpuMedium>> = { vllm: "CPU", sglang: "CPU_PINNED" };

const noTokens = new Uint32Array(0);

/** One block of a run, as an event of its own. */
function blockOf(run: StoredEvent, at: number): StoredEvent {
  const { hashes, parentHash, tokens, blockSize, inputs } = run;
  return {
    ...run,
    hashes: [hashes[at]!],
    parentHash: at === 0 ? parentHash : hashes[at - 1],
    tokens: tokens.subarray(at * blockSize, (at + 1) * blockSize),
    ...(inputs && { inputs: [inputs[at]] }),
  };
}

/** Events of consecutive blocks as one. */
function joined(blocks: readonly StoredEvent[]): StoredEvent {
  const [first] = blocks as readonly [StoredEvent, ...StoredEvent[]];
  const inputs = blocks.flatMap((block) => block.inputs ?? [undefined]);
  return {
    ...first,
    hashes: blocks.flatMap((block) => block.hashes),
    tokens: Uint32Array.from(blocks.flatMap((block) => [...block.tokens])),
    ...(inputs.some((one) => one) && { inputs }),
  };
}

/** What vLLM announces when a known block is offloaded. */
function bare(hash: EngineHash): StoredEvent {
  const nothing = { parentHash: undefined, tokens: noTokens, blockSize: 0, adapter: undefined, cacheSalt: undefined };
  return { type: "stored", hashes: [hash], ...nothing };
}

function hashesIn(hashes: Uint32Array): EngineHash[] {
  return Array.from({ length: hashes.length / 2 }, (_, block) => hashAt(hashes, block));
}

function hashAt(hashes: Uint32Array, block: number): EngineHash {
  return toEngineHash(hashes[2 * block]!, hashes[2 * block + 1]!);
}

/** One 64-bit hash from its two words. */
function toEngineHash(a: number, b: number): EngineHash {
  scratchWords[0] = a;
  scratchWords[1] = b;
  return scratchHash[0]!;
}

const scratchWords = new Uint32Array(2);

const scratchHash = new BigUint64Array(scratchWords.buffer);
