import { existsSync } from "node:fs";
import { join } from "node:path";
import { type EngineSpec, type HttpClient, type HttpResponse, plainHost, systemClock } from "@espalier/core";
import type { CompiledConfig } from "@espalier/server";
import { findEventSources, sourceBySpec } from "@espalier/server";
import { loadTokenizerFiles } from "@espalier/tokenizer";
import { type Check, checkClock, cross, reasonOf, tick, tryConnection } from "./check.ts";
import { compareTokenizer, versionAt } from "./compare-tokenizer.ts";

/** An engine to check, and what the configuration says of it. */
export type CheckedEngine = Pick<EngineSpec, "url" | "models" | "kvEvents" | "ranks" | "firstRank">;

interface Found {
  readonly url: string;
  readonly checks: readonly Check[];
  readonly models: readonly string[];
  readonly version: string | undefined;
}

/** Engines are asked one after the other in so many rows. */
const rows = 16;
const timeoutMs = 5_000;
/** Largest model list of an engine. */
const maxBytes = 1_048_576;

/** Engines, their clocks, event sockets, versions, and the tokenizers that are compared with theirs. */
export async function checkEngines(
  config: CompiledConfig,
  engines: readonly CheckedEngine[],
  http: HttpClient,
): Promise<readonly Check[]> {
  const found: Found[] = [];
  const waiting = engines.values();
  const work = async (): Promise<void> => {
    for (const engine of waiting) found.push(await checkEngine(config, engine, http));
  };
  await Promise.all(Array.from({ length: Math.min(rows, engines.length) }, work));
  const inOrder = engines.flatMap(({ url }) => found.filter((one) => one.url === url));
  return [
    ...inOrder.flatMap(({ checks }) => checks),
    ...checkVersions(inOrder),
    ...(await checkPools(config)),
    ...(await checkTokenizers(config, inOrder, http)),
  ];
}

async function checkEngine(config: CompiledConfig, engine: CheckedEngine, http: HttpClient): Promise<Found> {
  const { url, models: wanted } = engine;
  const askedWallMs = systemClock.wallMs();
  const asked = await askModels(config, engine, http);
  const failed = (check: Check): Found => ({ url, checks: [check], models: [], version: undefined });
  if ("failure" in asked) {
    return failed(cross("engine", url, asked.failure, "start the engine, fix its URL, or open the network path"));
  }
  const { status, headers, body } = asked;
  if (status === 401 || status === 403) {
    return failed(cross("engine", url, `requires an API key (${status})`, "set `engine-api-key` of its pool"));
  }
  const models = status === 200 ? modelIds(body) : [];
  if (models.length === 0) {
    const says = `/v1/models answers ${status} without a model`;
    const fix = url.endsWith("/v1")
      ? "remove /v1 from its URL; the router adds it"
      : "check that the URL is an engine's HTTP API";
    return failed(cross("engine", url, says, fix));
  }
  const version = (await versionOf(http, url)) ?? undefined;
  const missing = wanted.filter((model) => !models.includes(model));
  const serves = `serves ${models.join(", ")}${version === undefined ? "" : `, version ${version}`}`;
  const served =
    missing.length === 0
      ? tick("engine", url, serves)
      : cross(
          "engine",
          url,
          `${serves}, not ${missing.join(", ")}`,
          "fix `models` of the engine, or its --served-model-name",
        );
  const clock = checkClock(url, headers.date, askedWallMs, systemClock.wallMs());
  return { url, models, version, checks: [served, ...clock, ...(await checkEvents(config, engine, http))] };
}

async function askModels(
  { pools }: CompiledConfig,
  { url, models }: CheckedEngine,
  http: HttpClient,
): Promise<HttpResponse | { readonly failure: string }> {
  const mine = pools.filter((pool) => models.length === 0 || models.some((model) => isNamed(pool.models, model)));
  const key = mine.find(({ engineApiKey }) => engineApiKey)?.engineApiKey?.reveal();
  const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
  try {
    return await http({ url: `${url}/v1/models`, headers, timeoutMs, maxBytes });
  } catch (error) {
    return { failure: reasonOf(error) };
  }
}

/** The answer may have any shape. */
function modelIds(body: string): readonly string[] {
  try {
    const { data } = JSON.parse(body) as { data?: readonly ({ id?: unknown } | null)[] };
    return data?.flatMap((one) => (typeof one?.id === "string" ? [one.id] : [])) ?? [];
  } catch {
    return [];
  }
}

/** SGLang reports its release in its server information, vLLM at a path of its own. */
async function versionOf(http: HttpClient, url: string): Promise<string | undefined> {
  const ask = (path: string) => versionAt(http, url + path).catch(() => undefined);
  return (await ask("/version")) ?? (await ask("/server_info"));
}

async function checkEvents(
  { kvEvents }: CompiledConfig,
  { url, kvEvents: spec, ranks = 1, firstRank }: CheckedEngine,
  http: HttpClient,
): Promise<readonly Check[]> {
  if (kvEvents.mode === "off") return [];
  const given = spec && sourceBySpec(spec, 0);
  const sources = given ? [given] : await findEventSources(http, url);
  const dialled = sources?.filter(({ mode }) => mode === "connect") ?? [];
  if (sources?.length === 0) return [tick("kv events", url, "none published; cache contents are predicted")];
  const published = (given ? [] : (sources ?? [])).map((source) => ("rank" in source ? source.rank : 0));
  const isOther = firstRank !== undefined && published[0] !== firstRank;
  if (published.length > 0 && (published.length !== ranks || isOther)) {
    const entry = `configured: ${ranks} from ${firstRank ?? published[0]}`;
    const says = `publishes KV events of ranks ${published.join(", ")}; ${entry}`;
    return [cross("kv events", url, says, "fix `ranks` and `first-rank` of the engine")];
  }
  const endpoints = dialled.flatMap(({ endpoint, replayEndpoint }) => [
    endpoint,
    ...(replayEndpoint ? [replayEndpoint] : []),
  ]);
  return Promise.all([...new Set(endpoints)].map((endpoint) => checkSocket("kv events", endpoint)));
}

async function checkSocket(check: string, endpoint: string): Promise<Check> {
  const { hostname, port } = new URL(endpoint.replace(/^tcp:/, "http:"));
  const failure = await tryConnection(plainHost(hostname), Number(port || 80));
  if (failure === undefined) return tick(check, endpoint, "accepts connections");
  const fix = "publish at an address that routers can reach (tcp://*:PORT), and open the port";
  return cross(check, endpoint, failure, fix);
}

const checkPools = ({ kvPools }: CompiledConfig): Promise<readonly Check[]> =>
  Promise.all(kvPools.map(({ endpoint }) => checkSocket("kv pool", endpoint)));

/** Engines of one model with different versions render and hash prompts by different rules. */
function checkVersions(found: readonly Found[]): readonly Check[] {
  const models = [...new Set(found.flatMap(({ models: served }) => served))];
  return models.flatMap((model) => {
    const known = found.filter(({ models: served, version }) => served.includes(model) && version !== undefined);
    const versions = [...new Set(known.map(({ version }) => version))];
    if (known.length < 2) return [];
    if (versions.length === 1) return [tick("versions", model, `all ${known.length} engines run ${versions[0]}`)];
    return [
      cross("versions", model, `engines run ${versions.join(", ")}`, "run one version for all engines of a model"),
    ];
  });
}

async function checkTokenizers(
  { tokenizers }: CompiledConfig,
  found: readonly Found[],
  http: HttpClient,
): Promise<readonly Check[]> {
  const models = [...new Set(found.flatMap(({ models: served }) => served))];
  const checks = models.map(async (model): Promise<readonly Check[]> => {
    const { path, mode } = tokenizers.find((entry) => isNamed(entry.models, model)) ?? {};
    const url = found.find(({ models: served }) => served.includes(model))?.url;
    if (mode !== "local" || path === undefined || url === undefined) return [];
    // Configurations name folders of the machine that they are for; check-config tells of those that are absent.
    if (!existsSync(join(path, "tokenizer.json"))) return [];
    const of = `${model} at ${url}`;
    const fix = `\`espalier verify-tokenizer --model ${path} --engine ${url}\` shows the difference; use the engine's files`;
    try {
      const { rows: compared } = await compareTokenizer({
        ...{ http, url, model },
        files: await loadTokenizerFiles(path),
      });
      const same = compared.filter(({ ok }) => ok).length;
      if (same === compared.length) return [tick("tokenizer", of, `${same} prompts match the engine's tokens`)];
      return [cross("tokenizer", of, `${same} of ${compared.length} prompts match the engine's tokens`, fix)];
    } catch (error) {
      return [cross("tokenizer", of, reasonOf(error), fix)];
    }
  });
  return (await Promise.all(checks)).flat();
}

/** `*` in a pattern matches any text. */
function isNamed(patterns: readonly string[], model: string): boolean {
  return patterns.some((pattern) => {
    const parts = pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
    return new RegExp(`^${parts.join(".*")}$`, "s").test(model);
  });
}
