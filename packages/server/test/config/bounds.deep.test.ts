import { expect, test } from "vitest";
import { load, problemsOf } from "./loading.ts";

/** Sets a value at `section.key`; some settings need another beside them. */
function written(path: string, value: string): string {
  const [section = "", key = ""] = path.split(".");
  const others: Readonly<Record<string, string>> = {
    "policy.load-factor": "name: consistent_hashing, ",
    "policy.points-per-weight": "name: consistent_hashing, ",
    "policy.max-idle-seconds": "name: sticky, ",
    "policy.session-load-factor": "name: sticky, ",
    "policy.session-free-requests": "name: sticky, ",
    "policy.fewest-sessions": "name: sticky, ",
    "policy.prefix-tokens": "name: prefix_hash, ",
    "policy.foreign-request-tokens": "name: least_tokens, ",
    "policy.near-tie-tokens": "name: least_work, ",
    "policy.adapter-load-tokens": "name: least_work, ",
    "policy.cache-threshold": "name: cache_aware, ",
    "policy.balance-abs-threshold": "name: cache_aware, ",
    "policy.balance-rel-threshold": "name: cache_aware, ",
    "policy.miss-to-free-cache": "name: cache_aware, ",
    "policy.queue-weight": "name: epp_weighted, ",
    "policy.kv-cache-utilization-weight": "name: epp_weighted, ",
    "policy.prefix-cache-weight": "name: epp_weighted, ",
    "policy.max-prefix-tokens": "name: epp_weighted, ",
    "policy.active-request-weight": "name: epp_weighted, ",
    "policy.token-load-weight": "name: epp_weighted, ",
    "policy.no-hit-lru-weight": "name: epp_weighted, ",
    "policy.lora-affinity-weight": "name: epp_weighted, ",
    "policy.token-load-threshold": "name: epp_weighted, ",
    "policy.affinity-threshold": "name: affinity_filter, ",
    "policy.max-ttft-penalty-ms": "name: affinity_filter, ",
    "policy.prefill-tokens-per-second": "name: affinity_filter, ",
    "policy.prefill-load-scale": "name: dynamo, ",
    "policy.temperature": "name: dynamo, ",
    "policy.block-size": "name: dynamo, ",
    "policy.cpu-credit": "name: least_work, ",
    "policy.disk-credit": "name: cache_aware, ",
    "policy.external-credit": "name: epp_weighted, ",
    "breaker.open": "max-open: 1h, ",
    "disaggregation.min-tokens": "max-tokens: 10000000, ",
  };
  return `${section}: { ${others[path] ?? ""}${key}: ${value} }`;
}

/** Path, one below the least value, the least, the greatest, one above. */
const ranges: readonly (readonly [string, string, string, string, string])[] = [
  ["listen.port", "-1", "0", "65535", "65536"],
  ["mesh.port", "-1", "0", "65535", "65536"],
  ["mesh.join-grace", "-1", "0s", "10m", "600001ms"],
  ["tracing.sample", "-0.01", "0", "1", "1.01"],
  ["admin.port", "-1", "0", "65535", "65536"],
  ["endpoint-picker.port", "-1", "0", "65535", "65536"],
  ["endpoint-picker.health-port", "-1", "0", "65535", "65536"],
  ["endpoint-picker.answer-within", "9ms", "10ms", "1h", "3600001ms"],
  ["endpoint-picker.release-after", "99ms", "100ms", "24h", "86400001ms"],
  ["endpoint-picker.fallbacks", "-1", "0", "8", "9"],
  ["policy.load-factor", "0.999", "1", "1000", "1000.1"],
  ["policy.points-per-weight", "0", "1", "4096", "4097"],
  ["policy.max-idle-seconds", "0.9", "1", "86400", "86400.1"],
  ["policy.session-load-factor", "0.999", "1", "1000", "1000.1"],
  ["policy.session-free-requests", "-1", "0", "1000000", "1000001"],
  ["policy.fewest-sessions", "-1", "0", "1", "2"],
  ["policy.seed", "-1", "0", "4294967295", "4294967296"],
  ["policy.foreign-request-tokens", "-1", "0", "10000000", "10000001"],
  ["policy.prefix-tokens", "0", "1", "65536", "65537"],
  ["policy.near-tie-tokens", "-1", "0", "10000000", "10000001"],
  ["policy.adapter-load-tokens", "-1", "0", "10000000", "10000001"],
  ["policy.cache-threshold", "-0.01", "0", "1", "1.01"],
  ["policy.balance-abs-threshold", "-1", "0", "1000000", "1000001"],
  ["policy.balance-rel-threshold", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.miss-to-free-cache", "-1", "0", "1", "2"],
  ["policy.queue-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.kv-cache-utilization-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.prefix-cache-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.max-prefix-tokens", "0", "1", "100000000", "100000001"],
  ["policy.active-request-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.token-load-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.no-hit-lru-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.lora-affinity-weight", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.token-load-threshold", "0", "1", "1000000000", "1000000001"],
  ["policy.affinity-threshold", "-0.01", "0", "1", "1.01"],
  ["policy.max-ttft-penalty-ms", "-1", "0", "86400000", "86400001"],
  ["policy.prefill-tokens-per-second", "0.9", "1", "100000000", "100000000.1"],
  ["policy.prefill-load-scale", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.temperature", "-0.01", "0", "1000000", "1000000.1"],
  ["policy.block-size", "0", "1", "65536", "65537"],
  ["policy.cpu-credit", "-0.01", "0", "1", "1.01"],
  ["policy.disk-credit", "-0.01", "0", "1", "1.01"],
  ["policy.external-credit", "-0.01", "0", "1", "1.01"],
  ["health.interval", "99ms", "100ms", "10m", "600001ms"],
  ["health.timeout", "9ms", "10ms", "1m", "60001ms"],
  ["health.down-after", "0", "1", "100", "101"],
  ["health.up-after", "0", "1", "100", "101"],
  ["health.panic-threshold", "-0.01", "0", "1", "1.01"],
  ["scrape.interval", "49ms", "50ms", "10m", "600001ms"],
  ["scrape.timeout", "9ms", "10ms", "1m", "60001ms"],
  ["admission.max-queued", "-1", "0", "1000000", "1000001"],
  ["admission.max-queued-bytes", "1023", "1KiB", "64GiB", "64.1GiB"],
  ["admission.max-waiting", "0", "1", "1000000", "1000001"],
  ["admission.max-kv-use", "-0.01", "0", "1", "1.01"],
  ["models.max-loaded-adapters", "0", "1", "200", "201"],
  ["disaggregation.threshold-tokens", "0", "1", "10000000", "10000001"],
  ["disaggregation.min-tokens", "0", "1", "10000000", "10000001"],
  ["disaggregation.max-tokens", "2047", "2048", "10000000", "10000001"],
  ["breaker.consecutive-failures", "0", "1", "1000", "1001"],
  ["breaker.failure-share", "0.009", "0.01", "1", "1.01"],
  ["breaker.window-requests", "0", "1", "100000", "100001"],
  ["breaker.window", "999ms", "1s", "10m", "600001ms"],
  ["breaker.open", "99ms", "100ms", "10m", "600001ms"],
  ["breaker.max-open", "1999ms", "2s", "1h", "3600001ms"],
  ["breaker.successes-to-close", "0", "1", "100", "101"],
  ["breaker.max-ejected-share", "-0.01", "0", "1", "1.01"],
  ["resume.max", "-1", "0", "1", "2"],
  ["resume.max-bytes", "1023", "1KiB", "64MiB", "64.1MiB"],
  ["resume.max-bytes-in-flight", "1023", "1KiB", "64GiB", "64.1GiB"],
  ["retry.budget-ratio", "-0.01", "0", "1", "1.01"],
  ["retry.budget-minimum", "-1", "0", "1000", "1001"],
  ["retry.statuses", "[499]", "[500]", "[599]", "[600]"],
  ["timeouts.connect", "9ms", "10ms", "60s", "60001ms"],
  ["timeouts.first-byte", "99ms", "100ms", "24h", "86400001ms"],
  ["timeouts.answer", "99ms", "100ms", "24h", "86400001ms"],
  ["timeouts.idle", "99ms", "100ms", "24h", "86400001ms"],
  ["timeouts.client-write", "99ms", "100ms", "24h", "86400001ms"],
  ["timeouts.realtime-idle", "99ms", "100ms", "24h", "86400001ms"],
  ["timeouts.engine-keep-alive", "-1", "0", "1h", "3600001ms"],
  ["timeouts.request-receive", "99ms", "100ms", "1h", "3600001ms"],
  ["timeouts.keep-alive", "999ms", "1s", "1h", "3600001ms"],
  ["limits.max-body-bytes", "1023", "1KiB", "1GiB", "1073741825"],
  ["limits.max-header-bytes", "1023B", "1KiB", "1MiB", "1048577B"],
  ["limits.max-nesting", "3", "4", "1000", "1001"],
  ["limits.max-concurrent-requests", "0", "1", "1000000", "1000001"],
  ["limits.max-body-bytes-in-flight", "1023", "1KiB", "64GiB", "64.1GiB"],
  ["limits.max-connections", "0", "1", "1000000", "1000001"],
  ["limits.max-connections-per-engine", "0", "1", "65535", "65536"],
  ["limits.max-queued-per-engine", "-1", "0", "1000000", "1000001"],
  ["limits.max-event-loop-delay", "9ms", "10ms", "1m", "60001ms"],
  ["limits.max-heap-share", "0.09", "0.1", "1", "1.01"],
  ["limits.max-mesh-buffer", "1048575", "1MiB", "1GiB", "1073741825"],
  ["drain.delay", "-1", "0s", "10m", "600001ms"],
  ["drain.grace", "-1", "0s", "24h", "86400001ms"],
];

test.each(ranges)("%s takes its least and greatest value and nothing beyond", (path, below, least, greatest, above) => {
  expect(problemsOf(written(path, least))).toEqual([]);
  expect(problemsOf(written(path, greatest))).toEqual([]);
  for (const beyond of [below, above]) {
    const problems = problemsOf(written(path, beyond));
    expect(problems, beyond).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${path.replace(".", "\\.")}`));
  }
});

const repeated = (count: number, element: (at: number) => string): string =>
  Array.from({ length: count }, (_, at) => element(at)).join(", ");

/** What is counted, the most that is taken, and a file with a given number of it. */
const counts: readonly (readonly [string, number, (count: number) => string])[] = [
  ["API keys", 10_000, (n) => `api-keys: [${repeated(n, (at) => `{ name: n${at}, key: key-number-${at} }`)}]`],
  ["engines", 10_000, (n) => `engines: [${repeated(n, (at) => `http://e${at}`)}]`],
  ["models of an engine", 1_000, (n) => `engines: [{ url: http://e, models: [${repeated(n, (at) => `m${at}`)}] }]`],
  ["labels of an engine", 64, (n) => `engines: [{ url: http://e, labels: { ${repeated(n, (at) => `l${at}: v`)} } }]`],
  ["pools", 1_000, (n) => `pools: [${repeated(n, (at) => `{ models: [m${at}] }`)}]`],
  ["patterns of a pool", 1_000, (n) => `pools: [{ models: [${repeated(n, (at) => `m${at}`)}] }]`],
  ["classes", 16, (n) => `admission: { default-class: c0, classes: [${repeated(n, (at) => `{ name: c${at} }`)}] }`],
  ["adapters", 1_000, (n) => `models: { adapters: { ${repeated(n, (at) => `a${at}: { model: m, path: /p }`)} } }`],
  ["names in DNS", 16, (n) => `discovery: { dns: [${repeated(n, (at) => `"e${at}:1"`)}] }`],
  [
    "name servers",
    8,
    (n) => `discovery: { dns: [{ name: "e:1", servers: [${repeated(n, (at) => `10.0.0.${at}`)}] }] }`,
  ],
  ["services", 16, (n) => `discovery: { services: [${repeated(n, (at) => `s${at}`)}] }`],
  ["selectors of pods", 16, (n) => `discovery: { pods: [${repeated(n, (at) => `{ selector: a=${at}, port: 1 }`)}] }`],
  ["seeds", 256, (n) => `mesh: { seeds: [${repeated(n, (at) => `"s${at}:1"`)}] }`],
  ["name servers of seeds", 8, (n) => `mesh: { seed-servers: [${repeated(n, (at) => `10.0.0.${at}`)}] }`],
  ["services of seeds", 16, (n) => `mesh: { seed-services: [${repeated(n, (at) => `s${at}`)}] }`],
  ["pods of seeds", 16, (n) => `mesh: { seed-pods: [${repeated(n, (at) => `{ selector: a=${at}, port: 1 }`)}] }`],
  ["inference pools", 16, (n) => `discovery: { inference-pools: [${repeated(n, (at) => `p${at}`)}] }`],
  [
    "models of what is found",
    1_000,
    (n) => `discovery: { services: [{ service: s, models: [${repeated(n, (at) => `m${at}`)}] }] }`,
  ],
  [
    "labels of what is found",
    64,
    (n) => `discovery: { services: [{ service: s, labels: { ${repeated(n, (at) => `l${at}: v`)} } }] }`,
  ],
  ["KV pools", 64, (n) => `kv-pools: [${repeated(n, (at) => `{ name: p${at}, endpoint: "tcp://p${at}:1" }`)}]`],
  [
    "patterns of a KV pool",
    1_000,
    (n) => `kv-pools: [{ name: p, endpoint: "tcp://p:1", models: [${repeated(n, (at) => `m${at}`)}] }]`,
  ],
  [
    "labels of a KV pool",
    64,
    (n) => `kv-pools: [{ name: p, endpoint: "tcp://p:1", labels: { ${repeated(n, (at) => `l${at}: v`)} } }]`,
  ],
  ["aliases", 10_000, (n) => `models: { aliases: { ${repeated(n, (at) => `a${at}: m`)} } }`],
  ["splits", 10_000, (n) => `models: { splits: { ${repeated(n, (at) => `s${at}: [{ model: m, weight: 1 }]`)} } }`],
  [
    "sides of a split",
    100,
    (n) => `models: { splits: { s: [${repeated(n, (at) => `{ model: m${at}, weight: 1 }`)}] } }`,
  ],
  ["session key sources", 32, (n) => `session-key: [${repeated(n, (at) => `"body:f${at}"`)}]`],
  ["origins", 1_000, (n) => `cors: { origins: [${repeated(n, (at) => `"https://o${at}"`)}] }`],
  ["forwarded paths", 1_000, (n) => `forward-paths: [${repeated(n, (at) => `/p${at}`)}]`],
  ["retried statuses", 100, (n) => `retry: { statuses: [${repeated(n, (at) => `${500 + (at % 100)}`)}] }`],
];

test.each(counts)("one more of the %s than %i is refused", (_, most, write) => {
  expect(problemsOf(write(most))).toEqual([]);
  expect(problemsOf(write(most + 1))[0]).toContain(` are more than ${most}`);
});

/** What is measured, the longest that is taken, and a file with a text of a given length. */
const lengths: readonly (readonly [string, number, (length: number) => string])[] = [
  ["a host", 253, (n) => `listen: { host: ${"h".repeat(n)} }`],
  ["an admin key", 512, (n) => `admin: { key: ${"k".repeat(n)} }`],
  ["the name of an API key", 64, (n) => `api-keys: [{ name: ${"n".repeat(n)}, key: 12345678a }]`],
  ["an API key", 512, (n) => `api-keys: [{ name: a, key: ${"k".repeat(n)} }]`],
  ["a digest", 64, (n) => `api-keys: [{ name: a, key-sha256: "${"0".repeat(n)}" }]`],
  ["an engine's URL", 2_048, (n) => `engines: [http://${"u".repeat(n - 7)}]`],
  ["an engine's id", 128, (n) => `engines: [{ url: http://e, id: ${"i".repeat(n)} }]`],
  ["a model's name", 256, (n) => `engines: [{ url: http://e, models: [${"m".repeat(n)}] }]`],
  ["a host of transfers", 253, (n) => `engines: [{ url: http://e, kv-transfer: { host: ${"h".repeat(n)} } }]`],
  ["a label", 256, (n) => `engines: [{ url: http://e, labels: { a: ${"v".repeat(n)} } }]`],
  ["a name in DNS", 260, (n) => `discovery: { dns: ["${"n".repeat(n - 2)}:1"] }`],
  ["a service", 200, (n) => `discovery: { services: [${"s".repeat(n)}] }`],
  ["a selector", 1_024, (n) => `discovery: { pods: [{ selector: ${"s".repeat(n)}, port: 1 }] }`],
  ["a namespace", 63, (n) => `discovery: { pods: [{ selector: s, port: 1, namespace: ${"n".repeat(n)} }] }`],
  ["a port's name", 15, (n) => `discovery: { pods: [{ selector: s, port-name: ${"p".repeat(n)} }] }`],
  ["an inference pool", 320, (n) => `discovery: { inference-pools: [${"p".repeat(n)}] }`],
  ["the name of a KV pool", 128, (n) => `kv-pools: [{ name: ${"n".repeat(n)}, endpoint: "tcp://p:1" }]`],
  ["an adapter's path", 4_096, (n) => `models: { adapters: { a: { model: m, path: ${"p".repeat(n)} } } }`],
  ["an engine's key", 4_096, (n) => `pools: [{ models: [a], engine-api-key: ${"k".repeat(n)} }]`],
  ["a session key source", 133, (n) => `session-key: ["body:${"f".repeat(n - 5)}"]`],
  ["a session key source with an agent", 137, (n) => `session-key: ["header:s/${"a".repeat(n - 9)}"]`],
  ["an origin", 512, (n) => `cors: { origins: ["https://${"o".repeat(n - 8)}"] }`],
  ["a forwarded path", 1_024, (n) => `forward-paths: [/${"p".repeat(n - 1)}]`],
  ["a health path", 1_024, (n) => `health: { path: /${"p".repeat(n - 1)} }`],
  ["a file's path", 4_096, (n) => `engines-file: ${"p".repeat(n)}`],
];

test.each(lengths)("%s of more than %i characters is refused", (_, most, write) => {
  expect(problemsOf(write(most))).toEqual([]);
  expect(problemsOf(write(most + 1))).toHaveLength(1);
});

test.each([
  ["an admin key", (n: number) => `admin: { key: ${"k".repeat(n)} }`],
  ["an API key", (n: number) => `api-keys: [{ name: a, key: ${"k".repeat(n)} }]`],
])("%s of fewer than 8 characters is refused", (_, write) => {
  expect(problemsOf(write(8))).toEqual([]);
  expect(problemsOf(write(7))).toHaveLength(1);
});

test.each([
  ["500ms", 500],
  ["2s", 2_000],
  ["1.5m", 90_000],
  ["0.5h", 1_800_000],
  ["0", 0],
  ['"0"', 0],
])("the duration %s is %i ms", (text, expected) => {
  expect(load(`drain: { grace: ${text} }`).drain.graceMs).toBe(expected);
});

test.each([
  ["2048B", 2_048],
  ["4KiB", 4_096],
  ["1.5MiB", 1_572_864],
  ["1GiB", 1_073_741_824],
  ["4kB", 4_000],
  ["2MB", 2_000_000],
  ["1GB", 1_000_000_000],
  ["5000", 5_000],
  ['"5000"', 5_000],
])("the size %s is %i bytes", (text, expected) => {
  expect(load(`limits: { max-body-bytes: ${text} }`).limits.maxBodyBytes).toBe(expected);
});
