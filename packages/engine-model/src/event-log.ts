import type { CacheLog } from "./cache-log.ts";
import type { TokenChain } from "./token-chain.ts";
import type { CacheFlavour, CpuMedium, EngineHash, KvEvent } from "./types.ts";

/** Collects KV events between two publications. */
export interface EventLog extends CacheLog<TokenChain> {
  /** Hands over what was collected, or undefined when there is nothing. */
  take(): KvEvent[] | undefined;
}

const scratchLanes = new Uint32Array(2);
const scratchHash = new BigUint64Array(scratchLanes.buffer);

/** One 64-bit hash from its lanes. */
function toEngineHash(a: number, b: number): EngineHash {
  scratchLanes[0] = a;
  scratchLanes[1] = b;
  return scratchHash[0]!;
}

type StoredEvent = Extract<KvEvent, { readonly type: "stored" }>;

const cpuMedia: Readonly<Record<CacheFlavour, CpuMedium>> = { vllm: "CPU", sglang: "CPU_PINNED" };
const noTokens = new Uint32Array(0);

/**
 * vLLM announces every removed block by itself and the salt with the first block of a chain. SGLang joins removals
 * that follow each other (`KVCacheEventRecorder.enqueue`, 0.5.23) and puts the salt on every event.
 *
 * Of blocks that go to CPU memory vLLM gives the hashes and no more, a block size of 0 with them (`take_events` of its
 * offloading connector); SGLang tells them like others, one event a page (`_record_store_event` of HiCache).
 *
 * @param hasCpuBlocks whether there is CPU memory
 */
export function createEventLog(flavour: CacheFlavour, hasCpuBlocks: boolean): EventLog {
  const joins = flavour === "sglang";
  const medium = cpuMedia[flavour];
  /** What was told of SGLang's pages in GPU memory, to be told again of CPU memory. */
  const contents = joins && hasCpuBlocks ? new Map<EngineHash, StoredEvent>() : undefined;
  let events: KvEvent[] = [];
  let openRemoval: EngineHash[] | undefined;
  let openAdapter: string | undefined;

  const push = (event: KvEvent): void => {
    openRemoval = undefined;
    events.push(event);
  };
  return {
    everyCopy: true,
    stored(chain, from, to) {
      const hashes: EngineHash[] = [];
      for (let block = from; block < to; block++) hashes.push(hashAt(chain.lanes, block));
      const event: StoredEvent = {
        type: "stored",
        hashes,
        parentHash: from === 0 ? undefined : hashAt(chain.lanes, from - 1),
        tokens: chain.tokens.slice(from * chain.blockSize, to * chain.blockSize),
        blockSize: chain.blockSize,
        adapter: chain.adapter,
        cacheSalt: from === 0 || joins ? chain.cacheSalt : undefined,
      };
      push(event);
      if (contents) for (let at = 0; at < hashes.length; at++) contents.set(hashes[at]!, blockOf(event, at));
    },
    removed(lanes, adapter) {
      let target = openRemoval;
      if (!target || openAdapter !== adapter) {
        target = [];
        push({ type: "removed", hashes: target });
        openRemoval = joins ? target : undefined;
        openAdapter = adapter;
      }
      for (let pair = 0; pair < lanes.length / 2; pair++) {
        const hash = hashAt(lanes, pair);
        contents?.delete(hash);
        target.push(hash);
      }
    },
    cleared() {
      contents?.clear();
      push({ type: "cleared" });
    },
    offloaded(lanes) {
      const hash = hashAt(lanes, 0);
      push({ ...(contents?.get(hash) ?? bare(hash)), medium });
    },
    discarded: (lanes) => push({ type: "removed", hashes: [hashAt(lanes, 0)], medium }),
    take() {
      if (events.length === 0) return undefined;
      const taken = events;
      events = [];
      openRemoval = undefined;
      return taken;
    },
  };
}

/** One block of a run, as an event of its own. */
function blockOf(run: StoredEvent, at: number): StoredEvent {
  const { hashes, parentHash, tokens, blockSize } = run;
  return {
    ...run,
    hashes: [hashes[at]!],
    parentHash: at === 0 ? parentHash : hashes[at - 1],
    tokens: tokens.subarray(at * blockSize, (at + 1) * blockSize),
  };
}

/** What vLLM tells of a block that was told of before. */
function bare(hash: EngineHash): StoredEvent {
  const nothing = { parentHash: undefined, tokens: noTokens, blockSize: 0, adapter: undefined, cacheSalt: undefined };
  return { type: "stored", hashes: [hash], ...nothing };
}

function hashAt(lanes: Uint32Array, block: number): EngineHash {
  return toEngineHash(lanes[2 * block]!, lanes[2 * block + 1]!);
}
