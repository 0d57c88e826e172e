import { createHostLookup, lookUpTtl } from "@espalier/engines";
import type { CompiledConfig, FleetProbe } from "@espalier/server";
import { checkAdapters } from "./adapter-checks.ts";
import { type CheckRow, checkClock, type Finding, fail, pass, reasonOf, warn } from "./check.ts";
import { checkEngine, checkMetrics, versionOf } from "./engine-answers.ts";
import { checkEvents } from "./event-checks.ts";
import type { Examined } from "./examined.ts";
import { type Engine, eachOf, settingOf, upEngines } from "./examined-engines.ts";
import { checkTokenizers } from "./tokenizer-checks.ts";

/** Engines as a router of this configuration meets them: `FleetProbe` has run what `serve` runs. */
export const engineChecks: readonly CheckRow<Examined>[] = [
  { name: "discovery", run: checkDiscovery },
  { name: "dns", applies: ({ config }) => config.discovery.dns.length > 0, run: ({ config }) => checkNames(config) },
  { name: "engine", run: (given) => eachOf(given.fleet.fleet.engines, (engine) => checkEngine(given, engine)) },
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

/** Caches of Kubernetes' DNS keep records as long. */
const usualTtlSeconds = 30;

/**
 * Names of engines that have one address only: that of a load balancer hides the engines behind it. And those that caches keep
 * for longer than the router waits between two queries.
 */
async function checkNames({ discovery }: CompiledConfig): Promise<readonly Finding[]> {
  return eachOf(discovery.dns, async ({ name, port, servers, intervalMs }) => {
    if (port === undefined) return [];
    const [addresses, ttl = 0] = await Promise.all([
      createHostLookup(servers)(name).catch(() => []),
      lookUpTtl(servers, name),
    ]);
    const late = `may be cached for ${ttl} s (TTL), queried every ${intervalMs / 1_000} s: changes are found late`;
    const setting = `discovery.dns[${discovery.dns.findIndex((entry) => entry.name === name)}].interval`;
    const isLate = ttl > Math.max(usualTtlSeconds, intervalMs / 1_000);
    const cached = isLate ? [warn(name, late, { setting, fix: "lower the TTL of its records" })] : [];
    if (addresses.length > 1) return [pass(name, `${addresses.length} addresses`), ...cached];
    if (addresses.length === 0) return cached;
    const fix = "where it has several engines, use a headless Service or one record for each of them";
    return [warn(name, `one address only: ${addresses[0]}`, { setting: "discovery.dns", fix }), ...cached];
  });
}

function checkAsleep({ url, targets }: Engine): readonly Finding[] {
  const asleep = targets.filter(({ exclusion }) => exclusion === "asleep");
  if (asleep.length === 0) return [];
  const what = targets.length === 1 ? "asleep" : `ranks ${asleep.map(({ rank }) => rank).join(", ")} are asleep`;
  return [warn(url, `${what}: gets no requests`, { fix: "wake it: POST /wake_up at the engine" })];
}

function checkEngineClock({ answerAt }: FleetProbe, { url }: Engine): readonly Finding[] {
  const at = ["/v1/models", "/kv_event_sources"].map((path) => answerAt(url + path)).find((answer) => answer?.date);
  return checkClock(url, "engine", at);
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
