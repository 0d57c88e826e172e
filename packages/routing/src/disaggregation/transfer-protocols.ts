import { type Endpoint, type JsonObject, readJsonMember } from "@espalier/api";
import type { KvTransferProtocol, KvTransferSpec, Random } from "@espalier/core";
import { hostInUrl } from "@espalier/core";

/** One engine of a pair. */
export interface LegEngine {
  readonly url: string;
  readonly transfer: KvTransferSpec;
  /** Data-parallel rank that gets the leg, and the number of ranks. */
  readonly rank: number;
  readonly rankCount: number;
}

/** What a leg changes in the client's request. */
export interface LegEdits {
  /** Top-level keys of the body and their values as JSON text. */
  readonly set: Readonly<Record<string, string>>;
  /** Flat name and value pairs, names in lower case. */
  readonly headers: readonly string[];
}

/** One request and the pair of engines that serves it. */
export interface PairRequest {
  readonly prefill: LegEngine;
  readonly decode: LegEngine;
  readonly endpoint: Endpoint["id"];
  /** The client's body, parsed. */
  readonly fields: JsonObject;
  readonly random: Random;
  /** The prefill engine's name for itself in the protocol, if the protocol needs one. */
  readonly peerId: string | undefined;
  /**
   * Share of the prompt, 0 to 1, that the decode engine must find cached to serve the request without the prefill
   * engine.
   */
  readonly cachedShare: number;
}

/** The legs of one request. */
export interface PairLegs {
  readonly prefill: LegEdits;
  /**
   * @param answer answer of the prefill engine, unless `order` is `concurrent`
   * @returns undefined if the answer names nothing that a decode engine could fetch
   */
  decode(answer: Buffer | undefined): LegEdits | undefined;
  /** What the decode engine is asked first if `order` is `decode_first`. */
  readonly probe?: LegEdits;
}

/** The wire protocol by which two engines serve one request. Pure. */
export interface TransferProtocol {
  readonly name: KvTransferProtocol;
  /**
   * - `serial`: the decode engine gets the answer of the prefill engine.
   * - `concurrent`: both are asked at once and find each other.
   * - `decode_first`: the decode engine is asked first whether caches have enough of the prompt; if not, as `serial`.
   */
  readonly order: "serial" | "concurrent" | "decode_first";
  readonly endpoints: ReadonlySet<Endpoint["id"]>;
  /** Whether an engine whose role is `decode` can serve a request alone. */
  readonly decodesAlone: boolean;
  /** Whether an engine whose role is `both` can be part of a pair. */
  readonly pairsBoth: boolean;
  /** Whether the decode engine asks the prefill engine itself, so that the router sends no prefill leg. */
  readonly isAskedByDecode?: boolean;
  /** Whether the prefill engine can pull blocks from a third engine meanwhile. */
  readonly combinesWithPull?: boolean;
  /** Whether another decode engine can use the prefill engine's answer too. */
  readonly isPortable: boolean;
  /** Where to ask for `peerId`, if the protocol needs it. */
  readonly peerQueryUrl?: (prefill: LegEngine) => string;
  pair(request: PairRequest): PairLegs;
}

/** What version 2 of vLLM's NIXL connector expects in the first leg. */
const remoteDecode =
  '{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}';

/**
 * vLLM's NIXL connector. The prefill engine keeps the blocks and answers with their location. The decode engine gets
 * the same object and fetches them. If the answer did not end by its length limit, there are no blocks to fetch.
 */
const nixl: TransferProtocol = {
  name: "nixl",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields }) => ({
    prefill: { set: { ...shortPrefill(endpoint, fields), kv_transfer_params: remoteDecode }, headers: [] },
    decode(answer) {
      if (!answer || readJsonMember(answer, ["choices", "finish_reason"]) !== '"length"') return undefined;
      const params = readJsonMember(answer, ["kv_transfer_params"]);
      return params?.startsWith("{") ? { set: { kv_transfer_params: params }, headers: [] } : undefined;
    },
  }),
};

/**
 * SGLang. Both engines get the same request at the same time and meet in a bootstrap room at the prefill engine's
 * bootstrap server. An engine is started for one role and can do nothing else.
 */
const sglang: TransferProtocol = {
  name: "sglang",
  order: "concurrent",
  endpoints: new Set(["chat", "completions", "generate"]),
  decodesAlone: false,
  pairsBoth: false,
  isPortable: false,
  pair({ prefill, random }) {
    const edits = {
      set: {
        bootstrap_host: JSON.stringify(transferHost(prefill)),
        bootstrap_port: String(prefill.transfer.port ?? bootstrapPort),
        bootstrap_room: bootstrapRoom(random, prefill.rank % prefill.rankCount, prefill.rankCount),
      },
      headers: [],
    };
    return { prefill: edits, decode: () => edits };
  },
};

/**
 * vLLM's Mooncake connector. Both legs carry a transfer id. The decode leg names the bootstrap server that knows the
 * prefill engine, and the engine's name there.
 */
const mooncake: TransferProtocol = {
  name: "mooncake",
  order: "concurrent",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: false,
  peerQueryUrl: (prefill) => `${bootstrapUrl(prefill)}/query`,
  pair({ prefill, endpoint, fields, random, peerId }) {
    const transferId = `xfer-${randomId(random)}`;
    const sending = { do_remote_decode: true, do_remote_prefill: false, transfer_id: transferId };
    const receiving = {
      do_remote_decode: false,
      do_remote_prefill: true,
      remote_bootstrap_addr: bootstrapUrl(prefill),
      remote_engine_id: peerId ?? null,
      transfer_id: transferId,
    };
    return {
      prefill: {
        set: { ...shortPrefill(endpoint, fields), kv_transfer_params: JSON.stringify(sending) },
        headers: ["x-data-parallel-rank", String(prefill.rank)],
      },
      decode: () => ({ set: { kv_transfer_params: JSON.stringify(receiving) }, headers: [] }),
    };
  },
};

/**
 * Engines that share a block store (llm-d). If the caches in its reach have less of the prompt than the threshold, the
 * decode engine ends at once with reason `cache_threshold`. Then a prefill engine fills the store.
 */
const sharedStorage: TransferProtocol = {
  name: "shared-storage",
  order: "decode_first",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields, cachedShare }) => ({
    probe: { set: { cache_hit_threshold: String(cachedShare) }, headers: [] },
    prefill: { set: shortPrefill(endpoint, fields), headers: [] },
    decode: () => ({ set: { cache_hit_threshold: "0" }, headers: [] }),
  }),
};

const unfinished = new Set(['"length"', '"not_finished"']);
const requestType = /"request_type"\s*:\s*"[a-z_]*"/;

/**
 * TensorRT-LLM. The context server answers with parameters, including an opaque state and the first token. The
 * generation server gets them with another request type. If the answer ends with that token, there is no second leg.
 */
const trtllm: TransferProtocol = {
  name: "trtllm",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isPortable: true,
  pair: ({ endpoint, fields }) => ({
    prefill: {
      set: { ...shortPrefill(endpoint, fields), disaggregated_params: '{"request_type":"context_only"}' },
      headers: [],
    },
    decode(answer) {
      if (!answer || !unfinished.has(readJsonMember(answer, ["choices", "finish_reason"]) ?? "")) return undefined;
      const params = readJsonMember(answer, ["choices", "disaggregated_params"]);
      if (!params || !requestType.test(params)) return undefined;
      return {
        set: { disaggregated_params: params.replace(requestType, '"request_type":"generation_only"') },
        headers: [],
      };
    },
  }),
};

/** Default of vLLM's `kv_port`. */
const usualPort = 14_579;

/**
 * vLLM's P2P-NCCL connector. Both engines read each other's address from the request id. An engine of either role
 * refuses a request whose id has no address.
 */
const p2pNccl: TransferProtocol = {
  name: "p2p-nccl",
  order: "serial",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: false,
  pairsBoth: false,
  isPortable: false,
  pair({ prefill, decode, endpoint, fields, random }) {
    const id = `___prefill_addr_${addressOf(prefill)}___decode_addr_${addressOf(decode)}_${randomId(random)}`;
    const headers = ["x-request-id", id];
    return {
      prefill: { set: shortPrefill(endpoint, fields), headers },
      decode: () => ({ set: {}, headers }),
    };
  },
};

/**
 * Engines behind llm-d's sidecar (llm-d-router, `pkg/sidecar/proxy`). A header names the prefill engine to the sidecar of the
 * decode engine, which runs the prefill leg in the connector's own protocol. Without the header it serves requests alone.
 */
const llmdSidecar: TransferProtocol = {
  name: "llm-d-sidecar",
  order: "concurrent",
  endpoints: new Set(["chat", "completions"]),
  decodesAlone: true,
  pairsBoth: true,
  isAskedByDecode: true,
  combinesWithPull: true,
  isPortable: false,
  pair({ prefill }) {
    const at = `${transferHost(prefill)}:${prefill.transfer.port ?? portOf(prefill.url)}`;
    const headers = ["x-prefiller-host-port", at];
    return { prefill: { set: {}, headers: [] }, decode: () => ({ set: {}, headers }) };
  },
};

/** Every protocol, by its name in the configuration. */
export const transferProtocols: Readonly<Record<KvTransferProtocol, TransferProtocol>> = {
  nixl,
  sglang,
  mooncake,
  "shared-storage": sharedStorage,
  trtllm,
  "p2p-nccl": p2pNccl,
  "llm-d-sidecar": llmdSidecar,
};

function bootstrapUrl(prefill: LegEngine): string {
  return `http://${transferHost(prefill)}:${prefill.transfer.port ?? bootstrapPort}`;
}

const lowBits = 32n;
const lowBound = 2 ** 32;
/** A bootstrap room is a non-negative signed 64-bit integer; this bounds its high word. */
const highBound = 2 ** 31;

/**
 * Draws a bootstrap room in which two engines of SGLang meet. The prefill engine's rank is the room modulo its number
 * of ranks, so the room also chooses the rank.
 *
 * @returns decimal digits: the number does not fit into a double
 */
function bootstrapRoom(random: Random, rank: number, rankCount: number): string {
  const drawn = (BigInt(random.integer(highBound)) << lowBits) | BigInt(random.integer(lowBound));
  const ranks = BigInt(rankCount);
  // Rounding down stays below the bound: the rank is less than the remainder cut off, or than one whole step.
  const base = drawn - (drawn % ranks);
  const room = base + BigInt(rank);
  return String(room < BigInt(highBound) << lowBits ? room : room - ranks);
}

/** The first rank has the given port, each further rank the next one. */
function addressOf(engine: LegEngine): string {
  return `${transferHost(engine)}:${(engine.transfer.port ?? usualPort) + engine.rank}`;
}

/**
 * Makes a request end with its first token and in one piece. A prefill engine must answer with one token because the
 * API has no shorter answer.
 */
function shortPrefill(endpoint: Endpoint["id"], fields: JsonObject): Record<string, string> {
  const set: Record<string, string> = { stream: "false", max_tokens: "1" };
  if (endpoint === "chat") set.max_completion_tokens = "1";
  // Engines refuse stream options without a stream, and a lower bound above the upper one.
  if (fields.stream_options !== undefined) set.stream_options = "null";
  if (fields.min_tokens !== undefined) set.min_tokens = "0";
  return set;
}

/** Host at which other engines reach this engine's side of a transfer. IPv6 addresses are in brackets. */
function transferHost({ url, transfer }: LegEngine): string {
  return hostOf(url, transfer.host);
}

/** A given host, or that of a URL. IPv6 addresses are in brackets. */
export const hostOf = (url: string, given: string | undefined): string => hostInUrl(given ?? new URL(url).hostname);

/** The port of a URL, which need not be written. */
export function portOf(url: string): number {
  const { port, protocol } = new URL(url);
  return Number(port || (protocol === "https:" ? 443 : 80));
}

/** Default port of SGLang's bootstrap server, and of Mooncake's in vLLM. */
const bootstrapPort = 8_998;

const wordBound = 2 ** 32;

/** 128 random bits as 32 hexadecimal digits. */
export function randomId(random: Random): string {
  const word = (): string => random.integer(wordBound).toString(16).padStart(8, "0");
  return word() + word() + word() + word();
}
