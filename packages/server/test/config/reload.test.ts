// cspell:ignore ngines
import { describe, expect, test } from "vitest";
import {
  applyReload,
  changedPaths,
  describeConfig,
  isReloadable,
  loadConfig,
  sharedSettings,
} from "../../src/config/index.ts";
import { settingPath, settings } from "../../src/config/settings.ts";

const read = (text: string) => loadConfig({ file: { path: "espalier.yaml", text } });

describe("what changed", () => {
  test("nothing, when the same is read again", () => {
    const text = "policy: least_work\nadmin: { key: secret-secret }\nengines: [http://a:1]\n";
    expect(changedPaths(read(text), read(text))).toEqual([]);
  });

  test("a default that is written out is no change", () => {
    expect(changedPaths(read(""), read("policy: predicted_latency\ndrain: { delay: 5s }\n"))).toEqual([]);
  });

  test("values by path, lists and what came or went as a whole", () => {
    const before = read("policy: least_work\nlisten: { port: 1 }\nmodels: { aliases: { a: x, b: y } }\n");
    const after = read("policy: random\nlisten: { port: 2 }\nmodels: { aliases: { a: z } }\nengines: [http://a:1]\n");
    const expected = ["engines", "listen.port", "models.aliases.a", "models.aliases.b", "policy.name"];
    expect(changedPaths(before, after)).toEqual(expected);
  });

  test("secrets, without keeping them", () => {
    const before = read("admin: { key: first-secret }\nmesh: { port: 1, secret: mesh-secret-number-one-of-two }\n");
    const after = read("admin: { key: other-secret }\nmesh: { port: 1, secret: mesh-secret-number-two-of-two }\n");
    expect(changedPaths(before, after)).toEqual(["admin.key", "mesh.secret"]);
    expect(JSON.stringify([...before.fingerprints])).not.toContain("secret-number");
  });
});

describe("what all routers of a fleet should have alike", () => {
  const differing = (one: string, other: string): string[] => {
    const [here, there] = [sharedSettings(read(one)), sharedSettings(read(other))];
    return [...here].filter(([name, digest]) => there.get(name) !== digest).map(([name]) => name);
  };

  test.each([
    ["the policy, block size and classes", "policy: random\nprefix: { block-size: 32 }\n", ["policy", "prefix"]],
    ["pools", "pools: [{ models: ['*'], policy: random }]\n", ["pools"]],
    ["how prompts are tokenized", "tokenizers: [{ models: ['*'], mode: engine }]\n", ["tokenizers"]],
    ["who reads events", "mesh: { events: direct }\nkv-events: { mode: 'off' }\n", ["kv-events", "mesh"]],
  ])("%s differ", (_, text, expected) => {
    expect(differing("", text)).toEqual(expected);
  });

  test("names, ports, files of the host, secrets and limits may differ", () => {
    const file = (path: string) => `tokenizers: [{ models: ["*"], mode: local, path: ${path} }]\n`;
    const own =
      "listen: { port: 7 }\nmesh: { port: 1, router-id: b, secret: mesh-secret-number-one-of-two }\nlimits: { max-nesting: 9 }\n";
    expect(differing(file("/a"), `${file("/b")}${own}engines: [http://a:1]\n`)).toEqual([]);
    const pool = (key: string) => `pools: [{ models: ["*"], engine-api-key: ${key} }]\n`;
    expect(differing(pool("one-key"), pool("another-key"))).toEqual([]);
  });

  test("the order of names does not count", () => {
    const aliases = (text: string) => `models: { aliases: { ${text} } }\n`;
    expect(differing(aliases("a: x, b: y"), aliases("b: y, a: x"))).toEqual([]);
    expect(differing(aliases("a: x, b: y"), aliases("a: y, b: x"))).toEqual(["models"]);
  });
});

describe("what a running router takes up", () => {
  test.each([
    ["engines", true],
    ["engines[].url", true],
    ["engines-file", false],
    ["discovery.dns", true],
    ["discovery.kubernetes.token-file", true],
    ["policy.name", true],
    ["models.aliases.gpt-4", true],
    ["models.adapters.fr", false],
    ["limits.max-nesting", true],
    ["limits.max-body-bytes", false],
    ["log.level", true],
    ["log.format", false],
    ["enginesX", false],
    ["listen.port", false],
  ])("%s: %s", (path, expected) => {
    expect(isReloadable(path)).toBe(expected);
  });

  const running = read(`
listen: { port: 1 }
policy: least_work
log: { level: info, format: json }
limits: { max-nesting: 10, max-body-bytes: 1MiB }
models: { aliases: { a: x }, max-loaded-adapters: 2 }
api-keys: [{ name: a, key: key-number-one }]
`);
  const loaded = read(`
listen: { port: 2 }
policy: random
slo: { tpot: 20ms }
engines: [http://a:1]
discovery: { dns: ["a.test:80"] }
log: { level: debug, format: pretty }
limits: { max-nesting: 11, max-body-bytes: 2MiB }
models: { aliases: { a: y }, max-loaded-adapters: 3 }
api-keys: [{ name: b, key: key-number-two }]
pools: [{ models: [m], policy: sticky, engine-api-key: engine-key-1 }]
`);
  const taken = applyReload(running, loaded);

  /** Another value than the default for every setting that a reload applies. */
  const all = `
engines: [http://a:1]
discovery:
  dns: ["a.test:80"]
policy: random
slo: { ttft: 3s, tpot: none }
pools: [{ models: [m], policy: sticky }]
models: { aliases: { a: y }, splits: { b: [{ model: y, weight: 1 }] } }
api-keys: [{ name: b, key: key-number-two }]
cors: { origins: [https://chat.example.com] }
session-key: [body:thread]
inject-usage: false
resume: { max: 0, idle: true, max-bytes: 2MiB, max-bytes-in-flight: 3MiB }
limits:
  max-nesting: 11
  max-concurrent-requests: 12
  max-body-bytes-in-flight: 13MiB
  max-connections: 14
  max-event-loop-delay: 150ms
  max-heap-share: 0.16
  max-mesh-buffer: 17MiB
drain: { delay: 18s, grace: 19s }
log: { level: debug }
mesh: { secret: mesh-secret-number-two-of-two, accepted-secrets: [mesh-secret-number-one-of-two] }
`;

  test("is all that is said to be taken up", () => {
    const before = read("mesh: { secret: mesh-secret-number-one-of-two }\n");
    const after = read(all);
    expect(changedPaths(before, after).filter((path) => !isReloadable(path))).toEqual([]);
    expect(applyReload(before, after)).toEqual(after);
    const named = changedPaths(before, after);
    const forgotten = settings
      .map((setting) => settingPath(setting).replace(/(\[\]|\.<\w+>|\.\*).*$/, ""))
      .filter((path) => isReloadable(path) && !named.some((one) => one === path || one.startsWith(`${path}.`)))
      .filter((path) => !/^(policy|discovery|session-key)\./.test(path));
    expect(forgotten).toEqual([]);
  });

  test("is of the loaded configuration, and the rest of its own", () => {
    expect(taken.policy.name).toBe("random");
    expect(taken.engines.map(({ url }) => url)).toEqual(["http://a:1"]);
    expect(taken.discovery.dns.map(({ name }) => name)).toEqual(["a.test"]);
    expect(taken.log).toEqual({ level: "debug", format: "json" });
    expect(taken.limits).toEqual({ ...running.limits, maxNesting: 11 });
    expect(taken.models).toEqual({ ...running.models, aliases: { a: "y" } });
    expect(taken.apiKeys).toEqual(loaded.apiKeys);
    expect(taken.pools).toEqual(loaded.pools);
    expect(taken.slo).toEqual({ ttftMs: 2_000, tpotMs: 20 });
    expect(taken.listen.port).toBe(1);
  });

  test("is described as it is in force, secrets masked", () => {
    const described = describeConfig(taken) as Record<string, Record<string, unknown>>;
    expect(described.listen?.port).toBe(1);
    expect(described.limits).toMatchObject({ "max-nesting": 11, "max-body-bytes": "1MiB" });
    expect(described.models).toMatchObject({ aliases: { a: "y" }, "max-loaded-adapters": 2 });
    expect(JSON.stringify(described)).not.toMatch(/key-number|engine-key/);
  });

  test("leaves only what waits for a restart as changed", () => {
    const waiting = ["limits.max-body-bytes", "listen.port", "log.format", "models.max-loaded-adapters"];
    expect(changedPaths(taken, loaded)).toEqual(waiting);
    expect(changedPaths(applyReload(taken, running), running)).toEqual([]);
  });
});
