import { resolve } from "node:path";
import { expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";
import { load, problemsOf } from "./loading.ts";

test.each(["127.0.0.1", "127.9.9.9", "localhost", "LOCALHOST", "::1"])(
  "the admin listener on %s needs no key",
  (host) => {
    expect(load(`admin: { host: "${host}" }`).admin.keySha256).toBeUndefined();
  },
);

test.each(["0.0.0.0", "::", "10.0.0.1", "192.168.127.1", "127.0.0.1.example.com", "example.com", "::ffff:10.0.0.1"])(
  "the admin listener on %s needs a key",
  (host) => {
    expect(problemsOf(`admin: { host: "${host}" }`)).toEqual([
      `admin.key: is required because ${host} is not a loopback address (e.yaml:1:1)`,
    ]);
    expect(problemsOf(`admin: { host: "${host}", key: an-admin-key }`)).toEqual([]);
  },
);

test.each([
  ["rollouts: { port: 0, host: 0.0.0.0 }", "rollouts.key: is required because 0.0.0.0 is not a loopback address"],
  ["rollouts: { port: 0, host: 0.0.0.0, key: a-key-of-trainers }", undefined],
  ["rollouts: { port: 0, host: 0.0.0.0, trusted: [10.0.0.0/8] }", undefined],
  ["rollouts: { trusted: [10.0.0.0/33] }", 'rollouts.trusted[0]: "10.0.0.0/33" is not a network'],
  ["rollouts: { trusted: [10.0.0] }", 'rollouts.trusted[0]: "10.0.0" is not a network'],
  ["rollouts: { host: 0.0.0.0 }", undefined],
  ["rollouts: { port: 8080 }", "rollouts.port: 8080 is also the port of listen"],
  [
    "{ processes: 2, rollouts: { port: 9091 } }",
    "admin.port: 9090 to 9091, for 2 processes, overlaps a port of rollouts",
  ],
  ["rollouts: { allow: [10.0.0.0/33] }", 'rollouts.allow[0]: "10.0.0.0/33" is not a network'],
  ["rollouts: { allow: [gpu-1/8] }", 'rollouts.allow[0]: "gpu-1/8" is not a network'],
  ['rollouts: { allow: ["fc00::/7", 10.0.0.7, gpu-1, "*.internal"] }', undefined],
])("the listener for RL frameworks: %s", (text, problem) => {
  expect(problemsOf(text).map((found) => found.replace(/ \(e\.yaml:\d+:\d+\)$/, ""))).toEqual(problem ? [problem] : []);
});

test.each([
  ["the same address", "{ listen: { port: 9090 } }", 1],
  ["an address within all", "{ listen: { port: 9090, host: 0.0.0.0 } }", 1],
  ["all IPv6 addresses", "{ listen: { port: 9090, host: '::' } }", 1],
  ["different addresses", "{ listen: { port: 9090, host: 127.0.0.2 } }", 0],
  ["free ports", "{ listen: { port: 0 }, admin: { port: 0 } }", 0],
  ["the port of the endpoint picker", "{ endpoint-picker: { port: 8080 } }", 1],
  ["the port of its health checks", "{ endpoint-picker: { port: 9002, health-port: 9002 } }", 1],
  ["the port of the scaler", "{ scale: { port: 9090 } }", 1],
  ["a health port of a router that is no picker", "{ endpoint-picker: { health-port: 9090 } }", 0],
])("one port for both listeners on %s", (_, text, problems) => {
  expect(problemsOf(text)).toHaveLength(problems);
});

test.each([
  ["processes: auto", "auto"],
  ["processes: 64", 64],
  ['processes: "3"', 3],
])("%s", (text, expected) => {
  expect(load(text).processes).toBe(expected);
});

test.each([
  ["none", "processes: 0", "processes: 0 is not auto or an integer from 1 to 64"],
  ["one too many", "processes: 65", "processes: 65 is not auto or an integer from 1 to 64"],
  ["another word", "processes: all", 'processes: "all" is not auto or an integer from 1 to 64'],
  [
    "an admin port that one of them would share with clients",
    "{ processes: 4, listen: { port: 8080 }, admin: { port: 8077 } }",
    "admin.port: 8077 to 8080, for 4 processes, overlaps a port of listen",
  ],
  [
    "a mesh port that one of them would share with operators",
    "{ processes: 2, admin: { port: 9090 }, mesh: { port: 9091 } }",
    "mesh.port: 9091 to 9092, for 2 processes, overlaps a port of admin",
  ],
  [
    "too few ports above the first",
    "{ processes: 2, admin: { port: 65535 } }",
    "admin.port: 65535 is too high for the ports of 2 processes",
  ],
  [
    "events of engines that dial, by two processes",
    '{ processes: 2, kv-events: { listen: "tcp://*:5557" } }',
    "kv-events.listen: needs processes: 1 because only one process can listen there",
  ],
  [
    "events of engines that dial, by as many as there are cores",
    '{ processes: auto, kv-events: { listen: "tcp://*:5557" } }',
    "kv-events.listen: needs processes: 1 because only one process can listen there",
  ],
])("processes with %s are refused", (_, text, expected) => {
  expect(problemsOf(text).map((line) => line.replace(/ \(e\.yaml.*/, ""))).toEqual([expected]);
});

test.each([
  "{ processes: 3, listen: { port: 8080 }, admin: { port: 8077 } }",
  "{ processes: 4, listen: { port: 8080, host: 127.0.0.2 }, admin: { port: 8077 } }",
  "{ processes: 4, listen: { port: 0 }, admin: { port: 0 }, mesh: { port: 0 } }",
  "{ processes: 2, admin: { port: 65534 } }",
  '{ processes: 1, kv-events: { listen: "tcp://*:5557" } }',
])("%s is fine", (text) => {
  expect(problemsOf(text)).toEqual([]);
});

const digest = "ab".repeat(32);

test.each([
  ["neither key nor digest", "[{ name: a }]", "api-keys[0]: needs either key or key-sha256"],
  ["both", `[{ name: a, key: 12345678a, key-sha256: ${digest} }]`, "api-keys[0]: needs either key or key-sha256"],
  [
    "one name twice",
    `[{ name: a, key: 12345678a }, { name: a, key: 12345678b }]`,
    "api-keys[1].name: a is the name of another key",
  ],
  ["one key twice", `[{ name: a, key: 12345678a }, { name: b, key: 12345678a }]`, "api-keys[1]: has the same key as a"],
  [
    "one key in both forms",
    `[{ name: a, key: abcdefgh }, { name: b, key-sha256: 9C56CC51B374C3BA189210D5B6D4BF57790D351C96C47C02190ECF1E430635AB }]`,
    "api-keys[1]: has the same key as a",
  ],
])("API keys with %s are refused", (_, keys, expected) => {
  expect(problemsOf(`api-keys: ${keys}`).map((line) => line.replace(/ \(.*/, ""))).toEqual([expected]);
});

test.each([
  ["a URL twice", "[http://a:1, http://a:1]", "engines[1].url: http://a:1 is also the URL of engine 0"],
  ["a URL twice in other words", "[http://A:80/, http://a]", "engines[1].url: http://a is also the URL of engine 0"],
  [
    "an id twice",
    "[{ url: http://a, id: x }, { url: http://b, id: x }]",
    "engines[1].id: x is also the id of engine 0",
  ],
  [
    "an id that another has by default",
    "[http://a:1, { url: http://b, id: 'a:1' }]",
    "engines[1].id: a:1 is also the id of engine 0",
  ],
  ["a port out of range", "['http://a:99999']", 'engines[0].url: "http://a:99999" is not a URL'],
  ["a host that is none", "['http://[::1']", 'engines[0].url: "http://[::1" is not a URL'],
])("engines with %s are refused", (_, engines, expected) => {
  expect(problemsOf(`engines: ${engines}`).map((line) => line.replace(/ \(.*/, ""))).toEqual([expected]);
});

test("engines with different paths on one host are different engines", () => {
  const { engines } = load("engines: [http://a/one, http://a/two/, 'http://[::1]:8000']");
  expect(engines.map(({ id, url }) => `${id} ${url}`)).toEqual([
    "a/one http://a/one",
    "a/two http://a/two",
    "[::1]:8000 http://[::1]:8000",
  ]);
});

test.each([
  ["policy: { name: random, load-factor: 2 }", "policy.load-factor: is not an option of random"],
  [
    "policy: { name: least_connections, near-tie-tokens: 2 }",
    "policy.near-tie-tokens: is not an option of least_connections",
  ],
  [
    "policy: { load-factor: 2 }",
    "policy.load-factor: is not an option of predicted_latency, which takes foreign-request-tokens, cpu-credit, disk-credit, external-credit",
  ],
  [
    "policy: { name: cache_aware, queue-weight: 2 }",
    "policy.queue-weight: is not an option of cache_aware, which takes cache-threshold, balance-abs-threshold, balance-rel-threshold, miss-to-free-cache, cpu-credit, disk-credit, external-credit",
  ],
  [
    "policy: { name: prefix_hash, cache-threshold: 0.5 }",
    "policy.cache-threshold: is not an option of prefix_hash, which takes prefix-tokens, load-factor, points-per-weight",
  ],
  [
    "policy: { name: consistent_hashing, foreign-request-tokens: 2 }",
    "policy.foreign-request-tokens: is not an option of consistent_hashing, which takes load-factor, points-per-weight",
  ],
  [
    "pools: [{ models: [a], policy: { name: least_tokens, load-factor: 2 } }]",
    "pools[0].policy.load-factor: is not an option of least_tokens, which takes foreign-request-tokens",
  ],
])("%s has an option that the policy does not know", (text, expected) => {
  expect(problemsOf(text).map((line) => line.replace(/ \(e.*/, ""))).toEqual([expected]);
});

test.each([
  ["policy: { name: consistent_hashing, load-factor: 0 }", { "load-factor": 0 }],
  ["policy: { name: least_tokens, foreign-request-tokens: 0 }", { "foreign-request-tokens": 0 }],
  ["policy: { name: cache_aware, cache-threshold: 0 }", { "cache-threshold": 0 }],
  ["policy: { name: epp_weighted, queue-weight: 0, cpu-credit: 0 }", { "queue-weight": 0, "cpu-credit": 0 }],
  ["policy: { name: least_work, near-tie-tokens: 0 }", { "near-tie-tokens": 0 }],
  ["policy: { foreign-request-tokens: 0 }", { "foreign-request-tokens": 0 }],
])("%s keeps the option, even if it is 0", (text, options) => {
  expect(load(text).policy.options).toEqual(options);
});

test("a pattern of a pool that an earlier pool has already is refused", () => {
  expect(problemsOf("pools: [{ models: [a, b] }, { models: [c, a] }]")).toEqual([
    "pools[1].models[1]: a is unreachable: pool 0 matches it first (e.yaml:1:43)",
  ]);
});

test("a pool either has a key for its engines or passes the client's on", () => {
  expect(problemsOf("pools: [{ models: [a], engine-api-key: k, forward-authorization: true }]")).toEqual([
    "pools[0].forward-authorization: cannot be true together with engine-api-key (e.yaml:1:43)",
  ]);
});

test.each([
  ["cert-file", "key-file"],
  ["key-file", "cert-file"],
])("engine-tls with only %s is refused", (given, missing) => {
  expect(problemsOf(`engine-tls: { ${given}: /f }`)).toEqual([
    `engine-tls.${missing}: is required because its counterpart is set (e.yaml:1:1)`,
  ]);
});

/** `open: 60s` alone was refused, for a bound that nobody had written. */
test("a breaker that first stays open longer than the default of the longest has that for the longest", () => {
  const maxOpenOf = (text: string) => load(text).breaker.maxOpenMs;
  expect(maxOpenOf("breaker: { open: 60s }")).toBe(60_000);
  expect(maxOpenOf("breaker: { open: 30s }")).toBe(30_000);
  expect(maxOpenOf("breaker: { open: 3s }")).toBe(30_000);
  expect(maxOpenOf("breaker: { open: 60s, max-open: 2m }")).toBe(120_000);
});

test("a breaker that first stays open longer than it ever may is refused", () => {
  expect(problemsOf("breaker: { open: 31s, max-open: 30s }")).toEqual([
    "breaker.max-open: 30s is less than open, 31s (e.yaml:1:23)",
  ]);
});

test.each([
  ["an alias of itself", "aliases: { a: a }", ["models.aliases.a: is a cycle"]],
  [
    "aliases in a circle",
    "aliases: { a: b, b: c, c: a }",
    ["a", "b", "c"].map((name) => `models.aliases.${name}: is a cycle`),
  ],
  [
    "a circle over a split",
    "aliases: { a: s }, splits: { s: [{ model: m, weight: 1 }, { model: a, weight: 1 }] }",
    ["models.aliases.a: is a cycle", "models.splits.s: is a cycle"],
  ],
  [
    "a way into a circle",
    "aliases: { in: a, a: b, b: a }",
    ["models.aliases.in: has more than 7 hops", "models.aliases.a: is a cycle", "models.aliases.b: is a cycle"],
  ],
  [
    "an alias and a split of one name",
    "aliases: { a: m }, splits: { a: [{ model: n, weight: 1 }] }",
    ["models.splits.a: is also the name of an alias"],
  ],
  [
    "a split without weight",
    "splits: { a: [{ model: n, weight: 0 }] }",
    ["models.splits.a: has no side with a weight above 0"],
  ],
  [
    "a model twice in a split",
    "splits: { a: [{ model: n, weight: 1 }, { model: n, weight: 2 }] }",
    ["models.splits.a: lists a model twice"],
  ],
])("%s is refused", (_, models, expected) => {
  expect(problemsOf(`models: { ${models} }`).map((line) => line.replace(/ \(e.*/, ""))).toEqual(expected);
});

test.each([
  [
    "a split that has the model of its own name on one side",
    "splits: { a: [{ model: a, weight: 9 }, { model: b, weight: 1 }] }",
  ],
  ["a side of weight 0", "splits: { a: [{ model: b, weight: 0 }, { model: c, weight: 1 }] }"],
  ["two aliases of one model", "aliases: { a: m, b: m }"],
  ["an alias of a split", "aliases: { a: s }, splits: { s: [{ model: m, weight: 1 }] }"],
  ["names that objects have by nature", "aliases: { toString: constructor, valueOf: m }"],
])("%s is fine", (_, models) => {
  expect(problemsOf(`models: { ${models} }`)).toEqual([]);
});

test("a chain of seven aliases is fine, one of eight is refused", () => {
  const chain = (length: number) =>
    `models: { aliases: { ${Array.from({ length }, (_, at) => `a${at}: a${at + 1}`).join(", ")} } }`;
  expect(problemsOf(chain(7))).toEqual([]);
  expect(problemsOf(chain(8)).map((line) => line.replace(/ \(e.*/, ""))).toEqual([
    "models.aliases.a0: has more than 7 hops",
  ]);
});

test.each([
  ["nothing", "{}", "off"],
  ["a port", "{ port: 0 }", "peers"],
  ["seeds", "{ seeds: ['a:1'] }", "peers"],
  ["a URL of Redis", "{ redis-url: 'redis://a' }", "redis"],
  ["peers in spite of a URL", "{ backend: peers, redis-url: 'redis://a', port: 1 }", "peers"],
  ["off in spite of all", "{ backend: off, redis-url: 'redis://a', port: 1, seeds: ['a:1'] }", "off"],
])("with %s the mesh is what is meant", (_, mesh, backend) => {
  expect(load(`mesh: ${mesh.replace("off", "'off'")}`).mesh.backend).toBe(backend);
});

test.each([
  ["{ port: 1, redis-url: 'redis://a' }", "mesh.backend: must be peers or redis because settings of both are set"],
  ["{ backend: redis }", "mesh.redis-url: is required because mesh.backend is redis"],
  ["{ port: 1, host: 0.0.0.0 }", "mesh.secret: or mesh.tls is required because 0.0.0.0 is not a loopback address"],
])("the mesh %s is refused", (mesh, expected) => {
  expect(problemsOf(`mesh: ${mesh}`).map((line) => line.replace(/ \(.*/, ""))).toEqual([expected]);
});

test.each([
  "{ port: 1, host: 0.0.0.0, secret: sixteen-or-longer }",
  "{ port: 1, host: '::', tls: { cert-file: /a, key-file: /b, ca-file: /c } }",
  "{ port: 1, host: '::1' }",
  "{ backend: 'off', host: 0.0.0.0 }",
])("the mesh %s is allowed", (mesh) => {
  expect(problemsOf(`mesh: ${mesh}`)).toEqual([]);
});

test.each([
  ["{ classes: [{ name: a }, { name: a }], default-class: a }", "classes[1].name: a is the name of another class"],
  ["{ default-class: vip }", "default-class: vip is not one of interactive, default, batch, background"],
  [
    "{ classes: [{ name: default, share: 0.6 }, { name: b, share: 0.5 }] }",
    "classes: have shares that add up to more than 1",
  ],
  ["{ engine-order: shortest }", "engine-order: needs engine-priority: lower-first"],
  ["{ engine-priority: higher-first, engine-order: shortest }", "engine-order: needs engine-priority: lower-first"],
])("settings of admission that do not fit together are refused: %s", (admission, expected) => {
  expect(problemsOf(`admission: ${admission}`).map((line) => line.replace(/ \(.*/, ""))).toEqual([
    `admission.${expected}`,
  ]);
});

test.each([
  "{ engine-priority: lower-first, engine-order: shortest }",
  "{ engine-priority: higher-first, engine-order: arrival }",
  "{ engine-order: arrival }",
])("the order inside engines %s is allowed", (admission) => {
  expect(problemsOf(`admission: ${admission}`)).toEqual([]);
});

test("shares that add up to all of it are fine, however they are rounded", () => {
  const classes = [0.1, 0.2, 0.3, 0.4].map((share, at) => `{ name: c${at}, share: ${share} }`).join(", ");
  expect(problemsOf(`admission: { classes: [${classes}], default-class: c0 }`)).toEqual([]);
});

test("bounds for the split of requests that leave nothing between them are refused", () => {
  expect(problemsOf("disaggregation: { min-tokens: 200000 }")).toEqual([
    "disaggregation.max-tokens: 131072 is less than min-tokens, 200000 (e.yaml:1:1)",
  ]);
  expect(problemsOf("disaggregation: { min-tokens: 9000, max-tokens: 9000 }")).toEqual([]);
});

test("a policy that is not in the catalogue needs a plugin, or a program that has it, and takes no options", () => {
  expect(problemsOf("policy: mine")).toEqual([expect.stringMatching(/^policy.name: "mine" is not one of .*plugins/)]);
  expect(problemsOf("policy: mine", { policies: ["mine"] })).toEqual([]);
  expect(problemsOf("{ plugins: [a.mjs], policy: mine, pools: [{ models: [a], policy: mine }] }")).toEqual([]);
  expect(problemsOf("{ plugins: [a.mjs], policy: { name: mine, load-factor: 2 } }")).toEqual([
    "policy.load-factor: is not an option of mine (e.yaml:1:43)",
  ]);
});

test("a plugin's path starts at the file that names it, and at the working directory where no file does", () => {
  const file = { path: "/etc/espalier/espalier.yaml", text: "plugins: [./a.mjs, /b.mjs]" };
  expect(loadConfig({ file }).plugins).toEqual(["/etc/espalier/a.mjs", "/b.mjs"]);
  const flags = { "--plugins": ["a.mjs"] };
  expect(loadConfig({ file, flags }).plugins).toEqual([resolve("a.mjs")]);
  expect(loadConfig({ flags }).plugins).toEqual([resolve("a.mjs")]);
});

test.each([
  ["hold: 1m } }]", "pools: [{ models: [a, b*]", "", []],
  ["hold: 0s } }]", 'pools: [{ models: ["*"]', "", []],
  ["hold: 1m } }]", 'pools: [{ models: ["*"]', "", ["needs a model in `models` without *"]],
  ["hold: 1m } }]", "pools: [{ models: [a]", "\nadmission: { mode: off }", ["needs admission.mode: on"]],
] as const)("requests wait for a first engine in a queue, for models that are named: %s", (hold, pool, more, found) => {
  const path = "pools[0].scale-from-zero.hold: ";
  const problems = problemsOf(`${pool}, scale-from-zero: { ${hold}${more}`).map((line) => line.replace(/ \(.*/, ""));
  expect(problems).toEqual(found.map((problem) => path + problem));
});

const backend = "name: p, url: https://p.example/v1, models: { m: n }";

test.each([
  [`[{ ${backend} }]`, []],
  [`[{ ${backend}, price: { input: 1 }, budget: { day: 5 } }]`, []],
  [`[{ ${backend} }, { ${backend} }]`, ["[1].name: p is the name of another backend"]],
  [`[{ ${backend}, budget: { day: 5 } }]`, ["[0].budget: needs a price, or the budget has no effect"]],
  ["[{ name: p, url: https://p.example, models: {} }]", ["[0].models: names no model"]],
])("overflow: %s", (overflow, found) => {
  const problems = problemsOf(`overflow: ${overflow}`).map((line) => line.replace(/ \(.*/, ""));
  expect(problems).toEqual(found.map((problem) => `overflow${problem}`));
});

test("an overflow backend as the router uses it: no /v1, no key in what is shown, and a warning where it is sent in the clear", () => {
  const config = load(`overflow: [{ ${backend.replace("https", "http")}, key: secret-key, when: [no-engine] }]`);
  const [compiled] = config.overflow;
  expect(compiled).toMatchObject({ url: "http://p.example", maxQueued: 64, budget: { hour: Infinity, day: Infinity } });
  expect([...compiled!.when]).toEqual(["no_engine"]);
  expect(compiled!.key?.reveal()).toBe("secret-key");
  expect(JSON.stringify([config.effective, config.overflow])).not.toContain("secret-key");
  expect(config.warnings).toContain("The key of the overflow backend p is sent without TLS.");
});
