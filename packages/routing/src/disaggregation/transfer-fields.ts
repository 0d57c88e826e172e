import type { RequestView } from "@espalier/api";

type JsonBody = RequestView["body"];

/** A name in requests that only a router may set, and where an engine reads it. */
interface ReservedName {
  readonly name: string;
  readonly engine: string;
  /** File and line of the engine's source. */
  readonly source: string;
  readonly purpose: string;
}

const of = (engine: string, file: string, purpose: string, places: Readonly<Record<string, number>>) =>
  Object.entries(places).map(([name, line]): ReservedName => ({ name, engine, source: `${file}:${line}`, purpose }));

const [vllm, sglang, tensorRt, llmD] = ["vLLM 0.32.0", "SGLang 0.5.23", "TensorRT-LLM", "llm-d"];
const chatProtocol = "vllm/entrypoints/openai/chat_completion/protocol.py";
const generateBase = "vllm/entrypoints/generate/base/serving.py";
const inputs = "sglang/srt/managers/io_struct.py";
const overrides = "sglang/srt/entrypoints/request_headers.py";
const sidecar = "pkg/common/routing/common.go";

/**
 * Fields of bodies by which a client could make engines connect to any address, or answer with the blocks of others. Field names
 * of one engine are reserved at all: a client cannot know which engine answers.
 */
const reservedFields: readonly ReservedName[] = [
  ...of(vllm, chatProtocol, "whose KV blocks to fetch, and from which address", { kv_transfer_params: 499 }),
  ...of(vllm, chatProtocol, "whose encoder outputs to fetch, and from which address", { ec_transfer_params: 504 }),
  ...of(sglang, inputs, "where the KV blocks of the other leg are", {
    ...{ bootstrap_host: 291, bootstrap_port: 292, bootstrap_room: 293, bootstrap_pair_key: 294, decode_tp_size: 295 },
  }),
  ...of(sglang, inputs, "which rank answers", { routed_dp_rank: 298, data_parallel_rank: 303 }),
  ...of(sglang, inputs, "which rank has the KV blocks", { disagg_prefill_dp_rank: 305 }),
  ...of(sglang, inputs, "what to do with KV blocks; an orchestrator's", { kv_hints: 378 }),
  ...of(sglang, inputs, "which encoders have the images, and their addresses", {
    ...{ need_wait_for_mm_inputs: 344, num_items_assigned: 345, encoder_urls: 348 },
  }),
  ...of(sglang, inputs, "identity of an image in caches, which its contents would give otherwise", {
    ...{ mm_hashes: 215, mm_content_hashes: 219 },
  }),
  ...of(sglang, inputs, "socket of the process that gets the answer", { http_worker_ipc: 312 }),
  ...of(sglang, inputs, "adapter by its internal id, past the model's name", { lora_id: 279 }),
  {
    name: "disaggregated_params",
    engine: tensorRt,
    source: "tensorrt_llm/serve/openai_protocol.py",
    purpose: "whose KV blocks to fetch",
  },
];

/** Objects in which vLLM takes reserved fields too: it passes both on as the arguments of its sampling. */
const reservedWithin: readonly ReservedName[] = [
  ...of(vllm, chatProtocol, "further arguments; in forms as JSON text", { vllm_xargs: 511 }),
  ...of(vllm, "vllm/sampling_params.py", "further arguments", { "sampling_params.extra_args": 412 }),
];

/** Headers of the same kind. They are removed. */
const reservedHeaders: readonly ReservedName[] = [
  ...of(vllm, generateBase, "which rank answers (SGLang reads it too)", { "x-data-parallel-rank": 225 }),
  ...of(vllm, generateBase, "priority, before that of the body", { "x-vllm-priority": 263 }),
  ...of(sglang, overrides, "field of the body, before the one in the body", {
    ...{ "x-override-rid": 11, "x-override-bootstrap-host": 12, "x-override-bootstrap-port": 13 },
    ...{ "x-override-bootstrap-room": 14, "x-override-conversation-id": 15, "x-override-routed-dp-rank": 16 },
    ...{ "x-override-disagg-prefill-dp-rank": 17, "x-override-priority": 18 },
  }),
  ...[
    ["x-prefiller-host-port", "address of the prefill engine"],
    ["x-prefiller-url", "address of the prefill engine"],
    ["x-encoder-hosts-ports", "addresses of encoders"],
    ["x-kv-cache-source-host-port", "address of the engine that has the KV blocks"],
    ["x-data-parallel-host-port", "address of the rank that answers"],
  ].map(([name, purpose]): ReservedName => ({ name: name!, engine: llmD!, source: sidecar, purpose: purpose! })),
];

export const reservedFieldNames: ReadonlySet<string> = new Set(reservedFields.map(({ name }) => name));
const widestName = Math.max(...[...reservedFieldNames].map((name) => name.length));
/** Headers, in lower case, that only a router may set. */
export const transferHeaderNames: ReadonlySet<string> = new Set(reservedHeaders.map(({ name }) => name));
const withinPaths = reservedWithin.map(({ name }) => name.split("."));
/** The first parts of these paths, which forms have as fields. */
export const reservedWithinNames: ReadonlySet<string> = new Set(withinPaths.map(([first]) => first!));

/** vLLM's connectors that go without a proxy's fields read the addresses of both engines from the request id. */
const addressInId = /___(?:prefill|decode)_addr_/;

/**
 * Finds the first field of a body that only a router may set. Fields that are null do not count. A key that appears twice counts
 * each time, since engines take the last one.
 *
 * @returns its path
 */
export function findTransferField(body: JsonBody): string | undefined {
  const own = reservedMember(body, 0);
  if (own !== undefined) return own;
  for (const path of withinPaths) {
    const found = reservedBelow(body, 0, path);
    if (found !== undefined) return `${path.join(".")}.${found}`;
  }
  return undefined;
}

function reservedMember(body: JsonBody, object: number): string | undefined {
  const end = body.after(object);
  for (let key = object + 1; key < end; key = body.after(key + 1)) {
    if (body.textBytes(key) > widestName || body.kindOf(key + 1) === "null") continue;
    const name = body.textOf(key);
    if (reservedFieldNames.has(name)) return name;
  }
  return undefined;
}

function reservedBelow(body: JsonBody, object: number, [name, ...rest]: readonly string[]): string | undefined {
  if (body.kindOf(object) !== "object") return undefined;
  if (name === undefined) return reservedMember(body, object);
  const end = body.after(object);
  for (let key = object + 1; key < end; key = body.after(key + 1)) {
    const found = body.isText(key, name) ? reservedBelow(body, key + 1, rest) : undefined;
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether an engine could read addresses from a request id. */
export function namesEngines(requestId: string): boolean {
  return addressInId.test(requestId);
}

/** `docs/RESERVED_FIELDS.md`. */
export function renderReservedDocs(): string {
  const rows = (names: readonly ReservedName[]) => [
    "| name | engine | read in | what it says |",
    "|---|---|---|---|",
    ...names.map(({ name, engine, source, purpose }) => `| \`${name}\` | ${engine} | \`${source}\` | ${purpose} |`),
    "",
  ];
  return [
    "# Reserved fields and headers",
    "",
    "Generated by `npm run docs`. Engines read these names as instructions of a router or an orchestrator. Clients may not set them, unless",
    "`trust-transfer-fields` is on ([threat model](THREAT_MODEL.md#the-data-plane)). Everything else in a body passes through to the engine.",
    "",
    "## Fields",
    "",
    "A request with one of these fields is refused with `reserved_field`, in every API, at `forward-paths`, and in forms. `null` counts as absent.",
    "",
    ...rows(reservedFields),
    "The fields are reserved inside these objects as well:",
    "",
    ...rows(reservedWithin),
    "## Headers",
    "",
    "These headers are removed. A body that `x-body-compressed` declares (SGLang 0.5.23, `sglang/srt/entrypoints/http_request_decompression.py:31`) is",
    "refused with `unsupported_encoding`, like one with `content-encoding`: the router cannot inspect it.",
    "",
    ...rows(reservedHeaders),
    "A request id that contains engines' addresses (`___prefill_addr_`, `___decode_addr_`: vLLM 0.32.0,",
    "`vllm/distributed/kv_transfer/kv_connector/v1/moriio/moriio_common.py:433`) is replaced.",
    "",
    "## Left to clients",
    "",
    "`cache_salt`, `session_id`, `session_params`, `routing_key`, `extra_key`, `priority`, `rid`, `request_id`, and `uuid` of images in messages. They",
    "describe the client's own request, and name no address, rank or block.",
    "",
  ].join("\n");
}
