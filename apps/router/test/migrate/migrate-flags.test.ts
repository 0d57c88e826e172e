import { readFileSync } from "node:fs";
import { type CompiledConfig, type FlagValues, flagCatalogue, loadConfig } from "@espalier/server";
import { describe, expect, test } from "vitest";
import { registerCheckConfig } from "../../src/commands/check-config.ts";
import { registerMigrate } from "../../src/commands/migrate.ts";
import { type FlagRouter, type FlagRow, flagsOf, howOf } from "../../src/migrate/flags/flag-router.ts";
import { adviseOnFlag, foreignRouters } from "../../src/migrate/flags/foreign-routers.ts";
import { translateFlags } from "../../src/migrate/flags/translate-flags.ts";
import { renderMigration } from "../../src/migrate/migration.ts";
import { migrationSources } from "../../src/migrate/sources.ts";
import { readTable } from "../../src/migrate/tables.ts";
import { runCommand } from "../run-command.ts";
import { temporaryFile } from "../temporary.ts";

const routers = foreignRouters();
const routerOf = (name: string): FlagRouter => {
  const router = routers[name];
  if (!router) throw new Error(`unknown router ${name}`);
  return router;
};
const [sglangRouter, smg, vllmRouter, productionStack] = [
  ...["sglang-router", "smg", "vllm-router", "vllm-production-stack"].map(routerOf),
] as [FlagRouter, FlagRouter, FlagRouter, FlagRouter];

/** Values of flags that do not take a number. */
const samples: Readonly<Record<string, readonly string[]>> = {
  "--host": ["127.0.0.2"],
  "--prometheus-host": ["127.0.0.2"],
  "--worker-urls": ["http://a:1", "http://b:1"],
  "--cors-allowed-origins": ["https://chat.example.com", "*"],
  "--policy": ["round_robin"],
  "--health-check-endpoint": ["/live"],
  "--log-level": ["debug"],
  "--tls-cert-path": ["cert.pem"],
  "--tls-key-path": ["key.pem"],
  "--client-cert-path": ["cert.pem"],
  "--client-key-path": ["key.pem"],
  "--max-payload-size": ["4096"],
  "--prefill": ["http://p:1", "9000"],
  "--decode": ["http://d:1"],
  "--selector": ["app=a", "b=c"],
  "--prefill-selector": ["app=p"],
  "--decode-selector": ["app=d"],
  "--service-discovery-namespace": ["ai"],
  "--api-key": ["secret-of-engines"],
  "--tenant-api-key": ["acme:secret-of-acme"],
  "--tokenizer-path": ["/models/m/tokenizer.json"],
  "--model-path": ["org/model"],
  "--otlp-traces-endpoint": ["collector:4317"],
  "--mesh-host": ["127.0.0.1"],
  "--mesh-advertise-host": ["10.0.0.1"],
  "--mesh-peer-urls": ["10.0.0.2:39527"],
  "--router-selector": ["app=router"],
  "--static-backends": ["http://a:1,http://b:1"],
  "--static-models": ["one,two"],
  "--static-aliases": ["short:one"],
  "--static-model-labels": ["x,y"],
  "--prefill-model-labels": ["x"],
  "--decode-model-labels": ["y"],
  "--k8s-namespace": ["ai"],
  "--k8s-label-selector": ["app=vllm"],
  "--session-key": ["X-User"],
  "--routing-logic": ["session"],
  "--log-format": ["json"],
  "--otel-endpoint": ["collector:4317"],
  "--k8s-service-discovery-type": ["pod-ip"],
  "--model-alias": ["short=one"],
  "--routing-key-headers": ["X-User"],
  "--ca-cert-paths": ["ca.pem"],
  "--kv-connector": ["mooncake"],
  "--mesh-tls-ca-cert": ["ca.pem"],
  "--mesh-tls-cert": ["cert.pem"],
  "--mesh-tls-key": ["key.pem"],
};

/** Flags that mean something only together with others. */
const companions: Readonly<Record<string, readonly string[]>> = {
  "--tls-cert-path": ["--tls-key-path", "key.pem"],
  "--tls-key-path": ["--tls-cert-path", "cert.pem"],
  "--client-cert-path": ["--client-key-path", "key.pem"],
  "--client-key-path": ["--client-cert-path", "cert.pem"],
  "--max-idle-secs": ["--policy", "manual"],
  "--cache-threshold": ["--policy", "cache_aware"],
  "--balance-abs-threshold": ["--policy", "cache_aware"],
  "--balance-rel-threshold": ["--policy", "cache_aware"],
  "--prefix-token-count": ["--policy", "prefix_hash"],
  "--prefix-hash-load-factor": ["--policy", "prefix_hash"],
  "--selector": ["--service-discovery"],
  "--prefill-selector": ["--service-discovery"],
  "--decode-selector": ["--service-discovery"],
  "--service-discovery-namespace": ["--service-discovery", "--selector", "a=b"],
  "--service-discovery-port": ["--service-discovery", "--selector", "a=b"],
  "--otlp-traces-endpoint": ["--enable-trace"],
  "--mesh-host": ["--enable-mesh"],
  "--mesh-port": ["--enable-mesh"],
  "--mesh-peer-urls": ["--enable-mesh"],
  "--mesh-advertise-host": ["--enable-mesh"],
  "--router-selector": ["--enable-mesh"],
  "--kv-connector": ["--prefill", "http://p:1"],
  "--mesh-tls-ca-cert": ["--mesh-tls-cert", "cert.pem", "--mesh-tls-key", "key.pem"],
  "--mesh-tls-cert": ["--mesh-tls-ca-cert", "ca.pem", "--mesh-tls-key", "key.pem"],
  "--mesh-tls-key": ["--mesh-tls-ca-cert", "ca.pem", "--mesh-tls-cert", "cert.pem"],
  "--router-temperature": ["--policy", "dynamo"],
  "--k8s-namespace": ["--service-discovery", "k8s", "--k8s-label-selector", "a=b"],
  "--k8s-label-selector": ["--service-discovery", "k8s"],
  "--k8s-port": ["--service-discovery", "k8s", "--k8s-label-selector", "a=b"],
  "--static-models": ["--static-backends", "http://a:1,http://b:1"],
  "--prefill-model-labels": ["--static-backends", "http://a:1,http://b:1", "--static-model-labels", "x,y"],
  "--decode-model-labels": ["--static-backends", "http://a:1,http://b:1", "--static-model-labels", "x,y"],
};

/** Flags whose row says that something is set, by others or not at all. */
const sayNothing = new Set([
  ...[
    "--pd-disaggregation",
    "--vllm-pd-disaggregation",
    "--service-discovery",
    "--mesh-server-name",
    "--static-model-labels",
    "--otel-secure",
  ],
  ...["--k8s-service-discovery-type", "--otel-service-name"],
]);

const env = { ESPALIER_MESH_SECRET: "the-secret-of-the-mesh" };

/** The tables as they are written. */
const writtenTables = ["sglang", "production-stack"].map(
  (name) =>
    readTable(name) as {
      readonly routers: Readonly<Record<string, { readonly released: string }>>;
      readonly flags: readonly FlagRow[];
    },
);
const writtenRouters = Object.assign({}, ...writtenTables.map((table) => table.routers)) as Readonly<
  Record<string, { readonly released: string }>
>;

/** What `espalier check-config` makes of a translation. */
const check = (settings: Readonly<Record<string, unknown>>): CompiledConfig =>
  loadConfig({ file: { path: "espalier.yaml", text: renderMigration({ settings, entries: [] }, "A title") }, env });

const rowsOf = ({ known }: FlagRouter) => [...known].map(([flag, each]) => ({ flag, ...each, how: howOf(each.row) }));

describe.each(Object.entries(routers))("%s", (name, router) => {
  test("the table has every flag of the release, once, and no other one", () => {
    const listed = router.rows.flatMap(flagsOf).map(({ flag }) => flag);
    expect(listed.filter((flag, at) => listed.indexOf(flag) !== at)).toEqual([]);
    const { released } = writtenRouters[name] ?? { released: "" };
    const flags = released.trim().split(/\s+/);
    expect(flags).toEqual(flags.toSorted());
    expect([...router.known.keys()].toSorted()).toEqual(flags.map((flag) => `--${flag}`));
    const family = Object.values(routers).filter(({ rows }) => rows.some((row) => router.rows.includes(row)));
    expect(listed.filter((flag) => !family.some(({ known }) => known.has(flag)))).toEqual([]);
  });

  test.each(rowsOf(router))("$flag: $how", ({ flag, row, values }) => {
    const given = values === "none" ? [flag] : [flag, ...(samples[flag] ?? ["1"])];
    const together = companions[flag] ?? [];
    const before = translateFlags(router, together);
    const { settings, entries } = translateFlags(router, [...together, ...given]);
    const config = check(settings);
    const entry = entries.find(({ theirs }) => theirs.split(" ").includes(flag));
    expect(entry).toBeDefined();
    if (howOf(row) === "none") {
      expect(entry).toMatchObject({ outcome: "missing", why: expect.any(String), instead: expect.any(String) });
      expect(settings).toEqual(before.settings);
      return;
    }
    expect(entry?.ours).toEqual(expect.any(String));
    if (row.ours !== "built-in" && !sayNothing.has(flag)) expect(settings).not.toEqual(before.settings);
    if (howOf(row) !== "accepted") return;
    const flags: FlagValues = {
      ...pairs(together.map((word) => (word === "manual" ? "sticky" : word))),
      [flag]: given.slice(1),
    };
    const [path = ""] = /(?<=`)[a-z.-]+(?=: )/.exec(entry?.ours ?? "") ?? [];
    expect(path).not.toBe("");
    const valueIn = ({ effective }: CompiledConfig): unknown =>
      path.split(".").reduce<unknown>((tree, key) => (tree as Record<string, unknown> | undefined)?.[key], effective);
    expect(valueIn(config)).toEqual(valueIn(loadConfig({ flags })));
  });

  test("its flags are advised on where serve does not know them", async () => {
    const ours = new Set(flagCatalogue.flatMap(({ flag, aliases }) => [flag, ...aliases]));
    const foreign = rowsOf(router).filter(({ flag }) => !ours.has(flag));
    for (const { flag } of foreign) expect(adviseOnFlag(flag)).toContain(name);
    expect(adviseOnFlag("--queue-sise")).toBeUndefined();
    const [unknown] = rowsOf(router).filter(({ how }) => how === "none");
    const { stderr, error } = await runCommand(registerCheckConfig, "check-config", unknown?.flag ?? "", "1");
    expect(error).toMatchObject({ code: "commander.unknownOption" });
    const asked = /espalier migrate --from ([a-z-]+) -- YOUR FLAGS/.exec(stderr)?.[1] ?? "";
    expect(migrationSources).toHaveProperty(asked);
    expect(stderr).toContain(`error: ${unknown?.flag} is a flag of `);
    expect(stderr).toContain(name);
    expect(stderr).toContain("ESPALIER_MESH_SECRET=SECRET espalier serve --config espalier.yaml");
  });
});

/** Flags with one value each. */
const pairs = (words: readonly string[]): Record<string, string> =>
  Object.fromEntries(words.flatMap((word, at) => (word.startsWith("--") ? [[word, words[at + 1] ?? ""]] : [])));

const run = (...args: readonly string[]) => runCommand(registerMigrate, "migrate", ...args);

test("SGLang's own example of prefill and decode, program and all, becomes two roles that check-config takes", async () => {
  const { stdout, stderr, error } = await run(
    ...["--from", "sglang-router", "--", "python", "-m", "sglang_router.launch_router", "--pd-disaggregation"],
    ...["--prefill", "http://prefill1:8000", "9000", "--prefill", "http://prefill2:8000", "none"],
    ...["--decode", "http://decode1:8001", "--decode=http://decode2:8001", "--policy", "cache_aware"],
    ...["--retry-max-retries", "3"],
  );
  expect(error).toBeUndefined();
  const config = loadConfig({ file: { path: "espalier.yaml", text: stdout } });
  expect(config.engines).toMatchObject([
    { url: "http://prefill1:8000", role: "prefill", kvTransfer: { protocol: "sglang", port: 9_000 } },
    { url: "http://prefill2:8000", role: "prefill", kvTransfer: { protocol: "sglang" } },
    { url: "http://decode1:8001", role: "decode" },
    { url: "http://decode2:8001", role: "decode" },
  ]);
  expect(config.policy.name).toBe("cache_aware");
  expect(config.listen).toMatchObject({ host: "0.0.0.0", port: 30_000 });
  const line = "--retry-max-retries 3: not translated: retries are immediate";
  expect(stderr).toContain(line);
  expect(stdout).toContain(`# - ${line}`);
});

test("keys go into the configuration, and into no comment", async () => {
  const { stdout, stderr } = await run(
    "--from",
    "smg",
    "--",
    "--api-key",
    "secret-of-engines",
    "--redis-url",
    "u:secret",
  );
  const config = loadConfig({ file: { path: "espalier.yaml", text: stdout } });
  expect([config.apiKeys.length, config.pools.length]).toEqual([1, 1]);
  expect(`${stderr}${stdout.replaceAll(/^[^#].*$/gm, "")}`).not.toContain("secret");
  // A client's key has eight characters at least.
  const short = translateFlags(smg, ["--tenant-api-key", "acme:short"]);
  expect(short.entries[0]).toMatchObject({ outcome: "missing", why: expect.stringContaining("8 characters") });
  expect(short.settings).not.toHaveProperty("api-keys");
});

test("an engine that is not reached over HTTP is told of, and the others stay", () => {
  const { settings, entries } = translateFlags(smg, ["--worker-urls", "grpc://a:1", "b:2", "http://c:3"]);
  expect(settings.engines).toEqual(["http://b:2", "http://c:3"]);
  expect(entries).toContainEqual(expect.objectContaining({ theirs: "--worker-urls grpc://a:1", outcome: "missing" }));
});

test("policies have their names here, or the nearest one", () => {
  const policyOf = (router: FlagRouter, ...words: readonly string[]) =>
    check(translateFlags(router, words).settings).policy.name;
  expect(["manual", "least_load", "bucket", "power_of_two"].map((name) => policyOf(smg, "--policy", name))).toEqual([
    ...["sticky", "least_work", "predicted_latency", "power_of_two"],
  ]);
  expect(policyOf(sglangRouter)).toBe("cache_aware");
  expect(policyOf(productionStack, "--routing-logic", "kvaware")).toBe("predicted_latency");
  const { settings, entries } = translateFlags(smg, ["--policy", "random", "--cache-threshold", "0.5"]);
  expect(settings.policy).toEqual({ name: "random" });
  expect(entries[1]).toMatchObject({ outcome: "same", ours: "without effect on `policy: random`" });
});

test("vllm-router: its own policies, its connector between engines, and the tiers of its KV cache", () => {
  const policies = ["consistent_hash", "rendezvous_hash", "sticky_least_loaded", "kv_aware"];
  const named = policies.map((name) => check(translateFlags(vllmRouter, ["--policy", name]).settings).policy.name);
  expect(named).toEqual(["consistent_hashing", "consistent_hashing", "sticky", "predicted_latency"]);
  const fewest = translateFlags(vllmRouter, ["--policy", "sticky_least_loaded"]);
  expect(fewest.settings.policy).toEqual({ name: "sticky", "fewest-sessions": 1, "max-idle-seconds": 7_200 });
  expect(fewest.entries[0]).toMatchObject({
    ours: "`policy: sticky`, `fewest-sessions: 1`, `max-idle-seconds: 7200`",
    outcome: "same",
  });
  const pair = ["--vllm-pd-disaggregation", "--prefill", "http://p:1", "--decode", "http://d:1"];
  const protocolOf = (...more: readonly string[]) =>
    check(translateFlags(vllmRouter, [...pair, ...more]).settings).engines[0]?.kvTransfer?.protocol;
  expect([protocolOf(), protocolOf("--kv-connector", "mooncake")]).toEqual(["nixl", "mooncake"]);
  const { settings } = translateFlags(vllmRouter, ["--policy", "kv_aware", "--kv-penalty-disk", "0.3"]);
  expect(settings.policy).toEqual({ "disk-credit": 0.3 });
});

test("SMG: certificates of its mesh stand beside the rest of it, and aliases may be repeated", () => {
  const certificates = ["--mesh-tls-ca-cert", "ca.pem", "--mesh-tls-cert", "cert.pem", "--mesh-tls-key", "key.pem"];
  const mesh = ["--enable-mesh", "--mesh-peer-urls", "10.0.0.2:39527"];
  const { settings } = translateFlags(smg, [
    ...certificates,
    ...mesh,
    "--model-alias",
    "a=m",
    "--model-alias",
    "b:1=m:1",
  ]);
  expect(settings.mesh).toEqual({
    tls: { "ca-file": "ca.pem", "cert-file": "cert.pem", "key-file": "key.pem" },
    ...{ host: "0.0.0.0", port: 39_527, seeds: ["10.0.0.2:39527"] },
  });
  expect(settings.models).toEqual({ aliases: { a: "m", "b:1": "m:1" } });
  check(settings);
});

test("levels of the log have their names here", () => {
  const levels = ["critical", "warning", "info"].map((level) => translateFlags(vllmRouter, ["--log-level", level]));
  expect(levels.map(({ settings }) => check(settings).log.level)).toEqual(["error", "warn", "info"]);
  expect(levels.map(({ entries }) => entries[0]?.outcome)).toEqual(["differs", "differs", "same"]);
});

test("labels of the production stack become roles, of listed engines and of pods", () => {
  const labels = ["--prefill-model-labels", "p", "--decode-model-labels", "d"];
  const listed = [
    "--static-backends",
    "http://a:1,http://b:1",
    "--static-models",
    "m,m",
    "--static-model-labels",
    "p,d",
  ];
  expect(check(translateFlags(productionStack, [...listed, ...labels]).settings).engines).toMatchObject([
    { url: "http://a:1", models: ["m"], role: "prefill", kvTransfer: { protocol: "nixl" } },
    { url: "http://b:1", models: ["m"], role: "decode", kvTransfer: { protocol: "nixl" } },
  ]);
  const found = translateFlags(productionStack, ["--service-discovery", "k8s", "--k8s-namespace", "ai", ...labels]);
  check(found.settings);
  expect(found.settings.discovery).toEqual({
    pods: [
      { selector: "model in (p)", namespace: "ai", port: 8_000, role: "prefill", "kv-transfer": "nixl" },
      { selector: "model in (d)", namespace: "ai", port: 8_000, role: "decode", "kv-transfer": "nixl" },
    ],
  });
});

test("the production stack's chart: its values become the flags that its template makes of them", async () => {
  const values = temporaryFile(
    "values.yaml",
    "servingEngineSpec: { labels: { environment: prod } }\nrouterSpec:\n  routingLogic: session\n  sessionKey: x-user\n" +
      '  engineScrapeInterval: 15\n  rootPath: /vllm\n  otel: { endpoint: "collector:4317", secure: true }\n  extraArgs: ["--log-stats"]\n',
  );
  const { stdout, stderr } = await run("--from", "vllm-production-stack", values);
  const config = loadConfig({ file: { path: "espalier.yaml", text: stdout } });
  expect(config.policy.name).toBe("consistent_hashing");
  expect(config.effective).toMatchObject({
    "session-key": ["header:x-user"],
    scrape: { interval: 15_000 },
    listen: { host: "0.0.0.0", port: 8_000 },
    discovery: { pods: [{ selector: "environment=prod", port: 8_000 }] },
    tracing: { endpoint: "https://collector:4318", "service-name": "espalier-router" },
  });
  expect(config.discovery.pods[0]?.namespace).toBeUndefined();
  expect(stderr).toContain("--root-path /vllm: not translated");
  expect(stderr).toContain("--log-stats: not translated");
});

test("a file with the command line, as a shell reads it", async () => {
  const script = temporaryFile(
    "start.sh",
    "#!/bin/sh\n# The router\nexec smg launch \\\n  --worker-urls \"http://a:1\" 'http://b:2' \\\n  --model /models/m --port=8000\n",
  );
  const { stdout } = await run("--from", "smg", script);
  expect(loadConfig({ file: { path: "espalier.yaml", text: stdout } }).effective).toMatchObject({
    engines: [{ url: "http://a:1" }, { url: "http://b:2" }],
    tokenizers: [{ path: "/models/m" }],
    listen: { port: 8_000 },
  });
});

test("words of a command line have no quotes, as behind a shell", () => {
  const text = String.raw`smg --selector a\=1 "c=\"d\"" 'f="g"' h"i"=j --service-discovery`;
  expect(migrationSources.smg?.translate(text, "start.sh").settings.discovery).toEqual({
    pods: [{ selector: 'a=1,c="d",f="g",hi=j', port: 80 }],
  });
});

test.each([
  [
    "a shell script",
    `exec smg --worker-urls "http://$A_HOST:1" http://\${B_HOST}:2 --api-key $KEY --tenant-api-key 'a:key-with-\${x}'\n`,
  ],
  [
    "a manifest",
    `args: [--worker-urls, "http://$(A_HOST):1", "http://\${B_HOST}:2", --api-key, $(KEY), --tenant-api-key, "a:key-with-$\${x}"]\n`,
  ],
])("variables of %s are variables of ours", async (_, text) => {
  const { stdout } = await run("--from", "smg", temporaryFile("launch", text));
  const variables = { A_HOST: "a", B_HOST: "b", KEY: "key-of-clients" };
  const config = loadConfig({ file: { path: "espalier.yaml", text: stdout }, env: variables });
  expect(config.engines).toMatchObject([{ url: "http://a:1" }, { url: "http://b:2" }]);
  expect(stdout).toContain("engine-api-key: ${KEY}\n");
  expect(config.apiKeys).toHaveLength(2);
});

// What stands around a command line in a file was taken for its flags, or the file for empty: an empty configuration came of it.
const launch = "python3 -m sglang_router.launch_router --worker-urls http://a:1 http://b:1 --policy cache_aware";
test.each([
  ["output and errors that go to a file", `${launch} >> router.log 2>&1\n`],
  [
    "a pipe, in the background, after another command",
    `cd /srv && RUST_LOG=info nohup ${launch} 2>&1 | tee log &\nwait\n`,
  ],
  [
    "a unit of systemd",
    `[Service]\nExecStart=/usr/bin/${launch.replace(" --policy", " \\\n  --policy")}\nRestart=always\n`,
  ],
  ["a container's program", `docker run -d --name router -p 1:1 sglang ${launch}\n`],
  [
    "a compose file with a text",
    `services:\n  router:\n    command: ${launch}\n  other:\n    command: [serve, --port, 1]\n`,
  ],
  ["a compose file with a list", `services:\n  r:\n    entrypoint: [sh, -ec, "cd /; exec ${launch} > log"]\n`],
  [
    "the second part of a manifest",
    `kind: Service\n---\nspec:\n  containers:\n    - command: [python3]\n      args: ${JSON.stringify(launch.split(" ").slice(1))}\n`,
  ],
])("a file with %s: the command line in it is translated, and nothing else", async (_, text) => {
  const { stdout, stderr, error, exitCode } = await run("--from", "sglang-router", temporaryFile("launch", text));
  expect([error, exitCode]).toEqual([undefined, undefined]);
  expect(loadConfig({ file: { path: "espalier.yaml", text: stdout } })).toMatchObject({
    engines: [{ url: "http://a:1" }, { url: "http://b:1" }],
    policy: { name: "cache_aware" },
  });
  expect(stderr).not.toContain("not translated");
});

test("a file without a flag of the router is refused", async () => {
  for (const text of ["kind: Service\nspec: { ports: [] }\n", "#!/bin/sh\necho ready\n", ""]) {
    const file = temporaryFile("nothing", text);
    const { error, stdout } = await run("--from", "smg", file);
    expect(String(error)).toContain(`${file}: no command line with a flag of SMG 1.13.0 is in it`);
    expect(stdout).toBe("");
  }
});

test.each([
  [
    "a flag of another release",
    ["--queue-sise", "x", "y"],
    "--queue-sise: not translated: unknown flag of SMG 1.13.0; did you mean --queue-size?",
  ],
  ["a flag without its value", ["--queue-size"], "--queue-size: not translated: it has no value"],
  ["a word behind a switch", ["--log-json", "yes"], "--log-json yes: not translated: the flag takes no value"],
  ["a second word", ["--host", "::", "y"], "--host y: not translated: the flag takes one value"],
  [
    "an unknown policy",
    ["--policy", "consistent_hash"],
    "--policy consistent_hash: here `policy: predicted_latency`: it is the name of no policy; did you mean consistent_hashing?",
  ],
])("%s is said, and the rest is translated", async (_, words, line) => {
  const { stdout, stderr, exitCode } = await run("--from", "smg", "--", ...words, "--worker-urls", "http://a:1");
  expect(stderr).toContain(line);
  expect(loadConfig({ file: { path: "espalier.yaml", text: stdout } }).engines).toMatchObject([{ url: "http://a:1" }]);
  expect(exitCode).toBeUndefined();
});

test("a result that check-config would refuse is printed, with its problems on standard error and status 1", async () => {
  const { stdout, stderr, exitCode } = await run(
    "--from",
    "smg",
    "--",
    "--port",
    "many",
    "--health-check-endpoint",
    "x",
  );
  expect(stdout).toContain("port: many");
  expect(stderr).toMatch(/^error: listen\.port: .*many/m);
  expect(stderr).toMatch(/^error: health\.path: /m);
  expect(exitCode).toBe(1);
});

test("flags of a program that starts engines and a router have their prefix", () => {
  const words = ["--dp-size", "2", "--router-policy", "round_robin", "--router-queue-size=7"];
  expect(translateFlags(sglangRouter, words).settings).toMatchObject({
    policy: { name: "round_robin" },
    admission: { "max-queued": 7 },
  });
});

test("defaults of theirs that clients and engines notice are set, or said", () => {
  const { settings, entries } = translateFlags(smg, []);
  expect(check(settings).effective).toMatchObject({
    limits: { "max-body-bytes": 512 * 1_024 * 1_024 },
    health: { timeout: 5_000, interval: 2_000 },
  });
  expect(entries).toContainEqual(expect.objectContaining({ theirs: "--health-check-interval-secs 60, their default" }));
});

test.each([
  ["servingEngineSpec.vllmApiKey", "servingEngineSpec: { vllmApiKey: 'a${B}c' }\nrouterSpec: {}\n", "a$${B}c"],
  ["routerSpec.vllmApiKey", "routerSpec: { vllmApiKey: { secretName: s, secretKey: k } }\n", "${VLLM_API_KEY}"],
  ["routerSpec.env, VLLM_API_KEY", "routerSpec: { env: [{ name: VLLM_API_KEY, value: key }] }\n", "key"],
])("the production stack's chart: %s is the key of the engines", async (theirs, text, key) => {
  const { stdout, stderr, exitCode } = await run("--from", "vllm-production-stack", temporaryFile("values.yaml", text));
  expect(stdout).toContain(`engine-api-key: ${key}\n`);
  expect(stderr).toContain(`${theirs}: here \`pools[].engine-api-key\``);
  expect(exitCode).toBeUndefined();
});

test("the production stack's chart: replicas and values that are not read are told of", async () => {
  const text = "routerSpec: { replicaCount: 3, hpa: { enabled: true }, env: [{ name: A, value: b }], sessionKey: x }\n";
  const { stderr } = await run("--from", "vllm-production-stack", temporaryFile("values.yaml", text));
  expect(stderr).toMatch(/^routerSpec\.replicaCount: 3: not translated: .*mesh/m);
  expect(stderr).toContain("routerSpec.env, A: not translated");
  expect(stderr).toContain("routerSpec.hpa: not translated");
  expect(stderr).not.toContain("sessionKey");
});

test("flags of a router that is configured by a file are refused", async () => {
  const { error, stdout } = await run("--from", "llm-d", "--", "--grpc-port", "1");
  expect(String(error)).toContain("llm-d is translated from one file: its EndpointPickerConfig");
  expect(stdout).toBe("");
});

test("the two lines of the guide are what serve says, too", () => {
  const guide = readFileSync(new URL("../../../../docs/MIGRATION.md", import.meta.url), "utf8");
  expect(guide).toContain("migrate --from sglang-router -- ");
  expect(guide).toContain(
    "serve --config espalier.yaml --mesh-host 0.0.0.0 --mesh-port 7946 --mesh-seed OTHER-ROUTER:7946",
  );
});
