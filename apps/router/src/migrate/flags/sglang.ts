import type { Translation } from "../translation.ts";
import { type FlagRouter, type FlagRow, type GivenFlags, givenValue, type Outcome } from "./flag-table.ts";
import { type ForeignPolicies, policyNamed, sayPolicy, setCollector, setNumber, setText, setTo } from "./setters.ts";

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
  { how: "accepted", lists: "--worker-urls" },
  { how: "accepted", flags: "--host --port" },
  {
    how: "accepted",
    flags: "--policy",
    ours: "`policy`",
    why: "`manual` is `sticky` here; the default is `predicted_latency`",
    set: sayPolicy(policies),
  },
  {
    how: "accepted",
    flags: "--cache-threshold --balance-abs-threshold --balance-rel-threshold",
    why: "caches are known by token and by KV event, where engines publish them",
  },
  { how: "accepted", flags: "--max-idle-secs", why: "all routers share the bindings, with no Redis needed" },
  { how: "accepted", flags: "--prometheus-port" },
  {
    how: "accepted",
    flags: "--prometheus-host",
    why: "the admin API is there too: off loopback it needs `admin.key` or `ESPALIER_ADMIN_KEY`",
  },
  {
    how: "accepted",
    flags:
      "--health-check-endpoint --health-check-interval-secs --health-check-timeout-secs --health-failure-threshold --health-success-threshold",
  },
  {
    how: "accepted",
    flags: "--cb-failure-threshold --cb-success-threshold --cb-timeout-duration-secs --cb-window-duration-secs",
    why: "it also opens on a share of failures",
  },
  { how: "accepted", flags: "--max-payload-size --log-level --tls-cert-path --tls-key-path" },
  {
    how: "accepted",
    flags: "--max-concurrent-requests",
    ours: "`limits.max-concurrent-requests`",
    why: "-1 is no value: the most that a router takes is 1000000",
    set: (values, translation) =>
      values[0] === "-1"
        ? { ours: "the default of `limits.max-concurrent-requests`, 4096", why: "there is always a limit" }
        : setNumber("limits.max-concurrent-requests", { min: 1, max: 1_000_000 })(values, translation),
  },
  { how: "accepted", flags: "--shutdown-grace-period-secs", why: "readiness goes false `drain.delay` earlier" },
  {
    how: "translated",
    switches: "--pd-disaggregation",
    lists: "--prefill --decode",
    ours: "`engines` with `role` and `kv-transfer`",
    why: "a prompt of which little is to be computed goes to one engine alone",
  },
  {
    how: "translated",
    flags: "--service-discovery-port --service-discovery-namespace",
    switches: "--service-discovery",
    lists: "--selector",
    ours: "`discovery.pods`",
  },
  {
    how: "translated",
    lists: "--prefill-selector --decode-selector",
    ours: "`discovery.pods` with `role` and `kv-transfer`",
    why: "a bootstrap port other than 8998 stands in the annotation `espalier.dev/kv-transfer-port`",
  },
  {
    how: "none",
    flags: "--prefill-policy --decode-policy",
    why: "one policy chooses both engines",
    instead: "`policy`, or nothing",
  },
  {
    how: "translated",
    flags: "--request-timeout-secs",
    ours: "`timeouts.answer`",
    why: "it counts from the request's arrival, whatever is tried",
    set: setText("timeouts.answer", "s"),
  },
  {
    how: "translated",
    flags: "--queue-size",
    ours: "`admission.max-queued`",
    why: "requests wait while engines are busy, by class and tenant",
    set: setNumber("admission.max-queued", { min: 0, max: 1_000_000 }),
  },
  {
    how: "none",
    flags: "--queue-timeout-secs",
    why: "a request waits for as long as its deadline lets it",
    instead: "`x-espalier-deadline-ms`, or `admission.classes[].target`",
  },
  {
    how: "none",
    flags: "--rate-limit-tokens-per-second",
    why: "there is no rate per second: tenants share what engines can do",
    instead: "`admission`",
  },
  {
    how: "none",
    flags:
      "--retry-max-retries --retry-initial-backoff-ms --retry-max-backoff-ms --retry-backoff-multiplier --retry-jitter-factor",
    why: "another engine is asked at once, inside a budget for all requests",
    instead: "`retry.budget-ratio`",
  },
  {
    how: "translated",
    switches: "--disable-retries",
    ours: "`retry.budget-ratio: 0`, `retry.budget-minimum: 0`",
    why: "an engine that took nothing of a request is still replaced by another one",
    set: setTo("retry", { "budget-ratio": 0, "budget-minimum": 0 }),
  },
  {
    how: "translated",
    switches: "--disable-circuit-breaker",
    ours: "`breaker.max-ejected-share: 0`",
    set: setTo("breaker.max-ejected-share", 0),
  },
  {
    how: "none",
    switches: "--disable-health-check",
    why: "engines are always checked",
    instead: "a long `health.interval`",
  },
  {
    how: "translated",
    flags: "--worker-startup-timeout-secs --worker-startup-check-interval",
    ours: "built-in",
    why: "an engine gets requests when it is up, however long it takes",
  },
  {
    how: "none",
    flags: "--max-tree-size",
    why: "memory is bounded by what engines hold",
    instead: "nothing to set",
  },
  {
    how: "translated",
    flags: "--assignment-mode",
    ours: "built-in",
    why: "a new session goes to the engine with the least work",
  },
  {
    how: "none",
    switches: "--dp-aware",
    why: "engines are not asked how many ranks they have",
    instead: "`ranks` of engines, where they are listed or found",
  },
  { how: "translated", switches: "--enable-igw", ours: "built-in" },
  {
    how: "translated",
    flags: "--api-key",
    ours: "`pools[].engine-api-key` for engines, `api-keys` for clients",
    set: setApiKey,
  },
  {
    how: "none",
    flags: "--jwt-issuer --jwt-audience --jwt-jwks-uri",
    lists: "--jwt-role-mapping --control-plane-api-keys",
    why: "operators have one key, or a client certificate",
    instead: "`admin.key`, `admin.tls.ca-file`",
  },
  {
    how: "translated",
    flags: "--otlp-traces-endpoint",
    switches: "--enable-trace",
    ours: "`tracing.endpoint`",
    why: "traces are sent over HTTP, to port 4318, not over gRPC",
  },
  {
    how: "translated",
    flags: "--model-path --tokenizer-path",
    ours: "`tokenizers`",
    why: "a folder is read; a name of Hugging Face is not fetched: engines are asked for tokens",
  },
  {
    how: "none",
    flags: "--chat-template",
    why: "the template is the one beside the tokenizer",
    instead: "`tokenizers[].path`, a folder with both",
  },
  {
    how: "translated",
    flags: "--tokenizer-cache-l1-max-memory",
    ours: "`tokenize.cache`",
    why: "1 MiB at least",
    set: setNumber("tokenize.cache", { min: 1_048_576, max: 17_179_869_184 }),
  },
  {
    how: "translated",
    flags: "--tokenizer-cache-l0-max-entries",
    switches: "--tokenizer-cache-enable-l0 --tokenizer-cache-enable-l1",
    ours: "built-in",
  },
  {
    how: "translated",
    flags: "--backend",
    ours: "built-in",
    why: "engines serve the OpenAI API, whatever they are; providers in the cloud are none",
  },
  { how: "none", flags: "--log-dir", why: "logs go to standard error", instead: "a file for standard error" },
  {
    how: "none",
    lists: "--prometheus-duration-buckets",
    why: "the buckets are fixed",
    instead: "nothing to set",
  },
  { how: "none", lists: "--request-id-headers", why: "it is `x-request-id`", instead: "nothing to set" },
  { how: "none", lists: "--cors-allowed-origins", why: "browsers are no clients", instead: "a gateway in front" },
  {
    how: "none",
    flags: "--reasoning-parser --tool-call-parser --mcp-config-path",
    why: "engines do that",
    instead: "the engines' own flags",
  },
  {
    how: "none",
    flags:
      "--history-backend --oracle-wallet-path --oracle-tns-alias --oracle-password --oracle-pool-min --oracle-pool-max --oracle-pool-timeout-secs --postgres-db-url --redis-url --redis-retention-days",
    why: "conversations are not stored",
    instead: "nothing to set",
  },
];

/** Flags that only sglang-router has. */
const sglangOnly: readonly FlagRow[] = [
  { how: "accepted", flags: "--client-cert-path --client-key-path" },
  {
    how: "translated",
    lists: "--ca-cert-paths",
    ours: "`engine-tls.ca-file`",
    why: "one file; it may hold several certificates",
    set: setText("engine-tls.ca-file"),
  },
  {
    how: "none",
    flags: "--bucket-adjust-interval-secs",
    why: "engines have no range of prompt lengths",
    instead: "nothing to set",
  },
  { how: "none", switches: "--mini-lb", why: "it is for debugging", instead: "nothing to set" },
  {
    how: "none",
    flags: "--eviction-interval-secs",
    why: "memory is bounded by what engines hold",
    instead: "nothing to set",
  },
  {
    how: "none",
    switches: "--control-plane-audit-enabled",
    why: "changes by operators are in the log",
    instead: "nothing to set",
  },
  {
    how: "none",
    flags: "--oracle-connect-descriptor --oracle-username --postgres-pool-max --redis-pool-max",
    why: "conversations are not stored",
    instead: "nothing to set",
  },
];

/** Flags that only SMG has. */
const smgOnly: readonly FlagRow[] = [
  {
    how: "accepted",
    flags: "--prefix-token-count --prefix-hash-load-factor",
    why: "tokens are hashed, not characters",
  },
  {
    how: "translated",
    flags: "--block-size",
    ours: "`prefix.block-size`",
    set: setNumber("prefix.block-size", { min: 1, max: 1_024 }),
  },
  {
    how: "translated",
    flags: "--load-monitor-interval",
    ours: "`scrape.interval`",
    set: setText("scrape.interval", "s"),
  },
  {
    how: "translated",
    switches: "--log-json",
    ours: "`log.format: json`",
    set: setTo("log.format", "json"),
  },
  {
    how: "translated",
    lists: "--tenant-api-key",
    ours: "`api-keys`",
    set: setTenantKeys,
  },
  {
    how: "translated",
    switches: "--trust-tenant-header",
    ours: "`admission.trust-tenant-header: true`",
    why: "the header is `x-espalier-tenant`",
    set: setTo("admission.trust-tenant-header", true),
  },
  {
    how: "none",
    flags: "--tenant-header-name",
    why: "the header is `x-espalier-tenant`",
    instead: "a gateway in front that renames it",
  },
  {
    how: "translated",
    flags: "--mesh-host --mesh-port --mesh-advertise-host --mesh-server-name",
    switches: "--enable-mesh",
    lists: "--mesh-peer-urls --router-selector",
    ours: "`mesh.host`, `mesh.port`, `mesh.advertise`, `mesh.seeds`, `mesh.seed-pods`",
    why: "the protocol is different, and members need `mesh.secret` or `ESPALIER_MESH_SECRET`; the two cannot be mixed in one cluster",
  },
  {
    how: "none",
    flags: "--balance-token-usage-threshold --overload-token-usage-threshold",
    why: "engines that are full are left out by admission",
    instead: "`admission.max-kv-use`",
  },
  {
    how: "none",
    flags: "--least-load-kv-pressure-weight --least-load-default-throughput --least-load-mean-prefill-tokens",
    why: "work is counted in tokens, and engines' speed is learned",
    instead: "nothing to set",
  },
  {
    how: "none",
    flags: "--eviction-interval",
    why: "memory is bounded by what engines hold",
    instead: "nothing to set",
  },
  {
    how: "none",
    switches: "--routing-key-override",
    why: "the policy decides alone",
    instead: "`policy: sticky`, which reads `x-smg-routing-key`",
  },
  {
    how: "translated",
    switches: "--dp-minimum-tokens-scheduler",
    ours: "built-in",
    why: "each of an engine's `ranks` has a load of its own",
  },
  {
    how: "none",
    flags: "--encode-policy --multimodal-tensor-transport --multimodal-shm-min-bytes",
    switches: "--epd-disaggregation",
    lists: "--encode --encode-selector",
    why: "images are not encoded by engines of their own",
    instead: "engines that encode images themselves",
  },
  {
    how: "none",
    flags: "--model-id-from",
    why: "engines are asked for their models",
    instead: "`models` of what is found, or the annotation `espalier.dev/models`",
  },
  {
    how: "none",
    flags:
      "--priority-scheduler-default-max-class --priority-scheduler-config --priority-scheduler-tenant-metric-top-n",
    switches: "--priority-scheduler-enabled",
    why: "admission has classes and tenants of its own",
    instead: "`admission.classes`",
  },
  {
    how: "none",
    flags: "--tenant-rate-limit-config",
    switches: "--tenant-rate-limit-enabled",
    why: "there is no rate per second: tenants share what engines can do",
    instead: "`admission`",
  },
  {
    how: "none",
    flags: "--health-check-port",
    why: "probes are answered at the admin port",
    instead: "`/livez` and `/readyz` there",
  },
  {
    how: "translated",
    flags: "--drain-settle-secs",
    switches: "--remove-unhealthy-workers",
    ours: "built-in",
    why: "an engine that is down or leaves gets no more requests, and what runs there may end",
  },
  {
    how: "none",
    switches: "--engine-metrics",
    why: "engines' metrics are not repeated",
    instead: "engines' own `/metrics`, in Prometheus",
  },
  {
    how: "none",
    switches: "--disable-tokenizer-autoload",
    why: "no tokenizer is loaded unasked",
    instead: "nothing to set",
  },
  {
    how: "none",
    flags:
      "--oracle-dsn --oracle-user --postgres-pool-max-size --redis-pool-max-size --schema-config --storage-hook-wasm-path",
    switches: "--oracle-external-auth --enable-wasm",
    lists: "--storage-context-headers",
    why: "conversations are not stored, and there are no extensions",
    instead: "nothing to set",
  },
  {
    how: "none",
    flags: "--jwt-role-claim",
    switches: "--disable-audit-logging",
    why: "operators have one key, or a client certificate, and their changes are in the log",
    instead: "`admin.key`, `admin.tls.ca-file`",
  },
  {
    how: "none",
    flags: "--webrtc-bind-addr --webrtc-stun-server",
    why: "WebRTC is not relayed",
    instead: "nothing to set",
  },
  {
    how: "none",
    flags: "--runtime-worker-threads",
    why: "a router is one process with one event loop",
    instead: "`processes`",
  },
];

const defaults = { host: "0.0.0.0", port: 30_000, metricsPort: 29_000, meshPort: 39_527 };

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
      translation.remark({ theirs: `${flag} ${address}`, outcome: "missing", why, instead: "the engine's HTTP port" });
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
  ] as const;
  for (const [flag, path, value] of unset) {
    if (!given.has(flag)) translation.translate(path, value, { theirs: `${flag}, their default` });
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
