import type { CompiledConfig, FleetProbe } from "@espalier/server";
import { type Finding, fail, pass, reasonOf, tlsErrors, warn } from "./check.ts";
import { readJson, versionAt } from "./compare-tokenizer.ts";
import type { Examined } from "./examined.ts";
import { type Engine, settingOf } from "./examined-engines.ts";

/** Whether it is healthy, and which models it serves. */
export async function checkEngine(given: Examined, engine: Engine): Promise<readonly Finding[]> {
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
    return unreachable(given, engine, answer.error, { late, setting: "health.timeout", instead: "raise the timeout" });
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

/** @param isLate the message for an answer that does not come in time, the setting that decides it, and what may be done there */
function unreachable(
  given: Examined,
  engine: Engine,
  error: unknown,
  isLate: { readonly late: string; readonly setting: string; readonly instead: string },
): Finding {
  const reason = reasonOf(error);
  const { url } = engine;
  if (tlsErrors.test(reason)) {
    const fix = "name the authority that signed the engine's certificate, and a host that the certificate has";
    return fail(url, reason, { setting: "engine-tls.ca-file", fix });
  }
  if ((error as { readonly code?: unknown }).code === "upstream_timeout") {
    const { late, setting, instead } = isLate;
    return fail(url, late, { setting, fix: `open the network path, or ${instead}` });
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
    const late = "/v1/models has no answer in time";
    const setting = settingOf(given, engine, "models");
    return unreachable(given, engine, answer.error, { late, setting, instead: "name its models" });
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
export async function versionOf({ http }: FleetProbe, url: string): Promise<string | undefined> {
  const ask = (path: string) => versionAt(http, url + path).catch(() => undefined);
  return (await ask("/version")) ?? (await ask("/server_info"));
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

export function checkMetrics({ config, fleet }: Examined, engine: Engine): readonly Finding[] {
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
