import { existsSync } from "node:fs";
import { join } from "node:path";
import { plainHost } from "@espalier/core";
import { createHostLookup } from "@espalier/engines";
import type { CompiledConfig, FleetProbe } from "@espalier/server";
import { adapterCallsOf, findEventSources, globPattern } from "@espalier/server";
import { createTextTokenizer, fetchTokens, loadTokenizerFiles } from "@espalier/tokenizer";
import {
  attempt,
  type CheckRow,
  checkClock,
  type Finding,
  fail,
  pass,
  reasonOf,
  tryConnection,
  warn,
} from "./check.ts";
import { compareTokenizer, plainText, readJson, versionAt } from "./compare-tokenizer.ts";
import type { Examined } from "./examined.ts";

type Engine = FleetProbe["fleet"]["engines"][number];
type Feed = FleetProbe["feeds"][number];

/** Engines as a router of this configuration meets them: `FleetProbe` has run what `serve` runs. */
export const engineChecks: readonly CheckRow<Examined>[] = [
  { name: "discovery", run: checkDiscovery },
  { name: "dns", applies: ({ config }) => config.discovery.dns.length > 0, run: ({ config }) => checkNames(config) },
  { name: "engine", run: forEachEngine(checkEngine) },
  { name: "asleep", run: ({ fleet }) => upEngines(fleet).flatMap(checkAsleep) },
  { name: "metrics", run: (given) => upEngines(given.fleet).flatMap((engine) => checkMetrics(given, engine)) },
  { name: "ranks", run: checkRanks },
  { name: "clock", run: ({ fleet }) => fleet.fleet.engines.flatMap((engine) => checkEngineClock(fleet, engine)) },
  {
    name: "kv-events",
    applies: ({ config }) => config.kvEvents.mode !== "off",
    run: checkEvents,
  },
  { name: "versions", run: checkVersions },
  { name: "adapters", run: checkAdapters },
  { name: "tokenizer", applies: ({ config }) => config.tokenizers.length > 0, run: checkTokenizers },
];

const upEngines = ({ fleet }: FleetProbe): readonly Engine[] => fleet.engines.filter(({ state }) => state === "up");

/** Engines are asked one after the other in so many rows. */
const rows = 16;

function forEachEngine(
  check: (given: Examined, engine: Engine) => Promise<readonly Finding[]>,
): (given: Examined) => Promise<readonly Finding[]> {
  return (given) => eachOf(given.fleet.fleet.engines, (engine) => check(given, engine));
}

async function eachOf<Item>(
  items: readonly Item[],
  check: (item: Item) => Promise<readonly Finding[]>,
): Promise<readonly Finding[]> {
  const found: (readonly Finding[])[] = [];
  const waiting = items.entries();
  const work = async (): Promise<void> => {
    for (const [at, item] of waiting) found[at] = await attempt(() => check(item));
  };
  await Promise.all(Array.from({ length: Math.min(rows, items.length) }, work));
  return found.flat();
}

/** The path of an engine's setting: of its entry, or of the source that found it. */
function settingOf({ config }: Pick<Examined, "config">, { id }: Pick<Engine, "id">, key: string): string {
  const at = config.engines.findIndex((entry) => entry.id === id);
  if (at >= 0) return `engines[${at}].${key}`;
  return config.enginesFile === undefined ? "discovery" : "engines-file";
}

/** Settings of sources, by the first word of their names. */
const sourceSettings: Readonly<Record<string, string>> = {
  dns: "discovery.dns",
  service: "discovery.services",
  pods: "discovery.pods",
  inference: "discovery.inference-pools",
};

function checkDiscovery({ fleet, config }: Examined): readonly Finding[] {
  const failed =
    fleet.failure === undefined
      ? []
      : [
          fail("", `a router does not start: ${fleet.failure}`, {
            setting: config.enginesFile === undefined ? "discovery" : "engines-file",
            fix: "fix the file, or its path",
          }),
        ];
  const first = new Map<string, unknown>();
  for (const { fields } of fleet.lines) {
    const { source, error } = fields;
    if (typeof source === "string" && !first.has(source)) first.set(source, error);
  }
  const ofSources = [...first].map(([source, error]) => {
    const [kind = ""] = source.split(" ");
    const setting = sourceSettings[kind] ?? (config.enginesFile === undefined ? "engines" : "engines-file");
    const fix =
      kind === "dns"
        ? "fix the name or create its record (in Kubernetes, a headless Service)"
        : "fix the entry, and the rights and address of what it names";
    return fail(source, reasonOf(error).replace(`${source}: `, ""), { setting, fix });
  });
  return [...failed, ...ofSources];
}

/** Ranks that an engine's metrics or events have, and the configuration has not: a router logs them. */
function checkRanks(given: Examined): readonly Finding[] {
  return given.fleet.lines.flatMap(({ message, fields: { engine: id, shown, published, count, ranks } }) => {
    const found = shown ?? published;
    const engine = given.fleet.fleet.engines.find((one) => one.id === id);
    if (!engine || !Array.isArray(found)) return [];
    const configured = Array.isArray(ranks) ? ranks.length : count;
    const says = `${message}: ${found.join(", ")}; configured: ${configured}`;
    return [
      warn(engine.url, says, {
        setting: settingOf(given, engine, "ranks"),
        fix: "set `ranks` and `first-rank` to the engine's own",
      }),
    ];
  });
}

/** Names of engines that have one address only: that of a load balancer hides the engines behind it. */
async function checkNames({ discovery }: CompiledConfig): Promise<readonly Finding[]> {
  return eachOf(discovery.dns, async ({ name, port, servers }) => {
    if (port === undefined) return [];
    const addresses = await createHostLookup(servers)(name).catch(() => []);
    if (addresses.length > 1) return [pass(name, `${addresses.length} addresses`)];
    if (addresses.length === 0) return [];
    const fix = "where it has several engines, use a headless Service or one record for each of them";
    return [warn(name, `one address only: ${addresses[0]}`, { setting: "discovery.dns", fix })];
  });
}

/** Whether it is healthy, and which models it serves. */
async function checkEngine(given: Examined, engine: Engine): Promise<readonly Finding[]> {
  const { url, models } = engine;
  const unhealthy = checkHealth(given, engine);
  if (unhealthy) return [unhealthy];
  const wanted = given.config.engines.find(({ id }) => id === engine.id)?.models ?? [];
  const listed = wanted.length > 0 ? await modelsAt(given.fleet, url) : models?.map(({ id }) => id);
  if (wanted.length === 0 && !listed?.length) return [lackOfModels(given, engine)];
  const version = await versionOf(given.fleet, url);
  const serves = `serves ${(listed ?? wanted).join(", ")}${version === undefined ? "" : `, version ${version}`}`;
  const missing = listed ? wanted.filter((model) => !listed.includes(model)) : [];
  if (missing.length === 0) return [pass(url, serves)];
  const fix = "name the models that it serves, or change its --served-model-name";
  return [fail(url, `${serves}, not ${missing.join(", ")}`, { setting: settingOf(given, engine, "models"), fix })];
}

function checkHealth(given: Examined, engine: Engine): Finding | undefined {
  const { url, state, stateReason } = engine;
  if (state === "up") return undefined;
  const { health } = given.config;
  const answer = given.fleet.answerAt(url + health.path);
  if (!answer)
    return fail(url, `${state}: ${stateReason}`, { setting: settingOf(given, engine, "url"), fix: "run doctor again" });
  if (answer.status === 0) {
    const late = `${health.path} has no answer within ${health.timeoutMs} ms`;
    return unreachable(given, engine, answer.error, { late, setting: "health.timeout" });
  }
  if (answer.status === 401 || answer.status === 403)
    return lackOfKey(given.config, engine, `${health.path} requires`, answer.status);
  const says = `${health.path} answers ${answer.status}`;
  if (url.endsWith("/v1")) {
    return fail(url, says, {
      setting: settingOf(given, engine, "url"),
      fix: "remove /v1 from its URL; the router adds it",
    });
  }
  const fix =
    answer.status === 503
      ? "wait until it has loaded its model, and read its log"
      : "check that the URL is an engine's HTTP API, and set the path of its health check";
  return fail(url, says, { setting: answer.status === 503 ? settingOf(given, engine, "url") : "health.path", fix });
}

const tlsErrors = /certificate|self.signed|issuer|altname|TLS|SSL/i;

/** @param isLate the message for an answer that does not come in time, and the setting of that time */
function unreachable(
  given: Examined,
  engine: Engine,
  error: unknown,
  isLate: { readonly late: string; readonly setting?: string },
): Finding {
  const reason = reasonOf(error);
  const { url } = engine;
  if (tlsErrors.test(reason)) {
    const fix = "name the authority that signed the engine's certificate, and a host that the certificate has";
    return fail(url, reason, { setting: "engine-tls.ca-file", fix });
  }
  if ((error as { readonly code?: unknown }).code === "upstream_timeout") {
    const { late, setting } = isLate;
    return fail(url, late, { setting, fix: `open the network path${setting ? ", or raise the timeout" : ""}` });
  }
  const fix = "start the engine, fix its URL, or open the network path";
  return fail(url, reason, { setting: settingOf(given, engine, "url"), fix });
}

function lackOfKey({ pools }: CompiledConfig, { url }: Engine, says: string, status: number): Finding {
  const keys = new Set(pools.flatMap(({ engineApiKey }) => (engineApiKey ? [engineApiKey.reveal()] : [])));
  const fix =
    keys.size > 1
      ? "give all engines one key: with several `engine-api-key`, health checks and metrics carry none"
      : "set `engine-api-key` of its pool to the engine's key";
  return fail(url, `${says} an API key (${status})`, { setting: "pools[].engine-api-key", fix });
}

function lackOfModels(given: Examined, engine: Engine): Finding {
  const { url } = engine;
  const answer = given.fleet.answerAt(`${url}/v1/models`);
  if (answer?.status === 401 || answer?.status === 403)
    return lackOfKey(given.config, engine, "requires", answer.status);
  if (answer?.status === 0) {
    return unreachable(given, engine, answer.error, { late: "/v1/models has no answer in time" });
  }
  const fix = url.endsWith("/v1")
    ? "remove /v1 from its URL; the router adds it"
    : "check that the URL is an engine's HTTP API, or name its models";
  const setting = settingOf(given, engine, url.endsWith("/v1") ? "url" : "models");
  return fail(url, `/v1/models answers ${answer?.status ?? 0} without a model`, { setting, fix });
}

/** @returns undefined for an engine without a list, whose models the configuration names */
async function modelsAt({ http }: FleetProbe, url: string): Promise<readonly string[] | undefined> {
  // The answer may have any shape.
  const { data } = ((await readJson(http, `${url}/v1/models`).catch(() => undefined)) ?? {}) as { data?: unknown };
  if (!Array.isArray(data)) return undefined;
  return data.flatMap((one: { id?: unknown } | null) => (typeof one?.id === "string" ? [one.id] : []));
}

/** SGLang reports its release in its server information, vLLM at a path of its own. */
async function versionOf({ http }: FleetProbe, url: string): Promise<string | undefined> {
  const ask = (path: string) => versionAt(http, url + path).catch(() => undefined);
  return (await ask("/version")) ?? (await ask("/server_info"));
}

function checkAsleep({ url, targets }: Engine): readonly Finding[] {
  const asleep = targets.filter(({ exclusion }) => exclusion === "asleep");
  if (asleep.length === 0) return [];
  const what = targets.length === 1 ? "asleep" : `ranks ${asleep.map(({ rank }) => rank).join(", ")} are asleep`;
  return [warn(url, `${what}: gets no requests`, { fix: "wake it: POST /wake_up at the engine" })];
}

/** What routers use a number for. */
const uses = {
  running: "running requests",
  waiting: "queued requests",
  kvUse: "use of KV cache memory",
  blockSize: "tokens per KV block",
  blockCount: "size of the KV cache",
} as const;

/** Policies that choose without a number of the engines. */
const blindPolicies: ReadonlySet<string> = new Set(["random", "round_robin", "consistent_hashing"]);

function checkMetrics({ config, fleet }: Examined, engine: Engine): readonly Finding[] {
  const { url, targets } = engine;
  const { path, timeoutMs } = config.scrape;
  const answer = fleet.answerAt(url + path);
  if (engine.isUnread) {
    const { status = 0, error } = answer ?? {};
    if (status === 404 || status === 200) {
      const fix = "start the engine with its metrics on, or set the path of its page";
      const message = `${path} answers ${status} without known metrics: its load is estimated from own requests`;
      return [warn(url, message, { setting: "scrape.path", fix })];
    }
    const isLate = (error as { readonly code?: unknown } | undefined)?.code === "upstream_timeout";
    const message =
      status > 0
        ? `${path} answers ${status}`
        : isLate
          ? `${path} has no answer within ${timeoutMs} ms`
          : `${path}: ${reasonOf(error)}`;
    if (status === 401 || status === 403) return [lackOfKey(config, engine, `${path} requires`, status)];
    const setting = isLate ? "scrape.timeout" : "scrape.path";
    return [
      fail(url, message, {
        setting,
        fix: isLate ? "raise the timeout, or find out why its page is slow" : "set the path of its metrics page",
      }),
    ];
  }
  const names = Object.keys(uses) as (keyof typeof uses)[];
  const missing = names.filter((name) => targets.some(({ signals }) => Number.isNaN(signals[name])));
  const [{ signals } = { signals: undefined }] = targets;
  const read = `read as ${signals?.dialect}'s`;
  const policies = [config.policy, ...config.pools.map((pool) => pool.policy)].map(({ name }) => name);
  const needing = policies.filter((name) => !blindPolicies.has(name));
  if (missing.length === 0 || (needing.length === 0 && config.admission.mode === "off")) return [pass(url, read)];
  const users = [...new Set(needing), ...(config.admission.mode === "off" ? [] : ["admission"])].join(", ");
  const message = `${read}, without ${missing.map((name) => uses[name]).join(", ")}: ${users} works by estimates`;
  return [warn(url, message, { setting: "policy.name", fix: "upgrade the engine, or switch these metrics on" })];
}

function checkEngineClock({ answerAt }: FleetProbe, { url }: Engine): readonly Finding[] {
  const at = ["/v1/models", "/kv_event_sources"].map((path) => answerAt(url + path)).find((answer) => answer?.date);
  return checkClock(url, "engine", at);
}

/** Events of engines and KV pools: those that the probe reads, and what engines say of them. */
async function checkEvents(given: Examined): Promise<readonly Finding[]> {
  const { config, fleet } = given;
  const entries = await eachOf(upEngines(fleet), (engine) => checkEventEntry(given, engine));
  const byTarget = new Map(
    upEngines(fleet).flatMap((engine) => engine.targets.map(({ key }) => [key, engine] as const)),
  );
  const isOurs = ({ target }: Feed): boolean => byTarget.has(target) || target.startsWith("pool ");
  const feeds = await eachOf(fleet.feeds.filter(isOurs), (feed) => checkFeed(given, feed, byTarget.get(feed.target)));
  const sizes = upEngines(fleet).flatMap((engine) => checkBlockSize(config, engine));
  return [...entries, ...feeds, ...sizes];
}

/** What an engine says of its events, and what the configuration says of them. */
async function checkEventEntry(given: Examined, engine: Engine): Promise<readonly Finding[]> {
  const { url, kvEvents, targets, firstRank } = engine;
  const sources = await findEventSources(given.fleet.http, url);
  if (!sources || given.config.kvEvents.listen !== undefined) return [];
  if (kvEvents) {
    const topics = [...new Set(sources.map(({ topic }) => topic))];
    if (topics.length === 0 || topics.some((topic) => topic.startsWith(kvEvents.topic))) return [];
    const message = `publishes KV events on topic ${topics.join(", ")}; configured: ${kvEvents.topic}`;
    const fix = "use the topic of the engine's --kv-events-config";
    return [fail(url, message, { setting: settingOf(given, engine, "kv-events.topic"), fix })];
  }
  if (sources.length === 0) return [pass(url, "none published; cache contents are predicted")];
  const published = sources.map((source) => source.rank);
  const entry = given.config.engines.find(({ id }) => id === engine.id);
  const isOther = entry?.firstRank !== undefined && published[0] !== entry.firstRank;
  if (published.length === targets.length && !isOther) return [];
  const configured = `configured: ${targets.length} from ${entry?.firstRank ?? (targets.length === 1 ? published[0] : firstRank)}`;
  const message = `publishes KV events of ranks ${published.join(", ")}; ${configured}`;
  const fix = "set `ranks` and `first-rank` to those of the engine";
  return [fail(url, message, { setting: settingOf(given, engine, "ranks"), fix })];
}

async function checkFeed(given: Examined, feed: Feed, engine: Engine | undefined): Promise<readonly Finding[]> {
  const { target, state, reason, endpoint, replayEndpoint, unusable, lastSequence } = feed;
  const of = engine ? (key: string) => settingOf(given, engine, `kv-events.${key}`) : () => "kv-pools";
  if (feed.mode === "bind") return [pass(target, `connects to this machine, at ${endpoint}`)];
  if (unusable) return [unusableFeed(feed, engine, of("endpoint"))];
  const at = replayEndpoint ? "connected, with replay" : "connected";
  const open = "publish at an address that routers can reach (tcp://*:PORT), and open the port";
  if (state === "stale" && (reason === "connecting" || reason === "socket-lost")) {
    const why = (await refusalAt(endpoint)) ?? "accepts connections, but speaks no ZeroMQ publisher's protocol";
    return [fail(target, `${endpoint}: ${why}`, { setting: of("endpoint"), fix: open })];
  }
  const replay = replayEndpoint ? await refusalAt(replayEndpoint) : undefined;
  if (replay !== undefined || feed.lastReplay === "failed") {
    const why = replay ?? "no replay within 2 s";
    return [
      fail(target, `${replayEndpoint}: ${why}: missed events stay missing`, { setting: of("replay"), fix: open }),
    ];
  }
  if (state === "replaying") return [pass(target, `${at}: replay in progress`)];
  if (lastSequence === null || lastSequence === undefined) return [silentFeed(given, feed, engine, at, of("topic"))];
  const lack = state === "partial" ? `; incomplete: ${reason}` : "";
  return [pass(target, `${at}: events come${lack}`)];
}

function unusableFeed({ target, unusable }: Feed, engine: Engine | undefined, setting: string): Finding {
  const message = `KV events unusable: ${unusable}`;
  if (unusable?.startsWith("block-size")) {
    const size = engine?.targets[0]?.signals.blockSize;
    const fix = `set it to the engine's block size${size ? `, ${size}` : ""}, or to a multiple or a fraction of it`;
    return fail(target, message, { setting: "prefix.block-size", fix });
  }
  return fail(target, message, { setting, fix: "raise `ulimit -n`, or fix the endpoint" });
}

/** Nothing came: the engine may be idle, the topic another one, or the rank's publisher off. */
function silentFeed(
  { fleet }: Examined,
  { target }: Feed,
  engine: Engine | undefined,
  at: string,
  setting: string,
): Finding {
  const keys = engine?.targets.map(({ key }) => key) ?? [];
  const others = fleet.feeds.filter((feed) => keys.includes(feed.target) && (feed.lastSequence ?? -1) >= 0);
  if (others.length > 0) {
    const fix = "check this rank's --kv-events-config and its port";
    return warn(target, `${at}: silent, while other ranks of the engine publish`, { setting, fix });
  }
  const served = Math.max(0, ...(engine?.targets.map(({ signals }) => signals.promptTokensTotal || 0) ?? []));
  if (served === 0) return pass(target, `${at}: idle`);
  const fix = "check the topic, and prefix caching and --kv-events-config at the engine";
  return warn(target, `${at}: nothing came, though the engine has read ${served} tokens`, {
    setting,
    fix,
  });
}

/** @returns why nothing can connect, or undefined */
function refusalAt(endpoint: string | null | undefined): Promise<string | undefined> {
  const { hostname, port } = new URL((endpoint ?? "").replace(/^tcp:/, "http:"));
  return tryConnection(plainHost(hostname), Number(port || 80));
}

function checkBlockSize({ prefix }: CompiledConfig, { url, targets }: Engine): readonly Finding[] {
  const size = targets[0]?.signals.blockSize ?? Number.NaN;
  const ours = prefix.blockSize;
  if (!(size > 0) || size % ours === 0 || ours % size === 0) return [];
  const message = `has ${size} tokens per block by its metrics, neither a multiple nor a fraction of ${ours}`;
  return [warn(url, message, { setting: "prefix.block-size", fix: `set it to ${size}, on all routers` })];
}

/** Engines of one model with different versions render and hash prompts by different rules. */
async function checkVersions({ fleet }: Examined): Promise<readonly Finding[]> {
  const engines = upEngines(fleet);
  const known = new Map<string, string>();
  await eachOf(engines, async ({ url }) => {
    const version = await versionOf(fleet, url);
    if (version !== undefined) known.set(url, version);
    return [];
  });
  return fleet.fleet.models().flatMap(({ id }) => {
    const serving = engines.filter(({ url, models }) => known.has(url) && models?.some((model) => model.id === id));
    const versions = [...new Set(serving.map(({ url }) => known.get(url)))];
    if (serving.length < 2) return [];
    if (versions.length === 1) return [pass(id, `all ${serving.length} engines run ${versions[0]}`)];
    return [
      fail(id, `engines run ${versions.join(", ")}`, {
        setting: "engines",
        fix: "run one version for all engines of a model",
      }),
    ];
  });
}

/** Adapters that routers load, and those that engines have by themselves. */
async function checkAdapters({ config, fleet }: Examined): Promise<readonly Finding[]> {
  const engines = upEngines(fleet);
  const managed = Object.entries(config.models.adapters);
  const isListed = ({ models = [] }: Engine, name: string) => models.some(({ id }) => id === name);
  const basesOf = (engine: Engine) => (engine.models ?? []).filter(({ parent }) => parent === undefined);
  const ofConfig = managed.flatMap(([name, { model }]): readonly Finding[] => {
    const setting = `models.adapters.${name}`;
    const twin = engines.find((engine) => basesOf(engine).some(({ id }) => id === name));
    if (twin) {
      return [fail(name, `has the name of a model of ${twin.url}`, { setting, fix: "rename the adapter" })];
    }
    if (engines.length === 0 || engines.some((engine) => isListed(engine, model))) return [];
    const fix = "name a model that an engine serves";
    return [fail(name, `no engine serves its model ${model}`, { setting: `${setting}.model`, fix })];
  });
  const models = new Set(managed.map(([, { model }]) => model));
  const loading = await eachOf(
    engines.filter((engine) => [...models].some((model) => isListed(engine, model))),
    async (engine) => {
      const { loadPath } = adapterCallsOf(engine);
      const { status } = await fleet.http({ url: engine.url + loadPath, timeoutMs: 2_000, maxBytes: 65_536 });
      if (status !== 404) return [pass(engine.url, "loads adapters")];
      const fix = "start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=true, SGLang with --enable-lora";
      return [fail(engine.url, `cannot load adapters: no ${loadPath}`, { setting: "models.adapters", fix })];
    },
  );
  const own = new Map(
    engines.flatMap(({ models: listed = [] }) =>
      listed.flatMap(({ id, parent }) => (parent === undefined ? [] : [[id, parent] as const])),
    ),
  );
  const uneven = [...own].flatMap(([name, parent]) => {
    const serving = engines.filter((engine) => isListed(engine, parent));
    const lacking = serving.filter((engine) => !isListed(engine, name));
    if (lacking.length === 0 || Object.hasOwn(config.models.adapters, name)) return [];
    const having = serving.length - lacking.length;
    const message = `loaded at ${having} of ${serving.length} engines of ${parent}: missing at ${lacking.map(({ url }) => url).join(", ")}`;
    return [
      warn(name, message, {
        setting: `models.adapters.${name}`,
        fix: "load it at all of them, or let the router load it",
      }),
    ];
  });
  return [...ofConfig, ...loading, ...uneven];
}

/** Whether tokenizers load, and produce the tokens of the engines. */
async function checkTokenizers({ config, fleet }: Examined): Promise<readonly Finding[]> {
  const broken = new Map<number, Finding>();
  for (const [at, { mode, path }] of config.tokenizers.entries()) {
    // Of an absent folder the check of the configuration tells.
    if (mode !== "local" || path === undefined || !existsSync(join(path, "tokenizer.json"))) continue;
    await loadTokenizerFiles(path)
      .then(createTextTokenizer)
      .catch((error: unknown) => {
        const fix = "use the model's files, complete: prompts of its models would be matched by bytes";
        broken.set(at, fail(path, reasonOf(error), { setting: `tokenizers[${at}].path`, fix }));
      });
  }
  const engines = upEngines(fleet);
  const bases = fleet.fleet.models().filter(({ parent }) => parent === undefined);
  const compared = await eachOf(bases, async ({ id: model }): Promise<readonly Finding[]> => {
    const at = config.tokenizers.findIndex(({ models }) => models.some((glob) => globPattern(glob).test(model)));
    const { path, mode } = config.tokenizers[at] ?? {};
    const serving = engines.filter(({ models }) => models?.some(({ id }) => id === model));
    const setting = `tokenizers[${at}].path`;
    if (mode === "engine")
      return eachOf(serving.slice(0, 1), ({ url }) => checkTokenizeApi(fleet, model, url, setting));
    if (mode !== "local" || path === undefined || broken.has(at) || !existsSync(join(path, "tokenizer.json")))
      return [];
    return eachOf(serving, ({ url }) =>
      compare({ fleet, model, url, path, setting, isFirst: url === serving[0]?.url }),
    );
  });
  return [...broken.values(), ...compared];
}

async function checkTokenizeApi(
  { http }: FleetProbe,
  model: string,
  url: string,
  setting: string,
): Promise<readonly Finding[]> {
  const target = `${model} at ${url}`;
  try {
    const body = JSON.stringify({ model, prompt: plainText });
    const { length } = await fetchTokens({ http, url, body, timeoutMs: 10_000 });
    return [pass(target, `tokenizes prompts: ${length} tokens`)];
  } catch (error) {
    const fix = "set the folder of the model's files: without /tokenize, prompts are matched by bytes";
    return [fail(target, reasonOf(error), { setting: setting.replace(".path", ".mode"), fix })];
  }
}

interface Comparison {
  readonly fleet: FleetProbe;
  readonly model: string;
  readonly url: string;
  readonly path: string;
  readonly setting: string;
  /** Of the other engines of the model, a sample of prompts is enough. */
  readonly isFirst: boolean;
}

async function compare({ fleet, model, url, path, setting, isFirst }: Comparison): Promise<readonly Finding[]> {
  const target = `${model} at ${url}`;
  const fix = `\`espalier verify-tokenizer --model ${path} --engine ${url}\` shows the difference; use the engine's files`;
  try {
    const files = await loadTokenizerFiles(path);
    const { rows: compared, hasTemplate } = await compareTokenizer({
      http: fleet.http,
      url,
      model,
      files,
      isSample: !isFirst,
    });
    const same = compared.filter(({ ok }) => ok).length;
    const unasked = compared.filter(({ error }) => error?.includes("/tokenize answered 404"));
    if (unasked.length === compared.length) {
      const advice = { setting, fix: "compare the files with the engine's by hand" };
      return [warn(target, "loaded, but not compared: the engine has no /tokenize", advice)];
    }
    if (same < compared.length) {
      return [fail(target, `${same} of ${compared.length} prompts match the engine's tokens`, { setting, fix })];
    }
    if (hasTemplate) return [pass(target, `${same} prompts match the engine's tokens`)];
    const advice = { setting, fix: "add the model's chat_template.jinja or tokenizer_config.json" };
    return [warn(target, `${same} prompts match; without a chat template, chats are matched by bytes`, advice)];
  } catch (error) {
    return [fail(target, reasonOf(error), { setting, fix })];
  }
}
