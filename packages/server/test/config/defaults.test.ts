// cspell:ignore ngines
import { defaultSessionKeyLadder } from "@espalier/api";
import { expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { load } from "./loading.ts";

/** A class that only has a name. */
const usualClass = {
  order: "shortest_prefill",
  share: 0,
  targetMs: undefined,
  onMiss: "reject",
  maxPendingTokens: 32_768,
  yields: false,
  maxColdWaitMs: 0,
  overflow: "allow",
};

test("without any source the configuration is complete", () => {
  const { effective: _, fingerprints: __, ...config } = loadConfig({});
  expect(config).toEqual({
    isFileBlank: false,
    listen: { host: "127.0.0.1", port: 8080, tls: undefined },
    processes: 1,
    warmUpMs: 0,
    admin: { host: "127.0.0.1", port: 9090, advertise: undefined, keySha256: undefined, dashboard: true },
    endpointPicker: undefined,
    apiKeys: [],
    engines: [],
    enginesFile: undefined,
    discovery: {
      ...{ dns: [], services: [], pods: [], inferencePools: [] },
      kubernetes: {
        apiServer: "https://kubernetes.default.svc",
        tokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token",
        caFile: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
      },
    },
    engineTls: { caFile: undefined, certFile: undefined, keyFile: undefined, verify: true },
    policy: { name: "predicted_latency", options: {} },
    slo: { ttftMs: 2_000, tpotMs: 50 },
    sessionKey: defaultSessionKeyLadder,
    scale: { utilization: 0.7, catchUpMs: 30_000, idleMs: 60_000, host: "127.0.0.1", port: undefined, tls: undefined },
    pools: [],
    overflow: [],
    admission: {
      mode: "on",
      classes: [
        { ...usualClass, name: "interactive" },
        { ...usualClass, name: "default" },
        { ...usualClass, name: "batch", share: 0.1, maxPendingTokens: 16_384, yields: true },
        { ...usualClass, name: "background", share: 0.02, maxPendingTokens: 16_384, yields: true },
      ],
      defaultClass: "default",
      classScheduling: "strict",
      maxQueued: 1_024,
      maxQueuedBytes: 256 * 1024 ** 2,
      maxWaiting: 16,
      maxKvUse: 0.95,
      trustTenantHeader: false,
      bodyPriority: "off",
      enginePriority: "off",
      engineOrder: "arrival",
    },
    plugins: [],
    disaggregation: { thresholdTokens: undefined, minTokens: 2_048, maxTokens: 131_072, applyRoleBalance: false },
    models: { adapters: {}, maxLoadedAdapters: 128, aliases: {}, splits: {} },
    tokenizers: [],
    tokenize: { budgetMs: 50, threads: 1, cacheBytes: 64 * 1024 ** 2 },
    prefix: { blockSize: 16, seed: "espalier-fleet", placementTtlMs: 600_000, placementTokens: 524_288 },
    kvEvents: { mode: "auto", listen: undefined, maxReplays: 8 },
    kvPools: [],
    mesh: {
      backend: "off",
      routerId: undefined,
      cluster: "default",
      events: "owner",
      host: "127.0.0.1",
      port: 0,
      advertise: undefined,
      seeds: [],
      ...{ seedRecords: [], seedServers: [], seedsFile: undefined, seedServices: [], seedPods: [] },
      secret: undefined,
      acceptedSecrets: [],
      tls: undefined,
      redisUrl: undefined,
      joinGraceMs: 3_000,
    },
    tracing: { endpoint: undefined, headers: {}, serviceName: "espalier-router", sample: 0.01 },
    cors: { origins: [] },
    forwardPaths: [],
    injectUsage: true,
    trustTransferFields: false,
    health: { path: "/health", intervalMs: 2_000, timeoutMs: 3_000, downAfter: 3, upAfter: 2, panicThreshold: 0.5 },
    scrape: { path: "/metrics", intervalMs: undefined, timeoutMs: 1_000 },
    breaker: {
      consecutiveFailures: 5,
      failureShare: 0.5,
      windowRequests: 20,
      windowMs: 10_000,
      openMs: 2_000,
      maxOpenMs: 30_000,
      successesToClose: 2,
      maxEjectedShare: 0.5,
    },
    resume: { max: 1, idle: false, maxBytes: 1_048_576, maxBytesInFlight: 268_435_456 },
    retry: { budgetRatio: 0.2, budgetMinimum: 50, statuses: [502, 503, 504] },
    timeouts: {
      connectMs: 2_000,
      firstByteMs: 600_000,
      answerMs: undefined,
      idleMs: 300_000,
      clientWriteMs: 300_000,
      realtimeIdleMs: 600_000,
      engineKeepAliveMs: 4_000,
      requestReceiveMs: 30_000,
      keepAliveMs: 75_000,
    },
    limits: {
      maxBodyBytes: 33_554_432,
      maxHeaderBytes: 32_768,
      maxNesting: 64,
      maxConcurrentRequests: 4_096,
      maxBodyBytesInFlight: 1_073_741_824,
      maxConnections: 16_384,
      maxConnectionsPerEngine: 1_024,
      maxQueuedPerEngine: 1_024,
      maxEventLoopDelayMs: 1_000,
      maxHeapShare: 0.9,
      maxMeshBufferBytes: 67_108_864,
    },
    drain: { delayMs: 5_000, graceMs: 180_000 },
    log: { level: "info", format: "auto" },
    warnings: ["No engines are configured; the router is not ready until some are added."],
  });
});

test.each(["", "# only a comment\n", "{}", "listen:\nengines:\nlimits: ~\n"])(
  "a file that says nothing, such as %j, leaves the defaults",
  (text) => {
    expect(load(text)).toEqual({ ...loadConfig({}), isFileBlank: !text.includes(":") && text !== "{}" });
  },
);

const everything = `
listen: { host: 0.0.0.0, port: 8443, tls: { cert-file: /c.pem, key-file: /k.pem, ca-file: /ca.pem } }
admin: { host: 10.0.0.1, port: 9443, advertise: "https://Admin.example:443", key: an-admin-key, dashboard: false }
api-keys:
  - { name: team-a, key: key-of-team-a }
  - { name: team-b, key-sha256: "0000000000000000000000000000000000000000000000000000000000000ABC" }
engines:
  - http://10.0.0.1:8000
  - { id: e2, url: "https://engine-2/prefix/", models: [llama-70b], role: prefill, weight: 2.5, labels: { zone: a } }
  - { url: "http://e3:8000", region: eu-west-1, ranks: 2, kv-events: { endpoint: "tcp://e3:5557", replay: "tcp://e3:5657", topic: kv } }
  - { url: "http://e4:8000", kv-events: "tcp://e4:5557" }
  - { url: "http://e5:8000", role: decode, kv-transfer: sglang }
  - { url: "http://e6:8000", kv-transfer: { protocol: p2p-nccl, host: e6-rdma, port: 21001 } }
engines-file: /etc/engines.yaml
engine-tls: { ca-file: /ca, cert-file: /c, key-file: /k, verify: false }
policy: { name: consistent_hashing, load-factor: 1.5, points-per-weight: 64 }
slo: { ttft: none, tpot: 20ms }
session-key: ["header:X-Session", "header:X-Task/X-Agent", "body:user", "body:a.Id/a.Agent"]
pools:
  - { models: ["llama-*", mistral], policy: random, engine-api-key: secret-of-pool }
  - { models: ["*"], forward-authorization: true, policy: { name: least_tokens, foreign-request-tokens: 7 } }
admission:
  mode: off
  classes:
    - { name: vip, order: edf, share: 0.5, target: 2s, on-miss: demote, max-pending-tokens: 100, max-cold-wait: 2m, yields: true, slo: { ttft: 1s } }
    - { name: others, order: shortest_prefill }
  default-class: others
  class-scheduling: deficit
  max-queued: 5
  max-queued-bytes: 1MiB
  max-waiting: 3
  max-kv-use: 0.8
  trust-tenant-header: true
  body-priority: lower-first
  engine-priority: lower-first
  engine-order: shortest
disaggregation: { threshold-tokens: 4096, min-tokens: 1024, max-tokens: 8192, apply-role-balance: true }
models:
  adapters: { sql: { model: llama-70b, path: /adapters/sql } }
  max-loaded-adapters: 9
  aliases: { gpt-4: llama-70b }
  splits: { mine: [{ model: a, weight: 90 }, { model: b, weight: 10 }] }
tokenizers: [/models/any, { models: ["llama-*"], mode: engine }, { models: [], mode: bytes }]
tokenize: { budget: 5ms, threads: 2, cache: 1GiB }
prefix: { block-size: 32, seed: other, placement-ttl: 1m, placement-tokens: 4096 }
kv-events: { mode: "off", listen: "tcp://*:5557", max-replays: 2 }
mesh: { backend: peers, router-id: r-1, cluster: c, events: direct, host: 0.0.0.0, port: 7946, advertise: "r-1.mesh:7946", seeds: ["mesh:7946", "[::1]:7947", _mesh._tcp.mesh], seed-servers: ["10.0.0.53:5353"], seeds-file: /s.yaml, seed-services: ["ai/peers:mesh"], seed-pods: [{ selector: app=e, namespace: ai, port: 7946 }], secret: secret-of-the-mesh, accepted-secrets: [older-secret-of-the-mesh], tls: { cert-file: /mc, key-file: /mk, ca-file: /mca }, redis-url: "redis://:pw@r", join-grace: 5s }
tracing: { endpoint: "https://c:4318/x", headers: "x-a=1,authorization=Bearer%20t", service-name: s, sample: 0.5 }
cors: { origins: ["https://chat.example.com", "http://localhost:3000"] }
forward-paths: ["/v1/audio/*"]
inject-usage: false
trust-transfer-fields: true
health: { path: /ping, interval: 5s, timeout: 500ms, down-after: 4, up-after: 1, panic-threshold: 0.25 }
scrape: { path: /m, interval: 250ms, timeout: 3s }
breaker: { consecutive-failures: 9, failure-share: 0.25, window-requests: 50, window: 1m, open: 3s, max-open: 1m, successes-to-close: 3, max-ejected-share: 0.25 }
resume: { max: 0, idle: true, max-bytes: 64KiB, max-bytes-in-flight: 2MiB }
retry: { budget-ratio: 0.5, budget-minimum: 10, statuses: [500, 503] }
timeouts: { connect: 1s, first-byte: 1h, answer: 2h, idle: 90s, client-write: 1m, realtime-idle: 3m, engine-keep-alive: 0, request-receive: 1.5s, keep-alive: 2m }
limits:
  max-body-bytes: 1GiB
  max-header-bytes: 65536
  max-nesting: 10
  max-concurrent-requests: 8
  max-body-bytes-in-flight: 2GiB
  max-connections: 10
  max-connections-per-engine: 9
  max-queued-per-engine: 0
  max-event-loop-delay: 250ms
  max-heap-share: 0.5
  max-mesh-buffer: 8MiB
drain: { delay: 0s, grace: 1.5m }
log: { level: debug, format: pretty }
`;

test("every key of the file has its place in the compiled form", () => {
  const config = load(everything);
  expect(config).toMatchObject({
    listen: { host: "0.0.0.0", port: 8443, tls: { certFile: "/c.pem", keyFile: "/k.pem", caFile: "/ca.pem" } },
    admin: { host: "10.0.0.1", port: 9443, advertise: "https://admin.example", dashboard: false },
    enginesFile: "/etc/engines.yaml",
    engineTls: { caFile: "/ca", certFile: "/c", keyFile: "/k", verify: false },
    policy: { name: "consistent_hashing", options: { "load-factor": 1.5, "points-per-weight": 64 } },
    slo: { ttftMs: Number.POSITIVE_INFINITY, tpotMs: 20 },
    sessionKey: [
      { from: "header", name: "x-session" },
      { from: "header", name: "x-task", agent: "x-agent" },
      { from: "body", name: "user" },
      { from: "body", name: "a.Id", agent: "a.Agent" },
    ],
    admission: {
      mode: "off",
      classes: [
        {
          ...{ name: "vip", order: "edf", share: 0.5, targetMs: 2_000, onMiss: "demote" },
          ...{ maxPendingTokens: 100, yields: true, maxColdWaitMs: 120_000, slo: { ttftMs: 1_000 } },
        },
        { ...usualClass, name: "others", order: "shortest_prefill" },
      ],
      ...{ defaultClass: "others", classScheduling: "deficit", maxQueued: 5, maxQueuedBytes: 1_048_576 },
      ...{
        maxWaiting: 3,
        maxKvUse: 0.8,
        trustTenantHeader: true,
        bodyPriority: "lower-first",
        enginePriority: "lower-first",
      },
      engineOrder: "shortest",
    },
    disaggregation: { thresholdTokens: 4_096, minTokens: 1_024, maxTokens: 8_192, applyRoleBalance: true },
    models: {
      adapters: { sql: { model: "llama-70b", path: "/adapters/sql" } },
      maxLoadedAdapters: 9,
      aliases: { "gpt-4": "llama-70b" },
      splits: {
        mine: [
          { model: "a", weight: 90 },
          { model: "b", weight: 10 },
        ],
      },
    },
    tokenizers: [
      { models: ["*"], mode: "local", path: "/models/any" },
      { models: ["llama-*"], mode: "engine", path: undefined },
      { models: [], mode: "bytes", path: undefined },
    ],
    tokenize: { budgetMs: 5, threads: 2, cacheBytes: 1024 ** 3 },
    prefix: { blockSize: 32, seed: "other", placementTtlMs: 60_000, placementTokens: 4_096 },
    kvEvents: { mode: "off", listen: "tcp://*:5557", maxReplays: 2 },
    mesh: {
      backend: "peers",
      routerId: "r-1",
      cluster: "c",
      events: "direct",
      host: "0.0.0.0",
      port: 7_946,
      advertise: "r-1.mesh:7946",
      seeds: ["mesh:7946", "[::1]:7947"],
      seedRecords: ["_mesh._tcp.mesh"],
      seedServers: ["10.0.0.53:5353"],
      seedsFile: "/s.yaml",
      seedServices: [{ namespace: "ai", service: "peers", port: "mesh" }],
      seedPods: [{ namespace: "ai", selector: "app=e", port: 7_946 }],
      tls: { certFile: "/mc", keyFile: "/mk", caFile: "/mca" },
      joinGraceMs: 5_000,
    },
    tracing: { endpoint: "https://c:4318/x", serviceName: "s", sample: 0.5 },
    cors: { origins: ["https://chat.example.com", "http://localhost:3000"] },
    forwardPaths: ["/v1/audio/*"],
    injectUsage: false,
    trustTransferFields: true,
    health: { path: "/ping", intervalMs: 5_000, timeoutMs: 500, downAfter: 4, upAfter: 1, panicThreshold: 0.25 },
    scrape: { path: "/m", intervalMs: 250, timeoutMs: 3_000 },
    breaker: {
      consecutiveFailures: 9,
      failureShare: 0.25,
      windowRequests: 50,
      windowMs: 60_000,
      openMs: 3_000,
      maxOpenMs: 60_000,
      successesToClose: 3,
      maxEjectedShare: 0.25,
    },
    resume: { max: 0, idle: true, maxBytes: 65_536, maxBytesInFlight: 2_097_152 },
    retry: { budgetRatio: 0.5, budgetMinimum: 10, statuses: [500, 503] },
    timeouts: {
      connectMs: 1_000,
      firstByteMs: 3_600_000,
      answerMs: 7_200_000,
      idleMs: 90_000,
      clientWriteMs: 60_000,
      realtimeIdleMs: 180_000,
      engineKeepAliveMs: 0,
      requestReceiveMs: 1_500,
      keepAliveMs: 120_000,
    },
    limits: {
      maxBodyBytes: 1_073_741_824,
      maxHeaderBytes: 65_536,
      maxNesting: 10,
      maxConcurrentRequests: 8,
      maxBodyBytesInFlight: 2_147_483_648,
      maxConnections: 10,
      maxConnectionsPerEngine: 9,
      maxQueuedPerEngine: 0,
      maxEventLoopDelayMs: 250,
      maxHeapShare: 0.5,
      maxMeshBufferBytes: 8_388_608,
    },
    drain: { delayMs: 0, graceMs: 90_000 },
    log: { level: "debug", format: "pretty" },
    warnings: ["Engine certificates are not verified: engine-tls.verify is false."],
  });
});

test("engines are specs with ids of their own and URLs in their plain form", () => {
  expect(load(everything).engines).toEqual([
    { id: "10.0.0.1:8000", url: "http://10.0.0.1:8000", models: [], role: "both", weight: 1, ranks: 1, labels: {} },
    {
      id: "e2",
      url: "https://engine-2/prefix",
      models: ["llama-70b"],
      role: "prefill",
      weight: 2.5,
      ranks: 1,
      labels: { zone: "a" },
    },
    {
      id: "e3:8000",
      url: "http://e3:8000",
      models: [],
      role: "both",
      weight: 1,
      labels: {},
      region: "eu-west-1",
      ranks: 2,
      kvEvents: { endpoint: "tcp://e3:5557", replay: "tcp://e3:5657", topic: "kv" },
    },
    {
      id: "e4:8000",
      url: "http://e4:8000",
      models: [],
      role: "both",
      weight: 1,
      ranks: 1,
      labels: {},
      kvEvents: { endpoint: "tcp://e4:5557", replay: undefined, topic: "" },
    },
    {
      id: "e5:8000",
      url: "http://e5:8000",
      models: [],
      role: "decode",
      weight: 1,
      ranks: 1,
      labels: {},
      kvTransfer: { protocol: "sglang", host: undefined, port: undefined },
    },
    {
      id: "e6:8000",
      url: "http://e6:8000",
      models: [],
      role: "both",
      weight: 1,
      ranks: 1,
      labels: {},
      kvTransfer: { protocol: "p2p-nccl", host: "e6-rdma", port: 21_001 },
    },
  ]);
});

test("a pool without a policy has the general one, one with a policy only its own options", () => {
  const { pools } = load(`
policy: { name: consistent_hashing, load-factor: 1.5 }
pools:
  - { models: [a] }
  - { models: [b], policy: round_robin }
  - { models: [c], policy: { name: consistent_hashing } }
`);
  expect(pools.map(({ policy }) => policy)).toEqual([
    { name: "consistent_hashing", options: { "load-factor": 1.5 } },
    { name: "round_robin", options: {} },
    { name: "consistent_hashing", options: {} },
  ]);
});

test.each([
  [
    "anyone can use a router that listens everywhere without keys",
    "listen: { host: 0.0.0.0 }",
    /0\.0\.0\.0:8080.*api-keys/,
  ],
  ["there are no engines", "{}", /No engines/],
  ["an engine's URL ends in /v1", "engines: [http://a:8000/v1/]", /requests http:\/\/a:8000\/v1\/v1\/models/],
  ["certificates are not checked", "engine-tls: { verify: false }", /verify is false/],
])("a warning says that %s", (_, text, expected) => {
  expect(load(text).warnings.join("\n")).toMatch(expected);
});

test.each([
  ["an engine is listed", "engines: [http://a]"],
  ["an engine has another path", "engines: [http://a/v1/llama, http://b/openai-v1]"],
  ["engines come from a file", "engines-file: /engines.yaml"],
  ["keys are required", "{ engines: [http://a], listen: { host: 0.0.0.0 }, api-keys: [{ name: a, key: 12345678a }] }"],
])("nothing is warned of when %s", (_, text) => {
  expect(load(text).warnings).toEqual([]);
});
