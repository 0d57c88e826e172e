import { expect, test } from "vitest";
import { load, problemsOf } from "./loading.ts";

const endpoint = "tcp://pool:5557";

test("a pool has a name and an endpoint; all engines fetch from it unless it says otherwise", () => {
  expect(load(`kv-pools: [{ name: shared, endpoint: "${endpoint}" }]`).kvPools).toEqual([
    {
      name: "shared",
      ...{ endpoint, replay: undefined, topic: "", mooncake: undefined, keyPrefix: "", models: ["*"], labels: {} },
    },
  ]);
});

test("pools without an endpoint, whose blocks are in their engines' events, may be several", () => {
  const pools = load("kv-pools: [{ name: LMCache, labels: { node: a } }, { name: other }]").kvPools;
  expect(pools.map(({ name, endpoint: at }) => [name, at])).toEqual([
    ["LMCache", undefined],
    ["other", undefined],
  ]);
});

test("everything that can be said of a pool has its place", () => {
  const text = `
kv-pools:
  - { name: a, endpoint: "tcp://[::1]:5557", replay: "tcp://pool:5657", topic: "kv@", models: ["llama-*", qwen], labels: { zone: a, rack: "" } }
  - { name: b, endpoint: "${endpoint}" }
  - { name: c, endpoint: "${endpoint}", topic: c }
`;
  const [first, ...others] = load(text).kvPools;
  expect(first).toEqual({
    name: "a",
    ...{ endpoint: "tcp://[::1]:5557", replay: "tcp://pool:5657", topic: "kv@" },
    ...{ mooncake: undefined, keyPrefix: "" },
    models: ["llama-*", "qwen"],
    labels: { zone: "a", rack: "" },
  });
  expect(others.map(({ name, endpoint: at, topic }) => [name, at, topic])).toEqual([
    ["b", endpoint, ""],
    ["c", endpoint, "c"],
  ]);
});

test("a Mooncake Store is the address of its master, and the keys to read", () => {
  const text = 'kv-pools: [{ name: Mooncake, mooncake: "http://master:9003", key-prefix: "Llama@" }]';
  expect(load(text).kvPools[0]).toMatchObject({ mooncake: "http://master:9003", keyPrefix: "Llama@" });
  const listening = `${text}\nkv-events: { listen: "tcp://*:5557" }`;
  expect(problemsOf(listening).map((line) => line.replace(/ \(e\.yaml.*/, ""))).toEqual([
    "kv-pools[0].mooncake: cannot be used with kv-events.listen: the events of an engine that connects are read once",
  ]);
});

test.each([
  [
    "a master and an endpoint",
    `{ name: a, endpoint: "${endpoint}", mooncake: "http://master:9003" }`,
    "kv-pools[0].mooncake: cannot be used with `endpoint`",
  ],
  [
    "a master's address with a path",
    '{ name: a, mooncake: "http://master:9003/get_all_keys" }',
    'kv-pools[0].mooncake: "http://master:9003/get_all_keys" is not an http:// or https:// URL without path',
  ],
  ["a prefix of no keys", "{ name: a, key-prefix: x }", "kv-pools[0].key-prefix: needs `mooncake`"],
  ["no name", `{ endpoint: "${endpoint}" }`, "kv-pools[0].name: is required"],
  ["a replay endpoint alone", '{ name: a, replay: "tcp://pool:1" }', "kv-pools[0].replay: needs `endpoint`"],
  [
    "a name with a space",
    `{ name: "a b", endpoint: "${endpoint}" }`,
    'kv-pools[0].name: "a b" is not a name of at most 128 visible ASCII characters',
  ],
  [
    "an endpoint to listen at",
    '{ name: a, endpoint: "tcp://*:1" }',
    'kv-pools[0].endpoint: "tcp://*:1" is not tcp://HOST:PORT',
  ],
  [
    "an endpoint of another kind",
    '{ name: a, endpoint: "http://pool:1" }',
    'kv-pools[0].endpoint: "http://pool:1" is not tcp://HOST:PORT',
  ],
  [
    "a replay endpoint that is none",
    `{ name: a, endpoint: "${endpoint}", replay: pool }`,
    'kv-pools[0].replay: "pool" is not tcp://HOST:PORT',
  ],
  ["no engine in reach", `{ name: a, endpoint: "${endpoint}", models: [] }`, "kv-pools[0].models: "],
  [
    "a name that another has",
    `{ name: a, endpoint: "${endpoint}" }, { name: a, endpoint: "tcp://other:1" }`,
    "kv-pools[1].name: a is also the name of pool 0",
  ],
  [
    "a stream that another has",
    `{ name: a, endpoint: "${endpoint}" }, { name: b, endpoint: "${endpoint}" }`,
    `kv-pools[1].endpoint: ${endpoint} is also the endpoint of pool 0, with the same topic`,
  ],
])("a pool with %s is refused", (_, pools, expected) => {
  const problems = problemsOf(`kv-pools: [${pools}]`).map((line) => line.replace(/ \(e\.yaml.*/, ""));
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatch(expected.endsWith(": ") ? /^kv-pools\[0\]\.models: / : /./);
  if (!expected.endsWith(": ")) expect(problems[0]).toBe(expected);
});

test("of several pools with one stream each is told the first one", () => {
  const pools = ["a", "b", "c"].map((name) => `{ name: ${name}, endpoint: "${endpoint}" }`).join(", ");
  const problems = problemsOf(`kv-pools: [${pools}]`);
  expect(problems).toHaveLength(2);
  for (const problem of problems) expect(problem).toContain("is also the endpoint of pool 0");
});

test("pools are refused where no events are read at all", () => {
  const pools = `kv-pools: [{ name: a, endpoint: "${endpoint}" }]`;
  expect(problemsOf(`kv-events: { mode: "off" }\n${pools}`).map((line) => line.replace(/ \(.*/, ""))).toEqual([
    "kv-pools: are unused because kv-events.mode is off",
  ]);
  expect(problemsOf(`kv-events: { mode: auto }\n${pools}`)).toEqual([]);
  expect(problemsOf('kv-events: { mode: "off" }\nkv-pools: []')).toEqual([]);
});
