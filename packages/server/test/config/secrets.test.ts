import { createHash } from "node:crypto";
import { inspect } from "node:util";
import { expect, test } from "vitest";
import { describeConfig, loadConfig, renderConfigYaml, Secret } from "../../src/config/index.ts";
import { load } from "./loading.ts";

const sha256 = (text: string): Buffer => createHash("sha256").update(text).digest();

test.each([
  ["text", (secret: Secret) => `${secret}`],
  ["concatenation", (secret: Secret) => `a ${String(secret)}`],
  ["JSON", (secret: Secret) => JSON.stringify({ secret })],
  ["inspection", (secret: Secret) => inspect({ deep: [secret] }, { showHidden: true, depth: 5 })],
  ["its own properties", (secret: Secret) => JSON.stringify(Object.entries(secret))],
  ["an error's message", (secret: Secret) => new Error(`failed with ${secret}`).message],
])("a secret does not show in %s", (_, show) => {
  expect(show(new Secret("hunter2"))).not.toContain("hunter2");
});

test("a secret gives its text when it is asked for", () => {
  expect(new Secret("hunter2").reveal()).toBe("hunter2");
});

const file = `
admin: { key: admin-hunter2 }
api-keys:
  - { name: plain, key: plain-hunter2 }
  - { name: hashed, key-sha256: ${sha256("hashed-hunter2").toString("hex").toUpperCase()} }
engines: [http://a]
pools: [{ models: [a], engine-api-key: engine-hunter2 }]
mesh: { backend: redis, secret: hunter2-of-the-mesh, accepted-secrets: [older-hunter2-of-it, newer-hunter2-of-it], redis-url: "redis://:hunter2@r" }
tracing: { headers: "authorization=Bearer%20hunter2" }
`;

test("keys are kept as digests only", () => {
  const config = load(file);
  expect(config.admin.keySha256).toEqual(sha256("admin-hunter2"));
  expect(config.apiKeys).toEqual([
    { name: "plain", sha256: sha256("plain-hunter2") },
    { name: "hashed", sha256: sha256("hashed-hunter2") },
  ]);
});

test("the key for engines can be revealed, because it has to be sent", () => {
  expect(load(file).pools[0]?.engineApiKey?.reveal()).toBe("engine-hunter2");
});

test.each([
  ["JSON", (config: ReturnType<typeof load>) => JSON.stringify(config)],
  ["inspection", (config: ReturnType<typeof load>) => inspect(config, { depth: 20, showHidden: true })],
  ["the description", (config: ReturnType<typeof load>) => JSON.stringify(describeConfig(config))],
  ["the YAML", renderConfigYaml],
])("no secret and no digest that was written shows in %s of a configuration", (form, print) => {
  const printed = print(load(file));
  expect(printed).not.toContain("hunter2");
  if (form === "the description" || form === "the YAML") {
    expect(printed.toLowerCase()).not.toContain(sha256("hashed-hunter2").toString("hex"));
    expect(printed.match(/\*\*\*/g)).toHaveLength(9);
  }
});

test("secrets that come from outside are masked as well", () => {
  const config = loadConfig({ env: { ESPALIER_ADMIN_KEY: "env-hunter2" } });
  expect(config.admin.keySha256).toEqual(sha256("env-hunter2"));
  expect(describeConfig(config).admin).toEqual({ host: "127.0.0.1", port: 9090, key: "***", dashboard: true });
  expect(JSON.stringify(config)).not.toContain("hunter2");
});
