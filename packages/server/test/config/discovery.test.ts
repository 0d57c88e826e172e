import { expect, test } from "vitest";
import { load, problemsOf } from "./loading.ts";

const plainTraits = {
  ...{ scheme: "http", models: [], role: "both", weight: 1, ranks: 1, labels: {} },
  ...{
    kvEventsPort: undefined,
    kvReplayPort: undefined,
    kvTopic: "",
    kvTransfer: undefined,
    kvTransferPort: undefined,
  },
};

test.each([
  ["engines.example:8000", { name: "engines.example", port: 8_000 }],
  ["e:65535", { name: "e", port: 65_535 }],
  ["engines.example.:1", { name: "engines.example.", port: 1 }],
  ["_http._tcp.engines.example", { name: "_http._tcp.engines.example", port: undefined }],
])("the name in DNS %s", (written, expected) => {
  expect(load(`discovery: { dns: ["${written}"] }`).discovery.dns).toEqual([
    { ...expected, intervalMs: 5_000, misses: 3, servers: [], family: "auto", traits: plainTraits },
  ]);
});

test.each([
  ["ai/vllm:8000", { namespace: "ai", service: "vllm", port: 8_000 }],
  ["ai/vllm:http", { namespace: "ai", service: "vllm", port: "http" }],
  ["ai/vllm", { namespace: "ai", service: "vllm", port: undefined }],
  ["vllm:8000", { namespace: undefined, service: "vllm", port: 8_000 }],
  ["vllm", { namespace: undefined, service: "vllm", port: undefined }],
])("the service %s", (written, expected) => {
  expect(load(`discovery: { services: ["${written}"] }`).discovery.services).toEqual([
    { ...expected, family: "auto", traits: plainTraits },
  ]);
});

test("pods by number or name of a port, and inference pools", () => {
  const { pods, inferencePools } = load(`
discovery:
  pods:
    - { selector: "app=vllm,tier in (a, b)", port: 8000 }
    - { selector: app=vllm, namespace: ai, port-name: http }
  inference-pools: [ai/chat, { pool: chat.v2, objectives: false, model-rewrites: false }]
`).discovery;
  expect(pods).toEqual([
    { namespace: undefined, selector: "app=vllm,tier in (a, b)", port: 8_000, traits: plainTraits },
    { namespace: "ai", selector: "app=vllm", port: "http", traits: plainTraits },
  ]);
  expect(inferencePools).toEqual([
    { namespace: "ai", pool: "chat", objectives: true, modelRewrites: true, traits: plainTraits },
    { namespace: undefined, pool: "chat.v2", objectives: false, modelRewrites: false, traits: plainTraits },
  ]);
});

test("what is said of every engine that is found", () => {
  const [found] = load(`
discovery:
  services:
    - service: vllm
      scheme: https
      models: [m]
      role: prefill
      weight: 2
      ranks: 4
      region: eu
      kv-events-port: 5557
      kv-replay-port: 5558
      kv-topic: kv
      kv-transfer: nixl
      kv-transfer-port: 5600
      labels: { zone: a }
`).discovery.services;
  expect(found?.traits).toEqual({
    ...{ scheme: "https", models: ["m"], role: "prefill", weight: 2, ranks: 4, region: "eu", labels: { zone: "a" } },
    ...{ kvEventsPort: 5_557, kvReplayPort: 5_558, kvTopic: "kv", kvTransfer: "nixl", kvTransferPort: 5_600 },
  });
});

const account = {
  tokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token",
  caFile: "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
};

test.each([
  [{}, "https://kubernetes.default.svc"],
  [{ KUBERNETES_SERVICE_HOST: "10.96.0.1", KUBERNETES_SERVICE_PORT: "6443" }, "https://10.96.0.1:6443"],
  [{ KUBERNETES_SERVICE_HOST: "10.96.0.1" }, "https://10.96.0.1:443"],
  [{ KUBERNETES_SERVICE_HOST: "fd00::1", KUBERNETES_SERVICE_PORT: "443" }, "https://[fd00::1]:443"],
])("inside a cluster the API server is found by %o", (env, apiServer) => {
  expect(load("{}", { env }).discovery.kubernetes).toEqual({ apiServer, ...account });
});

test("outside a cluster it is named, and nothing of a service account is taken for granted", () => {
  const access = (text: string) => load(`discovery: { kubernetes: { ${text} } }`).discovery.kubernetes;
  expect(access("api-server: https://api:6443")).toEqual({
    ...{ apiServer: "https://api:6443", tokenFile: undefined, caFile: undefined },
  });
  expect(access("api-server: http://127.0.0.1:8001, token-file: /t")).toMatchObject({ tokenFile: "/t" });
  expect(access("token-file: /t")).toMatchObject({ tokenFile: "/t", caFile: account.caFile });
});

test.each([
  ['dns: ["engines.example"]', 'discovery.dns[0].name: "engines.example" is not HOST:PORT or _SERVICE._PROTOCOL.HOST'],
  ['dns: ["e:0"]', "discovery.dns[0].name: 0 is not a port from 1 to 65535"],
  ['dns: ["e:65536"]', "discovery.dns[0].name: 65536 is not a port from 1 to 65535"],
  ['dns: ["e:1", "e:1"]', "discovery.dns[1]: is the same as element 0"],
  ['dns: [{ name: "e:1", interval: 99ms }]', "discovery.dns[0].interval"],
  ['dns: [{ name: "e:1", interval: 601s }]', "discovery.dns[0].interval"],
  ['dns: [{ name: "e:1", misses: 0 }]', "discovery.dns[0].misses"],
  ['dns: [{ name: "e:1", misses: 101 }]', "discovery.dns[0].misses"],
  ['dns: [{ name: "e:1", servers: [ns.example] }]', "discovery.dns[0].servers[0]"],
  ['dns: [{ name: "e:1", servers: ["300.0.0.1"] }]', 'discovery.dns[0].servers[0]: "300.0.0.1" is not an IP address'],
  ['dns: [{ name: "e:1", servers: ["10.0.0.1:70000"] }]', "discovery.dns[0].servers[0]: 70000 is not a port"],
  ['dns: [{ name: "e:1", servers: [":::"] }]', 'discovery.dns[0].servers[0]: ":::" is not an IP address'],
  ["services: [AI/vllm]", 'discovery.services[0].service: "AI/vllm" is not NAMESPACE/NAME:PORT'],
  ['services: ["vllm:0"]', "discovery.services[0].service: 0 is not a port"],
  ["services: [vllm, ai/vllm, vllm]", "discovery.services[2]: is the same as element 0"],
  ["services: [{ service: s, kv-events-port: 0 }]", "discovery.services[0].kv-events-port"],
  ["services: [{ service: s, weight: 0 }]", "discovery.services[0].weight"],
  ["services: [{ service: s, ranks: 65 }]", "discovery.services[0].ranks"],
  ["services: [{ service: s, kv-transfer: pigeon }]", "discovery.services[0].kv-transfer"],
  ["pods: [{ selector: a, port: 65536 }]", "discovery.pods[0].port: 65536 is not"],
  ["pods: [{ selector: a }]", "discovery.pods[0]: needs either port or port-name"],
  ["pods: [{ selector: a, port: 1, port-name: p }]", "discovery.pods[0]: needs either port or port-name"],
  ["pods: [{ selector: a, port: 1 }, { selector: a, port: 2 }]", "discovery.pods[1]: is the same as element 0"],
  ["inference-pools: [a/b/c]", "discovery.inference-pools[0].pool"],
  ["inference-pools: [p, p]", "discovery.inference-pools[1]: is the same as element 0"],
  ["kubernetes: { api-server: https://api/path }", "discovery.kubernetes.api-server"],
  ["kubernetes: { api-server: 'https://[' }", 'discovery.kubernetes.api-server: "https://[" is not a URL'],
  [
    "kubernetes: { api-server: http://api:8001, token-file: /t }",
    "discovery.kubernetes.api-server: must be https://, because a token is sent there",
  ],
])("%s is refused", (text, problem) => {
  const problems = problemsOf(`discovery: { ${text} }`);
  expect(problems).toHaveLength(1);
  expect(problems[0]).toContain(problem);
});

test.each(["10.0.0.1", "10.0.0.1:5353", "::1", "fd00::1", "[fd00::1]", "[fd00::1]:53"])(
  "%s is a name server",
  (server) => {
    expect(problemsOf(`discovery: { dns: [{ name: "e:1", servers: ["${server}"] }] }`)).toEqual([]);
  },
);

test("a router with something to follow is not told that it has no engines", () => {
  const warnings = (text: string) => load(text).warnings.filter((warning) => warning.startsWith("No engines"));
  expect(warnings("{}")).toHaveLength(1);
  for (const source of ['dns: ["e:1"]', "services: [s]", "pods: [{ selector: a, port: 1 }]", "inference-pools: [p]"]) {
    expect(warnings(`discovery: { ${source} }`)).toEqual([]);
  }
});
