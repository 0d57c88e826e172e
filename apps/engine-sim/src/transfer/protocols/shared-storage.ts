import { isObject } from "../../api/body-fields.ts";
import { wrongField } from "../../http/api-error.ts";
import { blockNames } from "../block-store.ts";
import type { Arrival, Exporter, Importer, Leg } from "../leg.ts";
import type { LegInput } from "../leg-input.ts";
import { callPeer } from "../peer-call.ts";

/**
 * Engines around a store of blocks: each reads what is there of a prompt, and writes what it computed. With
 * `cache_hit_threshold` (vLLM's RFC 24256) an engine sends a request back when too little of its prompt is to be had.
 */
export function sharedStorageLeg(input: LegInput): Leg {
  const { body, parts, sequence } = input;
  const names = blockNames(sequence, parts.engine.parameters.blockSize);
  const threshold = body.cache_hit_threshold ?? undefined;
  if (threshold !== undefined && !(typeof threshold === "number" && threshold >= 0 && threshold <= 1)) {
    throw wrongField("cache_hit_threshold", "a number from 0 to 1");
  }
  const leg = { importer: storeImporter(input, names), exporter: storeExporter(input, names) };
  return threshold === undefined ? leg : { ...leg, cacheHitThreshold: threshold };
}

function storeImporter({ parts, sequence }: LegInput, blocks: readonly string[]): Importer {
  return {
    async open(signal): Promise<Arrival | undefined> {
      const answer = await callPeer({
        url: `${parts.storageUrl()}/storage/lookup`,
        method: "POST",
        body: { blocks },
        signal,
      });
      const found = isObject(answer) ? Number(answer.found) : 0;
      const tokens = sequence.prompt.subarray(0, found * parts.engine.parameters.blockSize);
      return tokens.length === 0 ? undefined : { tokens, done() {}, whenBroken() {} };
    },
    // A store that does not answer holds nothing.
    failure: () => undefined,
  };
}

function storeExporter({ parts, sequence }: LegInput, blocks: readonly string[]): Exporter {
  const { prompt, adapter, cacheSalt } = sequence;
  const { blockSize } = parts.engine.parameters;
  return {
    pins: false,
    ready: () => Promise.resolve(),
    async computed() {
      const tokens = Array.from(prompt.subarray(0, blocks.length * blockSize));
      const body = { blocks, tokens, blockSize, adapter, cacheSalt };
      await callPeer({ url: `${parts.storageUrl()}/storage/put`, method: "POST", body }).catch(() => {});
      return {};
    },
    cancelled() {},
  };
}
