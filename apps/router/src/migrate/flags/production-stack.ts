import { parseYaml } from "@espalier/server";
import type { Migration } from "../migration.ts";
import { isSection, type Section, type Translation } from "../translation.ts";
import {
  accepted,
  type FlagRouter,
  type FlagRow,
  type GivenFlags,
  givenValue,
  none,
  translated,
  translateFlags,
} from "./flag-table.ts";
import { type ForeignPolicies, policyNamed, sayPolicy, setCollector, setText } from "./setters.ts";

const byEvents = "caches are known by token and by KV event, where engines publish them";
const byRoles = "requests are split where it pays: the roles of engines say which may take part";

const policies: ForeignPolicies = {
  roundrobin: { name: "round_robin" },
  session: { name: "consistent_hashing" },
  prefixaware: { why: byEvents },
  kvaware: { why: `${byEvents}; there is no LMCache controller to ask` },
  disaggregated_prefill: { why: byRoles },
  disaggregated_prefill_orchestrated: { why: byRoles },
};

const levels: Readonly<Record<string, string>> = { critical: "error", warning: "warn", trace: "debug" };

const rows: readonly FlagRow[] = [
  accepted("--host --port"),
  translated("--log-level", "`log.level`", {
    why: "`critical`, `warning` and `trace` are `error`, `warn` and `debug`",
    set: ([level = ""], translation) => {
      const ours = levels[level] ?? level;
      translation.set("log.level", ours);
      return ours === level ? { outcome: "same", ours: `\`log.level: ${ours}\`` } : undefined;
    },
  }),
  translated("--log-format", "`log.format`", {
    set: ([format = ""], translation) => {
      translation.set("log.format", format === "json" ? "json" : "pretty");
      return undefined;
    },
  }),
  translated("--routing-logic", "`policy`", {
    why: "`roundrobin` and `session` are `round_robin` and `consistent_hashing`; the others are `predicted_latency`",
    set: sayPolicy(policies),
  }),
  translated("--session-key", "`session-key: [header:NAME]`", {
    set: ([name = ""], translation) => {
      translation.set("session-key", [`header:${name.toLowerCase()}`]);
      return undefined;
    },
  }),
  translated(
    "--service-discovery --static-backends --static-models --static-model-labels --prefill-model-labels --decode-model-labels",
    "`engines`, with `models`, and `role` and `kv-transfer` by their labels",
  ),
  translated("--static-aliases", "`models.aliases`"),
  translated("--k8s-namespace --k8s-label-selector --k8s-port", "`discovery.pods`"),
  translated("--k8s-service-discovery-type", "`discovery.pods`", {
    why: "pods are found; services, one for each engine, are `discovery.services`",
    set: ([type]) => (type === "pod-ip" ? { outcome: "same" } : undefined),
  }),
  translated({ flags: "--static-model-types", switches: "--static-backend-health-checks" }, "built-in", {
    why: "engines are asked at `health.path`, not with a request",
  }),
  translated("--static-backend-health-check-interval", "`health.interval`", { set: setText("health.interval", "s") }),
  translated(
    "--static-backend-health-check-timeout-seconds --backend-health-check-timeout-seconds",
    "`health.timeout`",
    { set: setText("health.timeout", "s") },
  ),
  translated("--engine-stats-interval", "`scrape.interval`", { set: setText("scrape.interval", "s") }),
  translated("--k8s-watcher-timeout-seconds", "built-in", { why: "a watch that ends begins anew" }),
  translated({ flags: "--otel-endpoint", switches: "--otel-secure" }, "`tracing.endpoint`", {
    why: "traces are sent over HTTP, to port 4318, not over gRPC",
  }),
  translated("--otel-service-name", "`tracing.service-name`", { set: setText("tracing.service-name") }),
  none(
    "--max-instance-failover-reroute-attempts",
    "another engine is asked at once, inside a budget for all requests",
    "`retry.budget-ratio`",
  ),
  none(
    "--dynamic-config-yaml --dynamic-config-json",
    "it holds flags as keys, which are not read from there",
    "the flags here; our file, and `engines-file`, are read again when they change",
  ),
  none("--prefix-min-match-length --kv-aware-threshold", "what a match is worth is computed for each request"),
  none(
    "--lmcache-controller-port --lmcache-controller-reply-port --lmcache-controller-heartbeat-port --lmcache-health-check-interval --lmcache-worker-timeout",
    "engines publish KV events, and no controller is asked",
    "`kv-pools`, for LMCache's own events",
  ),
  none("--root-path", "paths are served as they are", "a proxy in front that cuts the prefix off"),
  none(
    { flags: "--request-stats-window --log-stats-interval", switches: "--log-stats" },
    "rates are Prometheus's to compute",
    "`/metrics` at the admin port, and the dashboards",
  ),
  none("--callbacks --request-rewriter", "Python is not run in the router", "`plugins`, in JavaScript"),
  none("--feature-gates", "there are no experimental features", "a gateway in front"),
  none(
    "--semantic-cache-model --semantic-cache-dir --semantic-cache-threshold",
    "answers are not cached",
    "a gateway in front",
  ),
  none(
    { flags: "--file-storage-class --file-storage-path --batch-processor", switches: "--enable-batch-api" },
    "files and batches are not kept",
    "requests of the class `batch`",
  ),
  none("--external-providers-config", "its file is not read", "`overflow`, where engines cannot"),
  none(
    "--sentry-dsn --sentry-traces-sample-rate --sentry-profile-session-sample-rate",
    "nothing is sent to Sentry",
    "`tracing`, and the log on standard error",
  ),
];

const defaults = { host: "0.0.0.0", port: 8_001, enginePort: 8_000, namespace: "default" };

/** The chart looks in the namespace of its release, which is where our router runs, too. */
const ownNamespace = "";

/** The parts of a list with commas; a part may be empty. */
const listOf = (given: GivenFlags, flag: string): readonly string[] =>
  givenValue(given, flag)
    ?.split(",")
    .map((part) => part.trim()) ?? [];

const roles = ["prefill", "decode"] as const;

function translateStatic(given: GivenFlags, translation: Translation): void {
  const models = listOf(given, "--static-models");
  const labels = listOf(given, "--static-model-labels");
  const engines = listOf(given, "--static-backends").map((url, at) => {
    const [model, label = ""] = [models[at], labels[at]];
    const role = roles.find((each) => listOf(given, `--${each}-model-labels`).includes(label));
    return {
      url,
      ...(model ? { models: [model] } : {}),
      ...(role === undefined ? {} : { role, "kv-transfer": { protocol: "nixl" } }),
    };
  });
  if (engines.length > 0) translation.set("engines", engines);
  const aliases = listOf(given, "--static-aliases").map((pair) => pair.split(":"));
  if (aliases.length > 0) {
    translation.set(
      "models.aliases",
      Object.fromEntries(aliases.map(([alias = "", ...model]) => [alias, model.join(":")])),
    );
  }
}

/** Labels of pods are the values of their label `model`. */
function translatePods(given: GivenFlags, translation: Translation): void {
  if (givenValue(given, "--service-discovery") !== "k8s") return;
  const namespace = givenValue(given, "--k8s-namespace") ?? defaults.namespace;
  const port = Number(givenValue(given, "--k8s-port") ?? defaults.enginePort);
  const selector = givenValue(given, "--k8s-label-selector") ?? "";
  const place = { ...(namespace === ownNamespace ? {} : { namespace }), port };
  const split = roles.flatMap((role) => {
    const labels = listOf(given, `--${role}-model-labels`);
    if (labels.length === 0) return [];
    const all = [selector, `model in (${labels.join(",")})`].filter((part) => part !== "").join(",");
    return [{ selector: all, ...place, role, "kv-transfer": "nixl" }];
  });
  if (split.length > 0) translation.set("discovery.pods", split);
  else if (selector !== "") translation.set("discovery.pods", [{ selector, ...place }]);
  else {
    translation.missing(
      "--k8s-label-selector",
      "without it every pod of the namespace is an engine there",
      "`discovery.pods[].selector`",
    );
  }
}

/** The router of vLLM's production stack, `vllm-router`: `src/vllm_router/parsers/parser.py`. */
export const productionStack: FlagRouter = {
  title: "vLLM production-stack 0.1.12",
  rows,
  policy: (given) => policyNamed(givenValue(given, "--routing-logic") ?? "roundrobin", policies),
  finish(given, translation) {
    translateStatic(given, translation);
    translatePods(given, translation);
    const collector = givenValue(given, "--otel-endpoint");
    if (collector !== undefined) setCollector(collector, given.has("--otel-secure") ? "https" : "http", translation);
    if (!given.has("--host")) translation.translate("listen.host", defaults.host, { theirs: "--host, their default" });
    if (!given.has("--port")) translation.translate("listen.port", defaults.port, { theirs: "--port, their default" });
  },
};

/** Values of the chart's `routerSpec` that its template makes flags of. */
const valueFlags: Readonly<Record<string, string>> = {
  containerPort: "--port",
  serviceDiscovery: "--service-discovery",
  k8sServiceDiscoveryType: "--k8s-service-discovery-type",
  staticBackends: "--static-backends",
  staticModels: "--static-models",
  routingLogic: "--routing-logic",
  prefixMinMatchLength: "--prefix-min-match-length",
  sessionKey: "--session-key",
  rootPath: "--root-path",
  engineScrapeInterval: "--engine-stats-interval",
  requestStatsWindow: "--request-stats-window",
  lmcacheControllerPort: "--lmcache-controller-port",
  lmcacheControllerReplyPort: "--lmcache-controller-reply-port",
  lmcacheControllerHeartbeatPort: "--lmcache-controller-heartbeat-port",
};

/** Values of `routerSpec` that are read otherwise. */
const otherValues = ["otel", "extraArgs", "vllmApiKey", "env", "replicaCount"];

/** The variable by which engines and their router get the engines' key. */
const keyVariable = "VLLM_API_KEY";

/** Translates the key of the engines, which the chart gives to its router, too. */
function translateKey(spec: Section, engineSpec: Section, translation: Translation): void {
  const variables = (Array.isArray(spec.env) ? spec.env : []).filter(isSection);
  const variable = variables.find(({ name }) => name === keyVariable);
  const [theirs, key] = [
    ["routerSpec.vllmApiKey", spec.vllmApiKey],
    [`routerSpec.env, ${keyVariable}`, variable && (variable.value ?? variable.valueFrom)],
    ["servingEngineSpec.vllmApiKey", engineSpec.vllmApiKey],
  ].find(([, written]) => isSection(written) || (typeof written === "string" && written !== "")) ?? [""];
  const unread = variables.flatMap(({ name }) => (name === keyVariable ? [] : [`routerSpec.env, ${String(name)}`]));
  sayUnread(unread, translation);
  if (key === undefined) return;
  const isSecret = isSection(key);
  const value = isSecret ? `\${${keyVariable}}` : String(key).replaceAll("${", () => "$${");
  translation.set("pools", [{ models: ["*"], "engine-api-key": value }]);
  translation.remark({
    theirs: String(theirs),
    outcome: "differs",
    ours: "`pools[].engine-api-key`",
    why: `the router sends it for every client${isSecret ? `, and reads it from the variable ${keyVariable}, which the secret must set` : ""}`,
    instead: "`api-keys`, so that clients need a key as well",
  });
}

function sayUnread(theirs: readonly string[], translation: Translation): void {
  if (theirs.length === 0) return;
  const why = "the chart makes no flag of it that is read here";
  translation.missing(theirs.join(", "), why, "the same value of our own chart or manifest, where the router needs it");
}

/**
 * Translates what the production stack's chart (`helm/templates/deployment-router.yaml`) starts its router with.
 *
 * @param text the chart's values
 * @returns undefined when there is no `routerSpec` in it
 * @throws EspalierError `config_invalid` for text that is no YAML
 */
export function translateValues(text: string, file: string): Migration | undefined {
  if (!text.includes("routerSpec")) return undefined;
  const { value } = parseYaml(text, file);
  const spec = isSection(value) ? value.routerSpec : undefined;
  if (!isSection(value) || !isSection(spec)) return undefined;
  const given = { containerPort: 8_000, serviceDiscovery: "k8s", routingLogic: "roundrobin", ...spec } as Section;
  const flags = Object.entries(valueFlags).flatMap(([key, flag]) => {
    const written = given[key];
    return written === undefined || written === null || written === "" || written === 0 ? [] : [flag, String(written)];
  });
  const engineSpec = isSection(value.servingEngineSpec) ? value.servingEngineSpec : {};
  const labels = isSection(engineSpec.labels) ? engineSpec.labels : { environment: "test", release: "test" };
  if (given.serviceDiscovery === "k8s") flags.push("--k8s-namespace", ownNamespace);
  if (given.serviceDiscovery === "k8s" && engineSpec.enableEngine !== false) {
    flags.push(
      "--k8s-label-selector",
      Object.entries(labels)
        .map(([key, label]) => `${key}=${label}`)
        .join(","),
    );
  }
  const otel = isSection(given.otel) ? given.otel : {};
  if (otel.endpoint) flags.push("--otel-endpoint", String(otel.endpoint), ...(otel.secure ? ["--otel-secure"] : []));
  if (otel.endpoint && otel.serviceName) flags.push("--otel-service-name", String(otel.serviceName));
  const extra = Array.isArray(given.extraArgs) ? given.extraArgs : [];
  const translation = translateFlags(productionStack, [...flags, ...extra.map(String)]);
  translateKey(spec, engineSpec, translation);
  if (typeof spec.replicaCount === "number" && spec.replicaCount > 1) {
    translation.missing(
      `routerSpec.replicaCount: ${spec.replicaCount}`,
      "replicas know of each other's requests in a mesh only",
      "`mesh.host`, `mesh.port`, `mesh.seed-pods` and `mesh.secret`",
    );
  }
  const read = [...Object.keys(valueFlags), ...otherValues];
  const unread = Object.keys(spec).filter((key) => !read.includes(key));
  sayUnread(
    unread.map((key) => `routerSpec.${key}`),
    translation,
  );
  return translation;
}
