import type { Translation } from "../translation.ts";
import {
  accepted,
  type FlagRouter,
  type FlagRow,
  type GivenFlags,
  givenValue,
  none,
  type Outcome,
  translated,
} from "./flag-table.ts";
import {
  type ForeignPolicies,
  policyNamed,
  sayPolicy,
  setCollector,
  setList,
  setNumber,
  setText,
  setTo,
} from "./setters.ts";

/** Policies of both that have another name here, or none. The others have the same name. */
const policies: ForeignPolicies = {
  manual: { name: "sticky" },
  least_load: { name: "least_work", why: "the work is counted in tokens, with what caches save taken off" },
  passthrough: { name: "round_robin", why: "it is for one engine, for which any policy does" },
  bucket: {
    outcome: "missing",
    why: "engines have no range of prompt lengths",
    instead: "`policy: predicted_latency`",
  },
};

/** Flags of sglang-router that SMG has kept. */
const shared: readonly FlagRow[] = [
  accepted({ lists: "--worker-urls" }),
  accepted("--host --port"),
  accepted("--policy", {
    ours: "`policy`",
    why: "`manual` is `sticky` here; the default is `predicted_latency`",
    set: sayPolicy(policies),
  }),
  accepted("--cache-threshold --balance-abs-threshold --balance-rel-threshold", {
    why: "caches are known by token and by KV event, where engines publish them",
  }),
  accepted("--max-idle-secs", { why: "all routers share the bindings, with no Redis needed" }),
  accepted("--prometheus-port"),
  accepted("--prometheus-host", {
    why: "the admin API is there too: off loopback it needs `admin.key` or `ESPALIER_ADMIN_KEY`",
  }),
  accepted(
    "--health-check-endpoint --health-check-interval-secs --health-check-timeout-secs --health-failure-threshold --health-success-threshold",
  ),
  accepted("--cb-failure-threshold --cb-success-threshold --cb-timeout-duration-secs --cb-window-duration-secs", {
    why: "it also opens on a share of failures",
  }),
  accepted("--max-payload-size --log-level --tls-cert-path --tls-key-path"),
  accepted("--max-concurrent-requests", {
    ours: "`limits.max-concurrent-requests`",
    why: "-1 is no value: the most that a router takes is 1000000",
    set: (values, translation) =>
      values[0] === "-1"
        ? { ours: "the default of `limits.max-concurrent-requests`, 4096", why: "there is always a limit" }
        : setNumber("limits.max-concurrent-requests", { min: 1, max: 1_000_000 })(values, translation),
  }),
  accepted("--shutdown-grace-period-secs", { why: "readiness goes false `drain.delay` earlier" }),
  translated(
    { switches: "--pd-disaggregation", lists: "--prefill --decode" },
    "`engines` with `role` and `kv-transfer`",
    { why: "a prompt of which little is to be computed goes to one engine alone" },
  ),
  translated(
    {
      flags: "--service-discovery-port --service-discovery-namespace",
      switches: "--service-discovery",
      lists: "--selector",
    },
    "`discovery.pods`",
  ),
  translated({ lists: "--prefill-selector --decode-selector" }, "`discovery.pods` with `role` and `kv-transfer`", {
    why: "a bootstrap port other than 8998 stands in the annotation `espalier.dev/kv-transfer-port`",
  }),
  none("--prefill-policy --decode-policy", "one policy chooses both engines", "`policy`, or nothing"),
  translated("--request-timeout-secs", "`timeouts.answer`", {
    why: "it counts from the request's arrival, whatever is tried",
    set: setText("timeouts.answer", "s"),
  }),
  translated("--queue-size", "`admission.max-queued`", {
    why: "requests wait while engines are busy, by class and tenant",
    set: setNumber("admission.max-queued", { min: 0, max: 1_000_000 }),
  }),
  none(
    "--queue-timeout-secs",
    "a request waits for as long as its deadline lets it",
    "`x-espalier-deadline-ms`, or `admission.classes[].target`",
  ),
  none(
    "--rate-limit-tokens-per-second",
    "there is no rate per second: tenants share what engines can do",
    "`admission`",
  ),
  none(
    "--retry-max-retries --retry-initial-backoff-ms --retry-max-backoff-ms --retry-backoff-multiplier --retry-jitter-factor",
    "another engine is asked at once, inside a budget for all requests",
    "`retry.budget-ratio`",
  ),
  translated({ switches: "--disable-retries" }, "`retry.budget-ratio: 0`, `retry.budget-minimum: 0`", {
    why: "an engine that took nothing of a request is still replaced by another one",
    set: setTo("retry", { "budget-ratio": 0, "budget-minimum": 0 }),
  }),
  translated({ switches: "--disable-circuit-breaker" }, "`breaker.max-ejected-share: 0`", {
    set: setTo("breaker.max-ejected-share", 0),
  }),
  none({ switches: "--disable-health-check" }, "engines are always checked", "a long `health.interval`"),
  translated("--worker-startup-timeout-secs --worker-startup-check-interval", "built-in", {
    why: "an engine gets requests when it is up, however long it takes",
  }),
  none("--max-tree-size", "memory is bounded by what engines hold"),
  translated("--assignment-mode", "built-in", { why: "a new session goes to the engine with the least work" }),
  none(
    { switches: "--dp-aware" },
    "engines are not asked how many ranks they have",
    "`ranks` of engines, where they are listed or found",
  ),
  translated({ switches: "--enable-igw" }, "built-in"),
  translated("--api-key", "`pools[].engine-api-key` for engines, `api-keys` for clients", { set: setApiKey }),
  none(
    { flags: "--jwt-issuer --jwt-audience --jwt-jwks-uri", lists: "--jwt-role-mapping --control-plane-api-keys" },
    "operators have one key, or a client certificate",
    "`admin.key`, `admin.tls.ca-file`",
  ),
  translated({ flags: "--otlp-traces-endpoint", switches: "--enable-trace" }, "`tracing.endpoint`", {
    why: "traces are sent over HTTP, to port 4318, not over gRPC",
  }),
  translated("--model-path --tokenizer-path", "`tokenizers`", {
    why: "a folder is read; a name of Hugging Face is not fetched: engines are asked for tokens",
  }),
  none("--chat-template", "the template is the one beside the tokenizer", "`tokenizers[].path`, a folder with both"),
  translated("--tokenizer-cache-l1-max-memory", "`tokenize.cache`", {
    why: "1 MiB at least",
    set: setNumber("tokenize.cache", { min: 1_048_576, max: 17_179_869_184 }),
  }),
  translated(
    { flags: "--tokenizer-cache-l0-max-entries", switches: "--tokenizer-cache-enable-l0 --tokenizer-cache-enable-l1" },
    "built-in",
  ),
  translated("--backend", "built-in", {
    why: "engines serve the OpenAI API, whatever they are; providers in the cloud are none",
  }),
  none("--log-dir", "logs go to standard error", "a file for standard error"),
  none({ lists: "--prometheus-duration-buckets" }, "the buckets are fixed"),
  none({ lists: "--request-id-headers" }, "it is `x-request-id`"),
  translated({ lists: "--cors-allowed-origins" }, "`cors.origins`", { set: setList("cors.origins") }),
  none("--reasoning-parser --tool-call-parser --mcp-config-path", "engines do that", "the engines' own flags"),
  none(
    "--history-backend --oracle-wallet-path --oracle-tns-alias --oracle-password --oracle-pool-min --oracle-pool-max --oracle-pool-timeout-secs --postgres-db-url --redis-url --redis-retention-days",
    "conversations are not stored",
  ),
];

/** Flags that only sglang-router has. */
const sglangOnly: readonly FlagRow[] = [
  accepted("--client-cert-path --client-key-path"),
  translated({ lists: "--ca-cert-paths" }, "`engine-tls.ca-file`", {
    why: "one file; it may hold several certificates",
    set: setText("engine-tls.ca-file"),
  }),
  none("--bucket-adjust-interval-secs", "engines have no range of prompt lengths"),
  none({ switches: "--mini-lb" }, "it is for debugging"),
  none("--eviction-interval-secs", "memory is bounded by what engines hold"),
  none({ switches: "--control-plane-audit-enabled" }, "changes by operators are in the log"),
  none(
    "--oracle-connect-descriptor --oracle-username --postgres-pool-max --redis-pool-max",
    "conversations are not stored",
  ),
];

/** Flags that only SMG has. */
const smgOnly: readonly FlagRow[] = [
  accepted("--prefix-token-count --prefix-hash-load-factor", { why: "tokens are hashed, not characters" }),
  translated("--block-size", "`prefix.block-size`", { set: setNumber("prefix.block-size", { min: 1, max: 1_024 }) }),
  translated("--load-monitor-interval", "`scrape.interval`", { set: setText("scrape.interval", "s") }),
  translated({ switches: "--log-json" }, "`log.format: json`", { set: setTo("log.format", "json") }),
  translated({ lists: "--tenant-api-key" }, "`api-keys`", { set: setTenantKeys }),
  translated({ switches: "--trust-tenant-header" }, "`admission.trust-tenant-header: true`", {
    why: "the header is `x-espalier-tenant`",
    set: setTo("admission.trust-tenant-header", true),
  }),
  none("--tenant-header-name", "the header is `x-espalier-tenant`", "a gateway in front that renames it"),
  translated(
    {
      flags: "--mesh-host --mesh-port --mesh-advertise-host --mesh-server-name",
      switches: "--enable-mesh",
      lists: "--mesh-peer-urls --router-selector",
    },
    "`mesh.host`, `mesh.port`, `mesh.advertise`, `mesh.seeds`, `mesh.seed-pods`",
    {
      why: "the protocol is different, and members need `mesh.secret` or `ESPALIER_MESH_SECRET`; the two cannot be mixed in one cluster",
    },
  ),
  none(
    "--balance-token-usage-threshold --overload-token-usage-threshold",
    "engines that are full are left out by admission",
    "`admission.max-kv-use`",
  ),
  none(
    "--least-load-kv-pressure-weight --least-load-default-throughput --least-load-mean-prefill-tokens",
    "work is counted in tokens, and engines' speed is learned",
  ),
  none("--eviction-interval", "memory is bounded by what engines hold"),
  none(
    { switches: "--routing-key-override" },
    "the policy decides alone",
    "`policy: sticky`, which reads `x-smg-routing-key`",
  ),
  translated({ switches: "--dp-minimum-tokens-scheduler" }, "built-in", {
    why: "each of an engine's `ranks` has a load of its own",
  }),
  none(
    {
      flags: "--encode-policy --multimodal-tensor-transport --multimodal-shm-min-bytes",
      switches: "--epd-disaggregation",
      lists: "--encode --encode-selector",
    },
    "images are not encoded by engines of their own",
    "engines that encode images themselves",
  ),
  none(
    "--model-id-from",
    "engines are asked for their models",
    "`models` of what is found, or the annotation `espalier.dev/models`",
  ),
  none(
    {
      flags:
        "--priority-scheduler-default-max-class --priority-scheduler-config --priority-scheduler-tenant-metric-top-n",
      switches: "--priority-scheduler-enabled",
    },
    "admission has classes and tenants of its own",
    "`admission.classes`",
  ),
  none(
    { flags: "--tenant-rate-limit-config", switches: "--tenant-rate-limit-enabled" },
    "there is no rate per second: tenants share what engines can do",
    "`admission`",
  ),
  none("--health-check-port", "probes are answered at the admin port", "`/livez` and `/readyz` there"),
  translated({ flags: "--drain-settle-secs", switches: "--remove-unhealthy-workers" }, "built-in", {
    why: "an engine that is down or leaves gets no more requests, and what runs there may end",
  }),
  none({ switches: "--engine-metrics" }, "engines' metrics are not repeated", "engines' own `/metrics`, in Prometheus"),
  none({ switches: "--disable-tokenizer-autoload" }, "no tokenizer is loaded unasked"),
  none(
    {
      flags:
        "--oracle-dsn --oracle-user --postgres-pool-max-size --redis-pool-max-size --schema-config --storage-hook-wasm-path",
      switches: "--oracle-external-auth --enable-wasm",
      lists: "--storage-context-headers",
    },
    "conversations are not stored, and WebAssembly is not run",
  ),
  none(
    { flags: "--jwt-role-claim", switches: "--disable-audit-logging" },
    "operators have one key, or a client certificate, and their changes are in the log",
    "`admin.key`, `admin.tls.ca-file`",
  ),
  none("--webrtc-bind-addr --webrtc-stun-server", "WebRTC is not relayed"),
  none("--runtime-worker-threads", "a router is one process with one event loop", "`processes`"),
];

const defaults = {
  host: "0.0.0.0",
  port: 30_000,
  metricsPort: 29_000,
  meshPort: 39_527,
  body: "512MiB",
  healthTimeout: "5s",
};

/** Shortest key that a client may have here. */
const minKeyLength = 8;

function addKey(name: string, key: string, translation: Translation): Outcome | undefined {
  if (key.length < minKeyLength) {
    return { outcome: "missing", why: `keys have ${minKeyLength} characters at least`, instead: "a longer key" };
  }
  const keys = (translation.get("api-keys") ?? []) as readonly unknown[];
  translation.settings["api-keys"] = [...keys, { name, key }];
  return undefined;
}

function setApiKey([key = ""]: readonly string[], translation: Translation): Outcome | undefined {
  translation.set("pools", [{ models: ["*"], "engine-api-key": key }]);
  return addKey("clients", key, translation);
}

function setTenantKeys(values: readonly string[], translation: Translation): Outcome | undefined {
  const said = values.map((value) => {
    const [tenant = "", ...key] = value.split(":");
    return addKey(tenant, key.join(":"), translation);
  });
  return said.find((outcome) => outcome !== undefined);
}

/** The address of an engine in our form; undefined for one that is not reached over HTTP. */
function engineUrl(address: string): string | undefined {
  if (/^https?:\/\//.test(address)) return address;
  return address.includes("://") ? undefined : `http://${address}`;
}

function translateEngines(given: GivenFlags, translation: Translation): void {
  const protocol = givenValue(given, "--backend") === "vllm" ? "nixl" : "sglang";
  const engines: unknown[] = [];
  const add = (flag: string, address: string, settings?: Readonly<Record<string, unknown>>): void => {
    const url = engineUrl(address);
    if (url !== undefined) engines.push(settings === undefined ? url : { url, ...settings });
    else {
      const why = "engines are reached over HTTP";
      translation.missing(`${flag} ${address}`, why, "the engine's HTTP port");
    }
  };
  for (const address of given.get("--worker-urls") ?? []) add("--worker-urls", address);
  const prefill = given.get("--prefill") ?? [];
  for (const [at, address] of prefill.entries()) {
    if (isPort(address)) continue;
    const port = Number(prefill[at + 1]);
    const transfer = { protocol, ...(Number.isInteger(port) && protocol === "sglang" ? { port } : {}) };
    add("--prefill", address, { role: "prefill", "kv-transfer": transfer });
  }
  for (const address of given.get("--decode") ?? []) {
    add("--decode", address, { role: "decode", "kv-transfer": { protocol } });
  }
  if (engines.length > 0) translation.settings.engines = engines;
}

/** What stands behind the address of a prefill engine. */
const isPort = (word: string): boolean => /^\d+$/.test(word) || word.toLowerCase() === "none";

function translateDiscovery(given: GivenFlags, translation: Translation): void {
  if (!given.has("--service-discovery")) return;
  const namespace = givenValue(given, "--service-discovery-namespace");
  if (namespace === undefined) {
    translation.remark({
      theirs: "--service-discovery-namespace, which is not given",
      outcome: "differs",
      ours: "the namespace of the service account",
      why: "theirs looks in all of them",
      instead: "an element of `discovery.pods` for each `namespace`",
    });
  }
  const place = {
    ...(namespace === undefined ? {} : { namespace }),
    port: Number(givenValue(given, "--service-discovery-port") ?? 80),
  };
  const transfer = givenValue(given, "--backend") === "vllm" ? "nixl" : "sglang";
  const pods = [
    ["--selector", {}],
    ["--prefill-selector", { role: "prefill", "kv-transfer": transfer }],
    ["--decode-selector", { role: "decode", "kv-transfer": transfer }],
  ] as const;
  translation.set(
    "discovery.pods",
    pods.flatMap(([flag, settings]) => {
      const selector = selectorOf(given, flag);
      return selector === undefined ? [] : [{ selector, ...place, ...settings }];
    }),
  );
}

/** Labels as one selector. They may be written as one word, too. */
function selectorOf(given: GivenFlags, flag: string): string | undefined {
  const labels = (given.get(flag) ?? []).flatMap((word) => word.split(" ")).filter((label) => label.includes("="));
  return labels.length === 0 ? undefined : labels.join(",");
}

function translateMesh(given: GivenFlags, translation: Translation): void {
  if (!given.has("--enable-mesh")) return;
  const port = Number(givenValue(given, "--mesh-port") ?? defaults.meshPort);
  const advertised = givenValue(given, "--mesh-advertise-host");
  const selector = selectorOf(given, "--router-selector");
  translation.set("mesh", {
    host: givenValue(given, "--mesh-host") ?? "0.0.0.0",
    port,
    ...(advertised === undefined ? {} : { advertise: `${advertised}:${port}` }),
    seeds: (given.get("--mesh-peer-urls") ?? []).map((url) => url.replace(/^[a-z]+:\/\//, "")),
    ...(selector === undefined ? {} : { "seed-pods": [{ selector, port }] }),
  });
}

function finish(given: GivenFlags, translation: Translation): void {
  translateEngines(given, translation);
  translateDiscovery(given, translation);
  translateMesh(given, translation);
  if (given.has("--enable-trace")) {
    setCollector(givenValue(given, "--otlp-traces-endpoint") ?? "localhost:4317", "http", translation);
  }
  const model = givenValue(given, "--tokenizer-path") ?? givenValue(given, "--model-path");
  if (model !== undefined) {
    const path = model.replace(/\/tokenizer\.json$/, "");
    translation.set("tokenizers", [/^[./~]/.test(model) ? { path } : { mode: "engine" }]);
  }
  const unset = [
    ["--host", "listen.host", defaults.host],
    ["--port", "listen.port", defaults.port],
    ["--prometheus-port", "admin.port", defaults.metricsPort],
    ["--max-payload-size", "limits.max-body-bytes", defaults.body],
    ["--health-check-timeout-secs", "health.timeout", defaults.healthTimeout],
  ] as const;
  for (const [flag, path, value] of unset) {
    if (!given.has(flag)) translation.translate(path, value, { theirs: `${flag}, their default` });
  }
  if (!given.has("--health-check-interval-secs")) {
    translation.remark({
      theirs: "--health-check-interval-secs 60, their default",
      outcome: "differs",
      ours: "`health.interval: 2s`",
      why: "an engine that is down is found within seconds",
    });
  }
  if (!given.has("--prometheus-host")) {
    translation.remark({
      theirs: "--prometheus-host 0.0.0.0, their default",
      outcome: "differs",
      ours: "`admin.host: 127.0.0.1`",
      why: "the admin API is there too",
      instead: "`admin.host` with `admin.key`",
    });
  }
}

const policy = (given: GivenFlags): string | undefined =>
  policyNamed(givenValue(given, "--policy") ?? "cache_aware", policies);

/** SGLang's router, started by `sglang_router.launch_router` or `sglang-router launch`: `router_args.py`. */
export const sglangRouter: FlagRouter = {
  title: "sglang-router 0.3.2",
  rows: [...shared, ...sglangOnly],
  // `sglang_router.launch_server` starts engines and a router, whose flags have it.
  prefix: "--router-",
  policy,
  finish,
};

/** SMG, Shepherd Model Gateway, which was SGLang's router: `model_gateway/src/main.rs`. */
export const smg: FlagRouter = {
  title: "SMG 1.9.0",
  rows: [...shared, ...smgOnly],
  synonyms: { "--runtime": "--backend", "--model": "--model-path" },
  policy,
  finish,
};
