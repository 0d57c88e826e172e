import { isJsonObject, type JsonObject } from "@espalier/core";
import { parseYaml } from "@espalier/server";
import type { Migration } from "../migration.ts";
import type { Translation } from "../translation.ts";
import type { Finish, FlagRouter, GivenFlags } from "./flag-router.ts";
import { givenValue, setCollector, translateFlags } from "./translate-flags.ts";

const defaults = { enginePort: 8_000, namespace: "default" };

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

/** What flags of vLLM's production stack are together. */
export const finishProductionStack: Finish = (given, translation) => {
  translateStatic(given, translation);
  translatePods(given, translation);
  const collector = givenValue(given, "--otel-endpoint");
  if (collector !== undefined) setCollector(collector, given.has("--otel-secure") ? "https" : "http", translation);
};

/** Values of `routerSpec` that are read otherwise. */
const otherValues = ["otel", "extraArgs", "vllmApiKey", "env", "replicaCount"];

/** The variable by which engines and their router get the engines' key. */
const keyVariable = "VLLM_API_KEY";

/** Translates the key of the engines, which the chart gives to its router, too. */
function translateKey(spec: JsonObject, engineSpec: JsonObject, translation: Translation): void {
  const variables = (Array.isArray(spec.env) ? spec.env : []).filter(isJsonObject);
  const variable = variables.find(({ name }) => name === keyVariable);
  const [theirs, key] = [
    ["routerSpec.vllmApiKey", spec.vllmApiKey],
    [`routerSpec.env, ${keyVariable}`, variable && (variable.value ?? variable.valueFrom)],
    ["servingEngineSpec.vllmApiKey", engineSpec.vllmApiKey],
  ].find(([, written]) => isJsonObject(written) || (typeof written === "string" && written !== "")) ?? [""];
  const unread = variables.flatMap(({ name }) => (name === keyVariable ? [] : [`routerSpec.env, ${String(name)}`]));
  sayUnread(unread, translation);
  if (key === undefined) return;
  const isSecret = isJsonObject(key);
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
export function translateValues(router: FlagRouter, text: string, file: string): Migration | undefined {
  if (!text.includes("routerSpec")) return undefined;
  const { value } = parseYaml(text, file);
  const spec = isJsonObject(value) ? value.routerSpec : undefined;
  if (!isJsonObject(value) || !isJsonObject(spec)) return undefined;
  const given = { containerPort: 8_000, serviceDiscovery: "k8s", routingLogic: "roundrobin", ...spec } as JsonObject;
  const flags = Object.entries(router.chart).flatMap(([key, flag]) => {
    const written = given[key];
    return written === undefined || written === null || written === "" || written === 0 ? [] : [flag, String(written)];
  });
  const engineSpec = isJsonObject(value.servingEngineSpec) ? value.servingEngineSpec : {};
  const labels = isJsonObject(engineSpec.labels) ? engineSpec.labels : { environment: "test", release: "test" };
  if (given.serviceDiscovery === "k8s") flags.push("--k8s-namespace", ownNamespace);
  if (given.serviceDiscovery === "k8s" && engineSpec.enableEngine !== false) {
    flags.push(
      "--k8s-label-selector",
      Object.entries(labels)
        .map(([key, label]) => `${key}=${label}`)
        .join(","),
    );
  }
  const otel = isJsonObject(given.otel) ? given.otel : {};
  if (otel.endpoint) flags.push("--otel-endpoint", String(otel.endpoint), ...(otel.secure ? ["--otel-secure"] : []));
  if (otel.endpoint && otel.serviceName) flags.push("--otel-service-name", String(otel.serviceName));
  const extra = Array.isArray(given.extraArgs) ? given.extraArgs : [];
  const translation = translateFlags(router, [...flags, ...extra.map(String)]);
  translateKey(spec, engineSpec, translation);
  if (typeof spec.replicaCount === "number" && spec.replicaCount > 1) {
    translation.missing(
      `routerSpec.replicaCount: ${spec.replicaCount}`,
      "replicas know of each other's requests in a mesh only",
      "`mesh.host`, `mesh.port`, `mesh.seed-pods` and `mesh.secret`",
    );
  }
  const read = [...Object.keys(router.chart), ...otherValues];
  const unread = Object.keys(spec).filter((key) => !read.includes(key));
  sayUnread(
    unread.map((key) => `routerSpec.${key}`),
    translation,
  );
  return translation;
}
