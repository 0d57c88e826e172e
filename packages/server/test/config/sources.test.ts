import { expect, test } from "vitest";
import { describeConfig, flagCatalogue, loadConfig } from "../../src/config/index.ts";
import { load, problemsIn, problemsOf } from "./loading.ts";

test("flags go before the environment, the environment before the file, the file before the defaults", () => {
  const file = "drain: { delay: 1s, grace: 1s }\nhealth: { interval: 1s }\n";
  const config = load(file, {
    env: { ESPALIER_DRAIN_DELAY: "2s", ESPALIER_HEALTH_INTERVAL: "2s" },
    flags: { "--health-interval": "3s" },
  });
  expect(config.drain).toEqual({ delayMs: 2_000, graceMs: 1_000 });
  expect(config.health).toMatchObject({ intervalMs: 3_000, timeoutMs: 3_000 });
});

test("a list from a higher source replaces the lower one whole", () => {
  const file = "engines: [http://file-1, http://file-2]\nretry: { statuses: [500, 501] }\n";
  const urls = (outside: Parameters<typeof load>[1]) => load(file, outside).engines.map(({ url }) => url);
  expect(urls({})).toEqual(["http://file-1", "http://file-2"]);
  expect(urls({ env: { ESPALIER_ENGINES: "http://env" } })).toEqual(["http://env"]);
  expect(urls({ env: { ESPALIER_ENGINES: "http://env" }, flags: { "--engine": ["http://flag"] } })).toEqual([
    "http://flag",
  ]);
  expect(load(file, { env: { ESPALIER_RETRY_STATUSES: "502, 503," } }).retry.statuses).toEqual([502, 503]);
});

test("a flag for a list takes its elements one by one, one for a value its last", () => {
  const { engines, listen, sessionKey } = loadConfig({
    flags: {
      "--engine": ["http://a:1", "http://b:1"],
      "--listen-port": ["1", "2"],
      "--session-key": "header:x-one",
    },
  });
  expect(engines.map(({ id }) => id)).toEqual(["a:1", "b:1"]);
  expect(listen.port).toBe(2);
  expect(sessionKey).toEqual([{ from: "header", name: "x-one" }]);
});

test("a policy by name from outside replaces the file's policy and its options", () => {
  const file = "policy: { name: consistent_hashing, load-factor: 2 }";
  expect(load(file, { flags: { "--policy": "random" } }).policy).toEqual({ name: "random", options: {} });
  expect(load(file, { env: { ESPALIER_POLICY: "random" } }).policy).toEqual({ name: "random", options: {} });
});

test("an option of a policy from outside joins the policy that stands there, by name or as a section", () => {
  const outside = { flags: { "--policy-load-factor": "1.5" } };
  const expected = { name: "consistent_hashing", options: { "load-factor": 1.5 } };
  expect(load("policy: consistent_hashing", outside).policy).toEqual(expected);
  expect(load("policy: { name: consistent_hashing, load-factor: 9 }", outside).policy).toEqual(expected);
  const { policy } = loadConfig({ env: { ESPALIER_POLICY_LOAD_FACTOR: "1.5", ESPALIER_POLICY: "consistent_hashing" } });
  expect(policy).toEqual(expected);
});

test.each([
  ["true", true],
  ["false", false],
])("the text %s is a boolean where one is asked for", (text, expected) => {
  expect(loadConfig({ env: { ESPALIER_INJECT_USAGE: text } }).injectUsage).toBe(expected);
  expect(loadConfig({ flags: { "--engine-tls-verify": text } }).engineTls.verify).toBe(expected);
});

test("a section that only the environment opens has to be complete", () => {
  expect(problemsIn(() => loadConfig({ env: { ESPALIER_LISTEN_TLS_CERT_FILE: "/c" } }))).toEqual([
    "listen.tls.key-file: is required",
  ]);
});

test("an empty variable counts as unset", () => {
  expect(loadConfig({ env: { ESPALIER_LISTEN_PORT: "", ESPALIER_ENGINES: "" } })).toEqual(loadConfig({}));
});

test("a value from outside does not hide that the file has something else in the place of its section", () => {
  expect(problemsOf("listen: 8080", { flags: { "--listen-port": "1" } })).toEqual([
    "listen: expected a section with host, port, tls, found a number (e.yaml:1:1)",
  ]);
});

test.each([
  ["ESPALIER_LISTEN_PROT", "; did you mean ESPALIER_LISTEN_PORT?"],
  ["ESPALIER_ENGINE", "; did you mean ESPALIER_ENGINES?"],
  ["ESPALIER_POLICY_NAME", "; did you mean ESPALIER_POLICY?"],
  ["ESPALIER_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX", ""],
])("the unknown variable %s is refused", (name, advice) => {
  expect(problemsIn(() => loadConfig({ env: { [name]: "1" } }))).toEqual([
    `${name}: is not a known environment variable${advice}`,
  ]);
});

test("a flag or variable of a setting that was replaced is answered with the one that replaced it", () => {
  expect(problemsIn(() => loadConfig({ env: { ESPALIER_POLICY_OBJECTIVE: "e2e" } }))).toEqual([
    "ESPALIER_POLICY_OBJECTIVE: is replaced by ESPALIER_SLO_TPOT",
  ]);
  expect(problemsIn(() => loadConfig({ flags: { "--policy-objective": "e2e" } }))).toEqual([
    "--policy-objective is replaced by --slo-tpot",
  ]);
});

test.each([
  ["--listen-prot", "; did you mean --listen-port?"],
  ["--engines", "; did you mean --engine?"],
  ["--policy-name", "; did you mean --policy?"],
  ["--__proto__", ""],
])("the unknown flag %s is refused", (name, advice) => {
  const flags = Object.fromEntries([[name, "1"]]);
  expect(problemsIn(() => loadConfig({ flags }))[0]).toMatch(
    new RegExp(`^${name} is not a known flag${advice.replace("?", "\\?")}`),
  );
});

test.each([
  ["does not begin with our name", "PORT", "x"],
  ["belongs to the tests", "ESPALIER_SHARED", "/shared"],
  ["is the host of a Service espalier", "ESPALIER_SERVICE_HOST", "10.96.0.1"],
  ["is the port of a Service espalier", "ESPALIER_SERVICE_PORT", "80"],
  ["is a named port of it", "ESPALIER_SERVICE_PORT_HTTP_API", "80"],
  ["is its address", "ESPALIER_PORT", "tcp://10.96.0.1:80"],
  ["is the address of one port", "ESPALIER_PORT_8080_TCP", "tcp://10.96.0.1:8080"],
  ["is a part of that", "ESPALIER_PORT_8080_TCP_ADDR", "10.96.0.1"],
  ["is the host of a Service espalier-metrics", "ESPALIER_METRICS_SERVICE_HOST", "10.96.0.1"],
  [
    "is the address of a Service espalier-admin, by the name of our own variable",
    "ESPALIER_ADMIN_PORT",
    "tcp://10.96.0.1:9090",
  ],
])("a variable that %s is passed over", (_, name, value) => {
  expect(loadConfig({ env: { [name]: value } })).toEqual(loadConfig({}));
});

test("a variable that the file asks for is known, whatever its name", () => {
  const env = { ESPALIER_TEAM_A_KEY: "key-of-team-a" };
  const file = `api-keys: [{ name: a, key: "\${ESPALIER_TEAM_A_KEY}" }]`;
  expect(load(file, { env }).apiKeys).toHaveLength(1);
  expect(problemsOf("{}", { env })).toHaveLength(1);
});

/** A value for every setting that can be given outside the file, other than its default, as `describeConfig` writes it. */
const samples: Readonly<Record<string, string>> = {
  "listen.host": "127.0.0.9",
  "listen.port": "1",
  "listen.tls.cert-file": "/cert",
  "listen.tls.key-file": "/key",
  "listen.tls.ca-file": "/ca",
  processes: "7",
  "warm-up": "7s",
  "admin.host": "::1",
  "admin.port": "1",
  "admin.advertise": "http://localhost:7",
  "admin.key": "***",
  "admin.tls.cert-file": "/admin-cert",
  "admin.tls.key-file": "/admin-key",
  "admin.tls.ca-file": "/admin-ca",
  "admin.dashboard": "false",
  "admin.grafana": "https://grafana.example/d/espalier",
  "endpoint-picker.host": "127.0.0.8",
  "endpoint-picker.port": "9002",
  "endpoint-picker.health-port": "1",
  "endpoint-picker.tls.cert-file": "/picker-cert",
  "endpoint-picker.tls.key-file": "/picker-key",
  "endpoint-picker.tls.ca-file": "/picker-ca",
  "endpoint-picker.answer-within": "7s",
  "endpoint-picker.release-after": "7s",
  "endpoint-picker.fallbacks": "3",
  "endpoint-picker.scores": "true",
  "scale.utilization": "0.5",
  "scale.catch-up": "7s",
  "scale.idle": "7s",
  "scale.host": "127.0.0.9",
  "scale.port": "9400",
  "scale.tls.cert-file": "/scaler-cert",
  "scale.tls.key-file": "/scaler-key",
  "scale.tls.ca-file": "/scaler-ca",
  "rollouts.host": "127.0.0.9",
  "rollouts.port": "8081",
  "rollouts.key": "***",
  "rollouts.trusted": "10.0.0.0/16",
  "rollouts.tls.cert-file": "/rollouts-cert",
  "rollouts.tls.key-file": "/rollouts-key",
  "rollouts.tls.ca-file": "/rollouts-ca",
  "rollouts.allow": "10.0.0.0/16",
  "rollouts.timeout": "7s",
  "rollouts.hold": "7s",
  "cors.origins": "https://a",
  engines: "http://a:1",
  "engines-file": "/engines.yaml",
  "discovery.dns": "engines.example:8000",
  "discovery.services": "ai/vllm:8000",
  "discovery.inference-pools": "ai/chat",
  "discovery.kubernetes.api-server": "https://api:6443",
  "discovery.kubernetes.token-file": "/token",
  "discovery.kubernetes.ca-file": "/ca",
  "engine-tls.ca-file": "/ca",
  "engine-tls.cert-file": "/cert",
  "engine-tls.key-file": "/key",
  "engine-tls.verify": "false",
  plugins: "/plugins/mine.mjs",
  "policy.name": "random",
  "policy.seed": "7",
  "policy.load-factor": "3.5",
  "policy.points-per-weight": "7",
  "policy.max-idle-seconds": "7",
  "policy.session-load-factor": "3.5",
  "policy.session-free-requests": "7",
  "policy.fewest-sessions": "1",
  "policy.prefix-tokens": "7",
  "policy.foreign-request-tokens": "7",
  "policy.near-tie-tokens": "7",
  "policy.adapter-load-tokens": "7",
  "policy.cache-threshold": "0.7",
  "policy.balance-abs-threshold": "7",
  "policy.balance-rel-threshold": "1.7",
  "policy.miss-to-free-cache": "1",
  "policy.queue-weight": "0.7",
  "policy.kv-cache-utilization-weight": "0.7",
  "policy.prefix-cache-weight": "0.7",
  "policy.max-prefix-tokens": "70",
  "policy.active-request-weight": "0.7",
  "policy.token-load-weight": "0.7",
  "policy.no-hit-lru-weight": "0.7",
  "policy.lora-affinity-weight": "0.7",
  "policy.token-load-threshold": "7",
  "policy.affinity-threshold": "0.7",
  "policy.max-ttft-penalty-ms": "7",
  "policy.prefill-tokens-per-second": "7",
  "policy.prefill-load-scale": "0.7",
  "policy.temperature": "0.7",
  "policy.block-size": "7",
  "policy.cpu-credit": "0.7",
  "policy.disk-credit": "0.7",
  "policy.external-credit": "0.7",
  "slo.ttft": "7s",
  "slo.tpot": "none",
  "session-key": "body:a",
  "admission.mode": "off",
  "admission.default-class": "batch",
  "admission.class-scheduling": "deficit",
  "admission.max-queued": "7",
  "admission.max-queued-bytes": "7MiB",
  "admission.max-waiting": "7",
  "admission.max-kv-use": "0.7",
  "admission.trust-tenant-header": "true",
  "admission.body-priority": "lower-first",
  "admission.engine-priority": "lower-first",
  "admission.engine-order": "shortest",
  "disaggregation.threshold-tokens": "7",
  "disaggregation.min-tokens": "7",
  "disaggregation.max-tokens": "7000",
  "disaggregation.apply-role-balance": "true",
  "models.max-loaded-adapters": "7",
  tokenizers: "/models/a",
  "tokenize.budget": "7s",
  "tokenize.threads": "7",
  "tokenize.cache": "7MiB",
  "prefix.block-size": "7",
  "prefix.seed": "a",
  "prefix.placement-ttl": "7s",
  "prefix.placement-tokens": "7000",
  "kv-events.mode": "off",
  "kv-events.listen": "tcp://*:7",
  "kv-events.max-replays": "7",
  "mesh.backend": "off",
  "mesh.router-id": "a",
  "mesh.region": "a",
  "mesh.cluster": "a",
  "mesh.events": "direct",
  "mesh.host": "localhost",
  "mesh.port": "7",
  "mesh.advertise": "a:7",
  "mesh.seeds": "a:7",
  "mesh.seed-servers": "10.0.0.7",
  "mesh.seeds-file": "/seeds.yaml",
  "mesh.seed-services": "ai/peers:mesh",
  "mesh.secret": "***",
  "mesh.accepted-secrets": "***",
  "mesh.tls.cert-file": "/cert",
  "mesh.tls.key-file": "/key",
  "mesh.tls.ca-file": "/ca",
  "mesh.redis-url": "***",
  "mesh.join-grace": "7s",
  "forward-paths": "/a/*",
  "inject-usage": "false",
  "trust-transfer-fields": "true",
  "health.path": "/a",
  "health.interval": "7s",
  "health.timeout": "7s",
  "health.down-after": "7",
  "health.up-after": "7",
  "health.panic-threshold": "0.75",
  "scrape.path": "/a",
  "scrape.interval": "7s",
  "scrape.timeout": "7s",
  "breaker.consecutive-failures": "7",
  "breaker.failure-share": "0.7",
  "breaker.window-requests": "7",
  "breaker.window": "7s",
  "breaker.open": "7s",
  "breaker.max-open": "7s",
  "breaker.successes-to-close": "7",
  "breaker.max-ejected-share": "0.75",
  "retry.budget-ratio": "0.7",
  "retry.budget-minimum": "7",
  "retry.statuses": "507",
  "resume.max": "0",
  "resume.idle": "true",
  "resume.max-bytes": "7MiB",
  "resume.max-bytes-in-flight": "8MiB",
  "timeouts.connect": "7s",
  "timeouts.first-byte": "7s",
  "timeouts.answer": "7s",
  "timeouts.idle": "7s",
  "timeouts.client-write": "7s",
  "timeouts.realtime-idle": "8s",
  "timeouts.engine-keep-alive": "7s",
  "timeouts.request-receive": "7s",
  "timeouts.keep-alive": "7s",
  "limits.max-body-bytes": "7KiB",
  "limits.max-header-bytes": "7KiB",
  "limits.max-nesting": "7",
  "limits.max-concurrent-requests": "7",
  "limits.max-body-bytes-in-flight": "7MiB",
  "limits.max-connections": "7",
  "limits.max-connections-per-engine": "7",
  "limits.max-queued-per-engine": "7",
  "limits.max-event-loop-delay": "7s",
  "limits.max-heap-share": "0.75",
  "limits.max-mesh-buffer": "7MiB",
  "drain.delay": "7s",
  "drain.grace": "7s",
  "log.level": "debug",
  "log.format": "pretty",
  "tracing.endpoint": "http://a:4318",
  "tracing.headers": "***",
  "tracing.service-name": "a",
  "tracing.sample": "0.7",
};

/** What some settings need beside them. */
const companions: Readonly<Record<string, string>> = {
  "listen.tls.cert-file": "listen: { tls: { key-file: /k } }",
  "listen.tls.key-file": "listen: { tls: { cert-file: /c } }",
  "listen.tls.ca-file": "listen: { tls: { key-file: /k, cert-file: /c } }",
  "admin.tls.cert-file": "admin: { tls: { key-file: /k } }",
  "admin.tls.key-file": "admin: { tls: { cert-file: /c } }",
  "admin.tls.ca-file": "admin: { tls: { key-file: /k, cert-file: /c } }",
  "endpoint-picker.tls.cert-file": "endpoint-picker: { tls: { key-file: /k } }",
  "endpoint-picker.tls.key-file": "endpoint-picker: { tls: { cert-file: /c } }",
  "endpoint-picker.tls.ca-file": "endpoint-picker: { tls: { key-file: /k, cert-file: /c } }",
  "scale.tls.cert-file": "scale: { tls: { key-file: /k } }",
  "scale.tls.key-file": "scale: { tls: { cert-file: /c } }",
  "scale.tls.ca-file": "scale: { tls: { key-file: /k, cert-file: /c } }",
  "rollouts.tls.cert-file": "rollouts: { tls: { key-file: /k } }",
  "rollouts.tls.key-file": "rollouts: { tls: { cert-file: /c } }",
  "rollouts.tls.ca-file": "rollouts: { tls: { key-file: /k, cert-file: /c } }",
  "engine-tls.cert-file": "engine-tls: { key-file: /k }",
  "engine-tls.key-file": "engine-tls: { cert-file: /c }",
  "mesh.accepted-secrets": "mesh: { secret: a-secret-of-the-mesh }",
  "mesh.tls.cert-file": "mesh: { tls: { key-file: /k, ca-file: /ca } }",
  "mesh.tls.key-file": "mesh: { tls: { cert-file: /c, ca-file: /ca } }",
  "mesh.tls.ca-file": "mesh: { tls: { key-file: /k, cert-file: /c } }",
  "policy.load-factor": "policy: consistent_hashing",
  "policy.points-per-weight": "policy: consistent_hashing",
  "policy.max-idle-seconds": "policy: sticky",
  "policy.session-load-factor": "policy: sticky",
  "policy.session-free-requests": "policy: sticky",
  "policy.fewest-sessions": "policy: sticky",
  "policy.prefix-tokens": "policy: prefix_hash",
  "policy.foreign-request-tokens": "policy: least_tokens",
  "policy.near-tie-tokens": "policy: least_work",
  "policy.adapter-load-tokens": "policy: least_work",
  "policy.cache-threshold": "policy: cache_aware",
  "policy.balance-abs-threshold": "policy: cache_aware",
  "policy.balance-rel-threshold": "policy: cache_aware",
  "policy.miss-to-free-cache": "policy: cache_aware",
  "policy.queue-weight": "policy: epp_weighted",
  "policy.kv-cache-utilization-weight": "policy: epp_weighted",
  "policy.prefix-cache-weight": "policy: epp_weighted",
  "policy.max-prefix-tokens": "policy: epp_weighted",
  "policy.active-request-weight": "policy: epp_weighted",
  "policy.token-load-weight": "policy: epp_weighted",
  "policy.no-hit-lru-weight": "policy: epp_weighted",
  "policy.lora-affinity-weight": "policy: epp_weighted",
  "policy.token-load-threshold": "policy: epp_weighted",
  "policy.affinity-threshold": "policy: affinity_filter",
  "policy.max-ttft-penalty-ms": "policy: affinity_filter",
  "policy.prefill-tokens-per-second": "policy: affinity_filter",
  "policy.prefill-load-scale": "policy: dynamo",
  "policy.temperature": "policy: dynamo",
  "policy.block-size": "policy: dynamo",
  "policy.cpu-credit": "policy: lmetric",
  "policy.disk-credit": "policy: cache_aware",
  "policy.external-credit": "policy: epp_weighted",
  "admission.engine-order": "admission: { engine-priority: lower-first }",
};

const secretSamples: Readonly<Record<string, string>> = {
  "admin.key": "an-admin-key",
  "rollouts.key": "a-key-of-trainers",
  "mesh.secret": "a-secret-of-the-mesh",
  "mesh.accepted-secrets": "an-older-secret-of-the-mesh",
  "mesh.redis-url": "redis://a",
  "tracing.headers": "a=b",
};

/** The key that a plain text stands for. */
const discovered: Readonly<Record<string, string>> = {
  "discovery.dns": "name",
  "discovery.services": "service",
  "discovery.inference-pools": "pool",
};

test("the samples cover every flag", () => {
  expect(Object.keys(samples)).toEqual(flagCatalogue.map(({ path }) => path));
});

test.each(flagCatalogue)("$flag and its variable set $path", ({ flag, path }) => {
  const sample = secretSamples[path] ?? samples[path] ?? "";
  const variable = `ESPALIER_${flag
    .slice(2)
    .replace(/^(engine|tokenizer|mesh-seed|mesh-seed-server|mesh-seed-service|mesh-accepted-secret)$/, "$1s")
    .replace(/^discover-/, "discovery-")
    .replace("discovery-kubernetes", () =>
      flag === "--discover-kubernetes" ? "discovery-services" : "discovery-kubernetes",
    )
    .replace(/^(discovery-inference-pool)$/, "$1s")
    .replaceAll("-", "_")
    .toUpperCase()}`;
  for (const outside of [{ flags: { [flag]: sample } }, { env: { [variable]: sample } }]) {
    let found: unknown = describeConfig(load(companions[path] ?? "", outside));
    for (const key of path.split(".")) found = (found as Record<string, unknown>)[key];
    const [first] = Array.isArray(found) ? found : [found];
    const shown = { ...{ engines: "url", tokenizers: "path" }, ...discovered }[path];
    expect(String(shown === undefined ? first : (first as Record<string, string>)[shown])).toBe(samples[path]);
  }
});
