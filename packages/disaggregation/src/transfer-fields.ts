import type { RequestView } from "@espalier/openai";

/**
 * Fields that engines trust to come from a router: whose KV blocks to fetch, from which address, and which rank is asked. A
 * client could use them to make engines connect to addresses of its choice, or answer with blocks of others.
 */
const transferFields: readonly string[] = [
  // vLLM
  ...["kv_transfer_params", "ec_transfer_params"],
  // SGLang
  ...["bootstrap_host", "bootstrap_port", "bootstrap_room", "bootstrap_pair_key", "decode_tp_size"],
  ...["data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank"],
  // TensorRT-LLM
  "disaggregated_params",
];
/** vLLM takes further parameters of sampling from here, `kv_transfer_params` among them. */
const extraArguments = "vllm_xargs";

/** Of vLLM and SGLang, and of llm-d's sidecars. */
const transferHeaders: ReadonlySet<string> = new Set([
  ...["x-data-parallel-rank", "x-data-parallel-host-port"],
  ...["x-prefiller-host-port", "x-prefiller-url", "x-encoder-hosts-ports"],
]);

/** vLLM's P2P-NCCL connector reads the addresses of both engines out of the request's id. */
const addressInId = /___(?:prefill|decode)_addr_/;

/** The first field of a body that only a router may set, as a path; undefined where there is none, or only nulls. */
export function findTransferField({ body }: Pick<RequestView, "body">): string | undefined {
  for (const name of transferFields) {
    const node = body.member(name);
    if (node !== undefined && body.kindOf(node) !== "null") return name;
  }
  const extra = body.member(extraArguments);
  if (extra === undefined || body.kindOf(extra) !== "object") return undefined;
  for (let key = extra + 1; key < body.after(extra); key = body.after(key + 1)) {
    if (transferFields.includes(body.textOf(key))) return `${extraArguments}.${body.textOf(key)}`;
  }
  return undefined;
}

/** @param headers flat name and value pairs @returns those that a client may set; the same array where that is all */
export function withoutTransferHeaders(headers: readonly string[]): readonly string[] {
  const isTransfer = (name: string): boolean => transferHeaders.has(name.toLowerCase());
  if (!headers.some((name, at) => at % 2 === 0 && isTransfer(name))) return headers;
  return headers.filter((_, at) => !isTransfer(headers[at - (at % 2)]!));
}

/** Whether an engine could take addresses from the id of a request. */
export function namesEngines(requestId: string): boolean {
  return addressInId.test(requestId);
}
