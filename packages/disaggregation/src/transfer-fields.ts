import type { RequestView } from "@espalier/openai";

/**
 * Fields that engines accept only from a router: whose KV blocks to fetch, from which address, and which rank answers.
 * With them, a client could make engines connect to any address, or answer with the blocks of others.
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
/** vLLM takes further sampling parameters from here, including `kv_transfer_params`. */
const extraArguments = "vllm_xargs";

/** Headers of vLLM, SGLang and llm-d's sidecars. */
const transferHeaders: ReadonlySet<string> = new Set([
  ...["x-data-parallel-rank", "x-data-parallel-host-port"],
  ...["x-prefiller-host-port", "x-prefiller-url", "x-encoder-hosts-ports", "x-kv-cache-source-host-port"],
]);

/** vLLM's P2P-NCCL connector reads the addresses of both engines from the request id. */
const addressInId = /___(?:prefill|decode)_addr_/;

/** Finds the first field of a body that only a router may set. Fields that are null do not count. @returns its path */
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

/** @param headers flat name and value pairs @returns those that a client may set; the same array if all of them are */
export function withoutTransferHeaders(headers: readonly string[]): readonly string[] {
  const isTransfer = (name: string): boolean => transferHeaders.has(name.toLowerCase());
  if (!headers.some((name, at) => at % 2 === 0 && isTransfer(name))) return headers;
  return headers.filter((_, at) => !isTransfer(headers[at - (at % 2)]!));
}

/** Whether an engine could read addresses from a request id. */
export function namesEngines(requestId: string): boolean {
  return addressInId.test(requestId);
}
