import { readFileSync } from "node:fs";
import { createServer as createPlainServer, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer, type ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { mooncakeKey } from "@espalier/engine-model/kv-events";
import { type EngineSimOptions, startEngineSim } from "@espalier/engine-sim";
import { startDnsServer, waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { expect, onTestFinished, test } from "vitest";
import { temporaryFile } from "./files.ts";
import { type Program, run, start } from "./program.ts";

/** A line of `doctor --json`. */
interface Check {
  readonly check: string;
  readonly target: string;
  readonly status: "pass" | "warn" | "fail";
  readonly message: string;
  readonly setting: string | null;
  readonly fix: string | null;
}

const anyPorts = { listen: { port: 0 }, admin: { port: 0 } };

async function doctor(file: string, args: readonly string[] = [], openFiles?: number): Promise<readonly Check[]> {
  const limited = openFiles === undefined ? {} : { openFiles };
  const { code, stdout, stderr } = await run(["doctor", "--config", file, "--json", ...args], limited);
  if (stdout === "") throw new Error(stderr);
  const checks = JSON.parse(stdout) as readonly Check[];
  expect(code).toBe(checks.some(({ status }) => status === "fail") ? 1 : 0);
  for (const { status, fix } of checks) expect(fix === null).toBe(status === "pass");
  return checks;
}

async function sim(options: EngineSimOptions = { tokenizer: "espalier-tiny" }): Promise<string> {
  const running = await startEngineSim({ speed: 1_000, models: ["tiny"], ...options });
  onTestFinished(() => running.stop());
  return running.engines[0]!.url;
}

type Answers = Readonly<Record<string, (response: ServerResponse) => void>>;

const json = (value: unknown) => (response: ServerResponse) => response.end(JSON.stringify(value));

/** A server that is an engine as far as routers see, but for the answers that are given. */
async function engine(answers: Answers = {}, tls?: ServerOptions): Promise<string> {
  const usual: Answers = {
    "/health": (response) => response.end(),
    "/v1/models": json({ data: [{ id: "plain" }] }),
    "/metrics": (response) => response.end("vllm:num_requests_running 1\n"),
    "/kv_event_sources": json({}),
  };
  const onRequest = ({ url = "" }: IncomingMessage, response: ServerResponse): void => {
    const answer = answers[url] ?? usual[url];
    if (answer) answer(response);
    else response.writeHead(404).end();
  };
  return serverOf(onRequest, tls);
}

async function serverOf(
  onRequest: (request: IncomingMessage, response: ServerResponse) => void,
  tls?: ServerOptions,
): Promise<string> {
  const server = tls ? createServer(tls, onRequest) : createPlainServer(onRequest);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `${tls ? "https" : "http"}://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const fixture = (name: string): string => fileURLToPath(new URL(`../integration/fixtures/${name}`, import.meta.url));
const certificate = (name: string): ServerOptions => ({
  cert: readFileSync(fixture(`${name}.crt`)),
  key: readFileSync(fixture(`${name}.key`)),
});

async function post(url: string, body: unknown): Promise<void> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  expect(answer.status).toBe(200);
  await answer.text();
}

const chat = (model: string) => ({
  ...{ model, max_tokens: 2 },
  messages: [{ role: "user", content: "What is the tide table of the harbour for the third of May? ".repeat(20) }],
});

/** Where an engine publishes its events, as an entry of the configuration. */
async function eventsOf(url: string): Promise<Record<string, string>> {
  const sources = (await (await fetch(`${url}/kv_event_sources`)).json()) as Record<string, Record<string, string>>;
  const { endpoint = "", replay_endpoint: replay = "" } = sources["0"] ?? {};
  const dialled = (bound: string): string => bound.replace("*", "127.0.0.1");
  return { endpoint: dialled(endpoint), replay: dialled(replay) };
}

interface Row {
  readonly url: string;
  readonly state: string;
  readonly models: readonly string[] | null;
}

/** Which engines a router of this configuration uses, once it has decided on all. */
async function serving(file: string, urls: readonly string[], usable: number): Promise<ReadonlySet<string>> {
  const program = start(["serve", "--config", file]);
  const [, adminUrl = ""] = await program.until(/metrics and admin at (\S+)/);
  const isUsable = ({ state, models }: Row): boolean => state === "up" && (models?.length ?? 0) > 0;
  const rows = async () => ((await (await fetch(`${adminUrl}/admin/engines`)).json()) as { engines: Row[] }).engines;
  await waitFor(async () => (await rows()).filter(isUsable).length >= usable, {
    what: "usable engines",
    deadlineMs: 20_000,
  });
  const found = await rows();
  expect(found.map(({ url }) => url).sort()).toEqual([...urls].sort());
  program.kill("SIGKILL");
  await program.ended;
  return new Set(found.filter(isUsable).map(({ url }) => url));
}

/*
 * Doctor had a client of its own: it asked for no health and no metrics, trusted other authorities than `serve`, and sent
 * keys that `serve` does not send.
 */
test("doctor passes the engines that serve uses, and fails the others; each failure names its setting", async () => {
  const whole = await sim({ tokenizer: "espalier-tiny", kvEvents: { dialect: "vllm-0.32" } });
  const locked = await sim({ apiKey: "a-key" });
  const trusted = await engine({}, certificate("localhost"));
  const stranger = await engine({}, certificate("stranger"));
  const unhealthy = await engine({ "/health": (response) => response.writeHead(503).end() });
  const erring = await engine({ "/v1/models": json({ error: { message: "out of memory" } }) });
  const late = await engine({ "/metrics": () => {} });
  const blind = await engine({ "/metrics": (response) => response.writeHead(404).end() });
  const unlisted = await engine({ "/v1/models": (response) => response.writeHead(404).end() });
  const skewed = await engine({
    "/v1/models": (response) => {
      response.setHeader("date", new Date(Date.now() - 60_000).toUTCString());
      json({ data: [{ id: "plain" }] })(response);
    },
  });
  const good = [whole, trusted, late, blind, unlisted, skewed];
  const urls = [whole, locked, trusted, stranger, unhealthy, erring, late, blind, unlisted, skewed];
  const file = temporaryFile(
    "espalier.json",
    JSON.stringify({
      ...anyPorts,
      engines: urls.map((url) => (url === unlisted ? { url, models: ["plain"] } : { url })),
      "engine-tls": { "ca-file": fixture("localhost.crt") },
      tokenizers: [{ models: ["tiny"], path: shippedModelFolder() }],
    }),
  );
  const [checks, used] = await Promise.all([doctor(file), serving(file, urls, good.length)]);
  const at = (check: string, url: string) => checks.find((one) => one.check === check && one.target.endsWith(url));
  expect(
    new Set(checks.filter(({ check, status }) => check === "engine" && status === "pass").map(({ target }) => target)),
  ).toEqual(used);
  expect(used).toEqual(new Set(good));
  expect(at("engine", locked)).toMatchObject({ status: "fail", setting: "pools[].engine-api-key" });
  expect(at("engine", stranger)).toMatchObject({
    status: "fail",
    setting: "engine-tls.ca-file (--engine-tls-ca-file)",
  });
  expect(at("engine", unhealthy)).toMatchObject({ status: "fail", message: "/health answers 503" });
  expect(at("engine", erring)).toMatchObject({ status: "fail", message: "/v1/models answers 200 without a model" });
  expect(at("metrics", whole)).toMatchObject({ status: "pass" });
  expect(at("metrics", late)).toMatchObject({ status: "fail", setting: "scrape.timeout (--scrape-timeout)" });
  expect(at("metrics", blind)).toMatchObject({ status: "warn", setting: "scrape.path (--scrape-path)" });
  // Its page has the running requests alone.
  expect(at("metrics", trusted)).toMatchObject({
    ...{
      status: "warn",
      setting: "policy.name (--policy)",
      message: expect.stringContaining("without queued requests"),
    },
  });
  expect(at("clock", skewed)).toMatchObject({ status: "warn", message: expect.stringMatching(/^(59|6\d) s off/) });
  expect(at("clock", whole)).toMatchObject({ status: "pass" });
  expect(at("tokenizer", whole)).toMatchObject({ status: "pass" });
});

test("events, adapters and tokenizers: what makes predictions wrong is found before requests come", async () => {
  const other = await sim({ models: ["bytes"] });
  const [narrow, renamed, split, having, lacking] = [
    await sim({
      models: ["narrow"],
      tokenizer: "espalier-tiny",
      kvEvents: { dialect: "vllm-0.32" },
      parameters: { blockSize: 24 },
    }),
    await sim({ models: ["renamed"], kvEvents: { dialect: "vllm-0.32", topic: "kv" } }),
    await sim({ models: ["split"], kvEvents: { dialect: "vllm-0.32" } }),
    await sim({ models: ["base"], adapters: ["law"] }),
    await sim({ models: ["base"] }),
  ];
  // A block that is published tells its size.
  await post(`${narrow}/v1/chat/completions`, chat("narrow"));
  await post(`${having}/sleep`, {});
  const file = temporaryFile(
    "espalier.json",
    JSON.stringify({
      ...anyPorts,
      engines: [
        ...[other, narrow, having, lacking],
        { url: renamed, "kv-events": { ...(await eventsOf(renamed)), topic: "other" } },
        { url: split, ranks: 2, "kv-events": await eventsOf(split) },
      ],
      models: {
        adapters: { base: { model: "base", path: "/adapters/base" }, tax: { model: "none", path: "/adapters/tax" } },
      },
      tokenizers: [{ models: ["bytes"], path: shippedModelFolder() }],
    }),
  );
  const checks = await doctor(file);
  const failed = checks.filter(
    ({ check, status }) => status !== "pass" && !["configuration", "metrics"].includes(check),
  );
  const id = (url: string): string => new URL(url).host;
  const found = failed.map(({ check, target, status, setting }) => [check, target, status, setting]);
  expect(new Set(found.map(String))).toEqual(
    new Set(
      [
        ["asleep", having, "warn", null],
        ["kv-events", id(narrow), "fail", "prefix.block-size (--prefix-block-size)"],
        ["kv-events", narrow, "warn", "prefix.block-size (--prefix-block-size)"],
        // Its metrics have one rank.
        ["ranks", split, "warn", "engines[5].ranks"],
        ["kv-events", renamed, "fail", "engines[4].kv-events.topic"],
        ["kv-events", `${id(split)}#1`, "fail", "engines[5].kv-events.endpoint"],
        ["adapters", "law", "warn", "models.adapters.law"],
        ["adapters", "base", "fail", "models.adapters.base"],
        ["adapters", "tax", "fail", "models.adapters.tax.model"],
        ["tokenizer", `bytes at ${other}`, "fail", "tokenizers[0].path (--tokenizer)"],
      ].map(String),
    ),
  );
});

test("of each Mooncake Store it says whether keys come, and whether they are those of engines", async () => {
  const running = await startEngineSim({
    ...{ speed: 1_000, models: ["tiny"], tokenizer: "espalier-tiny" },
    ...{ kvEvents: { dialect: "vllm-0.32", replay: true }, transfer: { protocol: "shared-storage" } },
  });
  onTestFinished(() => running.stop());
  const { url } = running.engines[0]!;
  const { port } = (await (await fetch(`${url}/sim/transfers`)).json()) as { readonly port: number };
  await post(`${url}/v1/chat/completions`, chat("tiny"));
  const keyed = (...models: readonly string[]) =>
    engine({
      "/get_all_keys": (response) => response.end(models.map((model) => mooncakeKey(model, 1n)).join("\n")),
    });
  const stores = {
    good: `http://127.0.0.1:${port}`,
    gone: "http://127.0.0.1:1",
    mixed: await keyed("a", "b"),
    strange: await keyed("a"),
    other: await engine(),
  };
  const pools = Object.entries(stores).map(([name, mooncake]) => ({ name, mooncake }));
  const file = temporaryFile("espalier.json", JSON.stringify({ ...anyPorts, engines: [url], "kv-pools": pools }));
  const checks = (await doctor(file)).filter(({ target }) => target.startsWith("pool "));
  const found = checks.map(({ target, status, setting, message }) => [target, status, setting, message]);
  const setting = "kv-pools[].mooncake";
  expect(found).toEqual([
    ["pool good", "pass", null, expect.stringMatching(/: [1-9]\d* blocks, 0 keys of unknown blocks$/)],
    ["pool gone", "fail", setting, `${stores.gone}: does not answer`],
    ["pool mixed", "fail", setting, expect.stringContaining("keys of several models (a, b)")],
    ["pool strange", "warn", setting, `${stores.strange}: 1 keys, none of a block that engines have announced`],
    ["pool other", "fail", setting, expect.stringContaining("404")],
  ]);
});

test("beside a running router it says so, joins nothing, and takes no port and no feed", async () => {
  const url = await sim({ kvEvents: { dialect: "vllm-0.32" } });
  const secret = "a long secret of 30 letters, ok";
  const config = { ...anyPorts, engines: [url], mesh: { port: 0, secret, "router-id": "r1" } };
  const program = start(["serve", "--config", temporaryFile("espalier.json", JSON.stringify(config))]);
  const [, adminUrl = ""] = await program.until(/metrics and admin at (\S+)/);
  const ask = async <Answer>(path: string) => (await (await fetch(adminUrl + path)).json()) as Answer;
  interface Feeds {
    readonly feeds: readonly { readonly state: string; readonly owner: string | null; readonly role: string | null }[];
  }
  const feeds = async () =>
    (await ask<Feeds>("/admin/feeds")).feeds.map(({ state, owner, role }) => [state, owner, role]);
  await waitFor(async () => String(await feeds()) === "live,r1,owner", { what: "the feed", deadlineMs: 10_000 });
  const { address } = await ask<{ address: string }>("/admin/mesh");
  const port = Number(new URL(adminUrl).port);
  const same = { ...config, admin: { port }, mesh: { ...config.mesh, seeds: [address] } };
  const checks = await doctor(temporaryFile("same.json", JSON.stringify(same)));
  expect(checks.filter(({ status }) => status === "fail")).toEqual([]);
  const of = (name: string) => checks.filter(({ check }) => check === name);
  expect(of("running")).toMatchObject([{ target: adminUrl, status: "pass" }]);
  expect(of("listeners")).toMatchObject([{ message: expect.stringContaining("in use by the running router") }]);
  expect(of("feeds")).toMatchObject([{ status: "pass" }]);
  expect(of("router")).toMatchObject([{ target: address, status: "pass" }]);

  const foreign = { ...same, mesh: { ...same.mesh, secret: "another one of so many letters" } };
  const refused = await doctor(temporaryFile("foreign.json", JSON.stringify(foreign)));
  expect(refused.filter(({ check }) => check === "router")).toMatchObject([
    { target: address, status: "fail", setting: "mesh.secret (--mesh-secret)" },
  ]);
  expect(JSON.stringify(refused)).not.toContain(secret);
  expect(await feeds()).toEqual([["live", "r1", "owner"]]);
  expect((await ask<{ members: readonly unknown[] }>("/admin/mesh")).members).toEqual([]);
  program.kill("SIGTERM");
});

test("too few open files for the event sockets, an address of another machine, names without addresses", async () => {
  const dns = await startDnsServer();
  onTestFinished(() => dns.stop());
  const url = await sim();
  dns.set("one.test", { a: ["127.0.0.1"] });
  const port = Number(new URL(url).port);
  const servers = [dns.address];
  const file = temporaryFile(
    "espalier.json",
    JSON.stringify({
      listen: { host: "192.0.2.1", port: 18_080 },
      admin: { port: 0 },
      "api-keys": [{ name: "team", key: "key-of-the-team-1" }],
      discovery: {
        dns: [
          { name: `one.test:${port}`, servers, ranks: 64 },
          { name: `none.test:${port}`, servers },
        ],
      },
    }),
  );
  const checks = await doctor(file, [], 600);
  const at = (check: string, target: string) => checks.filter((one) => one.check === check && one.target === target);
  expect(at("open-files", "")).toMatchObject([
    { status: "fail", message: "600 at once" },
    { status: "fail", message: "600 open files allow 62 event sockets for 64 targets" },
  ]);
  expect(at("listeners", "192.0.2.1:18080")).toMatchObject([
    { status: "fail", setting: "listen.host (--listen-host)" },
  ]);
  expect(at("discovery", `dns none.test:${port}`)).toMatchObject([
    { status: "fail", message: expect.stringContaining("no addresses"), setting: "discovery.dns (--discover-dns)" },
  ]);
  expect(at("dns", "one.test")).toMatchObject([{ status: "warn", message: expect.stringContaining("one address") }]);
  // Engines of DNS are met as those of the file.
  expect(at("engine", `http://127.0.0.1:${port}`)).toMatchObject([{ status: "pass" }]);
});

/** What a client gets of the router of a configuration without engines, once it has or has lost the spans of that. */
async function overflowing(file: string, spansAreKnown: (log: Program) => Promise<unknown>): Promise<number> {
  const program = start(["serve", "--config", file]);
  const [, url = ""] = await program.until(/serves at (\S+),/);
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ model: "tiny", messages: [{ role: "user", content: "hi" }] });
  const answer = await fetch(`${url}/v1/chat/completions`, { method: "POST", headers, body });
  await answer.text();
  await spansAreKnown(program);
  program.kill("SIGKILL");
  await program.ended;
  return answer.status;
}

test("overflow backends and the collector are met as serve meets them: keys, certificates, redirects, models", async () => {
  const seen: string[] = [];
  const isOurs = ({ headers }: IncomingMessage): boolean => headers.authorization === "Bearer provider-key";
  const collected = { right: 0 };
  const provider = await serverOf((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    if (!isOurs(request)) response.writeHead(401).end();
    else if (request.url === "/v1/models") json({ data: [{ id: "big-1" }] })(response);
    else json({ choices: [{ message: { role: "assistant", content: "hi" }, finish_reason: "stop" }] })(response);
  });
  const moved = await serverOf((_, response) => response.writeHead(302, { location: provider }).end());
  const stranger = await serverOf((_, response) => response.end(), certificate("stranger"));
  const silent = await serverOf(() => {});
  const collector = await serverOf((request, response) => {
    const isRight = request.headers["x-key"] === "right";
    if (isRight) collected.right += 1;
    response.writeHead(isRight ? 200 : 403).end("{}");
  });
  const written = (backends: readonly object[], endpoint: string, headers: string) => {
    const overflow = backends.map((backend, at) => ({ name: `b${at}`, key: "provider-key", ...backend }));
    const tracing = { endpoint, headers, sample: 1 };
    return temporaryFile("espalier.json", JSON.stringify({ ...anyPorts, engines: [dead], overflow, tracing }));
  };
  // Nothing listens there.
  const dead = "http://127.0.0.1:1";
  const models = { tiny: "big-1" };
  const right = written([{ url: `${provider}/v1`, models }], collector, "x-key=right");
  const ofRight = (await doctor(right)).filter(({ check }) => ["overflow", "tracing"].includes(check));
  expect(ofRight.map(({ target, status }) => [target, status])).toEqual([
    [`b0 at ${provider}`, "pass"],
    [collector, "pass"],
  ]);
  // A list costs nothing.
  expect(seen).toEqual(["GET /v1/models"]);
  const before = collected.right;
  expect(before).toBe(1);
  const spansCome = () => waitFor(() => collected.right > before, { what: "spans", deadlineMs: 20_000 });
  expect(await overflowing(right, spansCome)).toBe(200);

  const wrong = [
    { url: provider, models, key: "another-key" },
    { url: moved, models },
    { url: stranger.replace("127.0.0.1", "localhost"), models },
    { url: dead, models },
    { url: provider, models: { tiny: "big-2" } },
    { url: silent, models },
  ];
  const found = await doctor(written(wrong, collector, "x-key=wrong"));
  const of = (name: string) => found.filter(({ check }) => check === name);
  expect(of("overflow").map(({ status, setting }) => [status, setting])).toEqual([
    ["fail", "overflow[0].key"],
    ["fail", "overflow[1].url"],
    ["fail", "overflow[2].url"],
    ["fail", "overflow[3].url"],
    ["warn", "overflow[4].models"],
    ["fail", "overflow[5].url"],
  ]);
  expect(of("overflow")[2]?.fix).toContain("NODE_EXTRA_CA_CERTS");
  expect(of("tracing")).toMatchObject([
    { status: "fail", setting: "tracing.headers (--tracing-headers)", message: expect.stringContaining("answers 403") },
  ]);
  expect(JSON.stringify(found)).not.toMatch(/provider-key|another-key|x-key/);
  // What fails there gets no request answered here, and no span.
  const refused = written(wrong.slice(0, 4), collector, "x-key=wrong");
  const spansAreLost = (program: Program) => program.until(/trace collector unavailable/);
  expect(await overflowing(refused, spansAreLost)).toBe(503);
  const unheard = await doctor(written([], silent, "x-key=right"));
  expect(unheard.find(({ check }) => check === "tracing")).toMatchObject({
    status: "fail",
    setting: "tracing.endpoint (--tracing-endpoint)",
  });
});

test("names that caches keep for longer than the router waits are named, with the interval", async () => {
  const dns = await startDnsServer();
  onTestFinished(() => dns.stop());
  const port = Number(new URL(await sim()).port);
  dns.set("slow.test", { a: ["127.0.0.1", "127.0.0.2"], ttlSeconds: 300 });
  dns.set("fast.test", { a: ["127.0.0.1", "127.0.0.2"], ttlSeconds: 30 });
  dns.set("rare.test", { a: ["127.0.0.1", "127.0.0.2"], ttlSeconds: 300 });
  const names = ["slow", "fast", "rare"].map((name) => ({
    ...{ name: `${name}.test:${port}`, servers: [dns.address], interval: name === "rare" ? "5m" : "5s" },
  }));
  const file = temporaryFile("espalier.json", JSON.stringify({ ...anyPorts, discovery: { dns: names } }));
  const late = (await doctor(file)).filter(({ check, status }) => check === "dns" && status !== "pass");
  expect(late).toMatchObject([
    {
      target: "slow.test",
      status: "warn",
      setting: "discovery.dns[0].interval",
      message: expect.stringContaining("300 s"),
    },
  ]);
});
