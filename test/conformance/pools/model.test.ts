import { type CpuWrites, createEngine, type EngineParameters } from "@espalier/engine-model";
import { encodeEventMessage } from "@espalier/engine-model/kv-events";
import { decode } from "@msgpack/msgpack";
import { expect, test } from "vitest";
import { createContentNames } from "../engine-model/capture.ts";
import { type CapturedPrompt, captureNames, type PoolCapture, readPoolCapture } from "./captures.ts";

/** What one request changed in both memories, in content, in order; vLLM's copies to CPU memory have no order. */
interface Outcome {
  readonly cachedTokens: number;
  readonly gpuStored: readonly string[];
  readonly gpuRemoved: readonly string[];
  readonly cpuStored: readonly string[];
  readonly cpuRemoved: readonly string[];
}

test.each(captureNames)("%s: a modelled engine reports of each request what the engine reported", (name) => {
  const capture = readPoolCapture(name);
  const real = outcomesOf(capture.requests).map(isOfLmcache(capture) ? withoutCpu : (outcome) => outcome);
  const modelled = outcomesOf(runModel(capture));
  for (const [at, outcome] of modelled.entries()) expect(outcome, `request ${at}`).toEqual(real[at]);
  expect(modelled).toHaveLength(148);
});

const isOfLmcache = ({ header }: PoolCapture): boolean => header.kind === "lmcache";

/** LMCache's server tells of its own memory. */
const withoutCpu = (outcome: Outcome): Outcome => ({ ...outcome, cpuStored: [], cpuRemoved: [] });

/** What the model makes of the prompts of a capture, in the form of a capture. */
function runModel(capture: PoolCapture): CapturedPrompt[] {
  const results: CapturedPrompt[] = [];
  let messages: Uint8Array[] = [];
  let cachedTokens = 0;
  let nowMs = 0;
  const { parameters, describesCpuBlocks } = settingsOf(capture);
  const dialect = parameters.flavour === "vllm" ? "vllm-0.32" : "sglang-0.5.23";
  const engine = createEngine({
    parameters,
    hashSeed: 1,
    describesCpuBlocks,
    observer: {
      events: (events) => void messages.push(encodeEventMessage(events, dialect, { timestampS: 1, rank: 0 })),
      finished: (report) => {
        cachedTokens = report.cachedTokens;
      },
    },
  });
  const run = (prompt: readonly number[], output: readonly number[], tokensOutside = 0): void => {
    const promptTokens = Uint32Array.from(prompt);
    const outputToken = (index: number): number => output[index]!;
    const request = { id: "request", promptTokens, outputTokens: output.length, outputToken };
    const imported = { tokens: tokensOutside, setupMs: 1, msPerToken: 0.1 };
    engine.submit({ ...request, ...(tokensOutside > 0 && { imported }) }, nowMs);
    for (let at = engine.nextEventMs(); at !== undefined; at = engine.nextEventMs()) {
      nowMs = at;
      engine.advanceTo(at);
    }
  };
  if (parameters.flavour === "vllm") run(warmUpOf(capture), [0]);
  // What LMCache evicts when is up to the clock of its server, so its events say what it has.
  const chunks = isOfLmcache(capture) ? createChunkStore() : undefined;
  for (const { prompt, output, messages: announced } of capture.requests) {
    run(prompt, output, chunks?.tokensOf(prompt));
    for (const message of announced) chunks?.apply(message);
    results.push({ prompt, output, cachedTokens, messages });
    messages = [];
  }
  return results;
}

/** What `capture.py` asks first, until it hears of events: a block of one token, and one token more. */
function warmUpOf({ requests, blockSize }: PoolCapture): number[] {
  const [, [first]] = decode(requests[0]!.messages[0]!, { useBigInt64: true }) as [number, [Record<string, number[]>]];
  const [token] = first.token_ids!;
  return Array.from({ length: blockSize + 1 }, () => Number(token));
}

function settingsOf({ header, blockSize }: PoolCapture): { parameters: EngineParameters; describesCpuBlocks: boolean } {
  const common = {
    ...{ blockSize, maxBatchedTokens: 2_048, maxRunning: 4, maxModelLength: 1_024, prefixCaching: true },
    ...{ stepBaseMs: 10, prefillMsPerToken: 0.1, attentionMsPerTokenPair: 0, cpuLoadMsPerBlock: 0.1 },
    ...{ decodeMsPerSequence: 0.1, decodeMsPerContextToken: 0 },
  };
  if (header.policy !== undefined) {
    const [blockCount, cpuBlocks] = [header.device_tokens! / blockSize, header.host_tokens! / blockSize];
    const cpuWrites = header.policy as CpuWrites;
    return {
      parameters: { ...common, flavour: "sglang", blockCount, cpuBlocks, cpuWrites },
      describesCpuBlocks: true,
    };
  }
  const extra = transferConfigOf(header.arguments!);
  return {
    // vLLM keeps a block for itself.
    parameters: {
      ...common,
      flavour: "vllm",
      blockCount: header.num_blocks! - 1,
      // Two layers, keys and values, two heads of 32 in two bytes each.
      cpuBlocks: (extra.cpu_bytes_to_use ?? 0) / (2 * 2 * 2 * 32 * 2 * blockSize),
      cpuChunkBlocks: (extra.block_size ?? blockSize) / blockSize,
    },
    describesCpuBlocks: extra.self_describing_kv_events ?? false,
  };
}

interface ExtraConfig {
  readonly cpu_bytes_to_use?: number;
  readonly block_size?: number;
  readonly self_describing_kv_events?: boolean;
}

function transferConfigOf(flags: readonly string[]): ExtraConfig {
  const config = JSON.parse(flags[flags.indexOf("--kv-transfer-config") + 1]!) as {
    kv_connector_extra_config: ExtraConfig;
  };
  return config.kv_connector_extra_config;
}

/** Chunks of an LMCache server, as its events tell. */
function createChunkStore() {
  const names = new Map<string, string>();
  const present = new Set<string>();
  let chunkTokens = 1;
  return {
    apply(message: Uint8Array) {
      const [, events] = decode(message, { useBigInt64: true }) as [number, RawEvent[]];
      for (const { type, medium, block_hashes: hashes, parent_block_hash: parent, token_ids: tokens = [] } of events) {
        if (medium !== "CPU") continue;
        for (const hash of hashes.map(nameOf)) {
          if (type === "BlockStored") {
            chunkTokens = tokens.length;
            names.set(hash, `${parent == null ? "" : names.get(nameOf(parent))}${tokens.map(Number).join()};`);
            present.add(names.get(hash)!);
          } else present.delete(names.get(hash)!);
        }
      }
    },
    /** How much of a prompt it has: from the beginning, in whole chunks. */
    tokensOf(prompt: readonly number[]): number {
      let name = "";
      for (let end = chunkTokens; ; end += chunkTokens) {
        name += `${prompt.slice(end - chunkTokens, end).join()};`;
        if (end > prompt.length || !present.has(name)) return end - chunkTokens;
      }
    },
  };
}

interface RawEvent {
  readonly type: string;
  readonly medium?: string;
  readonly block_hashes: readonly unknown[];
  readonly parent_block_hash?: unknown;
  readonly token_ids?: readonly number[];
}

function outcomesOf(requests: readonly CapturedPrompt[]): Outcome[] {
  const names = createContentNames();
  return requests.map(({ cachedTokens, messages }) => {
    const blocks = { gpuStored: [], gpuRemoved: [], cpuStored: [], cpuRemoved: [] } as Record<string, string[]>;
    let hasOrder = true;
    for (const message of messages) {
      const [, events] = decode(message, { useBigInt64: true }) as [number, RawEvent[]];
      for (const event of events) {
        if (event.type === "AllBlocksCleared") continue;
        const isOfGpu = (event.medium ?? "GPU") === "GPU";
        if (event.medium === "CPU") hasOrder = false;
        const list = `${isOfGpu ? "gpu" : "cpu"}${event.type === "BlockStored" ? "Stored" : "Removed"}`;
        blocks[list]!.push(...contentOf(event, names));
      }
    }
    if (!hasOrder) blocks.cpuStored!.sort();
    return { cachedTokens, ...(blocks as unknown as Omit<Outcome, "cachedTokens">) };
  });
}

function contentOf(event: RawEvent, names: ReturnType<typeof createContentNames>): readonly string[] {
  const hashes = event.block_hashes.map(nameOf);
  const tokens = event.token_ids ?? [];
  // What vLLM only names by its hash is known from GPU memory.
  if (tokens.length === 0) return hashes.map(names.known);
  const parent = event.parent_block_hash;
  const stored = { hashes, parent: parent === null ? undefined : parent, tokens: tokens.map(Number), space: "" };
  const content = names.enter(stored);
  return content.type === "stored" ? content.blocks : [];
}

function nameOf(hash: unknown): string {
  return hash instanceof Uint8Array ? Buffer.from(hash).toString("hex") : String(hash);
}
