import type { CacheLog } from "./cache-log.ts";
import type { TokenChain } from "./token-chain.ts";
import type { CacheFlavour, EngineHash, KvEvent } from "./types.ts";

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

/**
 * vLLM announces every removed block by itself and the salt with the first block of a chain. SGLang joins removals
 * that follow each other (`KVCacheEventRecorder.enqueue`, 0.5.23) and puts the salt on every event.
 */
export function createEventLog(flavour: CacheFlavour): EventLog {
  const joins = flavour === "sglang";
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
      push({
        type: "stored",
        hashes,
        parentHash: from === 0 ? undefined : hashAt(chain.lanes, from - 1),
        tokens: chain.tokens.slice(from * chain.blockSize, to * chain.blockSize),
        blockSize: chain.blockSize,
        adapter: chain.adapter,
        cacheSalt: from === 0 || joins ? chain.cacheSalt : undefined,
      });
    },
    removed(lanes, adapter) {
      let target = openRemoval;
      if (!target || openAdapter !== adapter) {
        target = [];
        push({ type: "removed", hashes: target });
        openRemoval = joins ? target : undefined;
        openAdapter = adapter;
      }
      for (let pair = 0; pair < lanes.length / 2; pair++) target.push(hashAt(lanes, pair));
    },
    cleared: () => push({ type: "cleared" }),
    take() {
      if (events.length === 0) return undefined;
      const taken = events;
      events = [];
      openRemoval = undefined;
      return taken;
    },
  };
}

function hashAt(lanes: Uint32Array, block: number): EngineHash {
  return toEngineHash(lanes[2 * block]!, lanes[2 * block + 1]!);
}
