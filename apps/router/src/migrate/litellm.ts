import { isJsonObject, type JsonObject } from "@espalier/core";
import { findEmbedded } from "./embedded.ts";
import { type FlagRouter, type GivenFlags, readRouters } from "./flags/flag-router.ts";
import { translateGiven } from "./flags/translate-flags.ts";
import type { Migration } from "./migration.ts";
import { Translation } from "./translation.ts";

/** Sections whose settings are in the table. */
const sections = ["router_settings", "litellm_settings", "general_settings"];

/** Providers whose API an engine speaks, at the address that stands beside the model. */
const engineProviders = ["openai", "hosted_vllm", "vllm", "text-completion-openai", "custom_openai", "litellm_proxy"];

/** What a model in the cloud is, where no address stands beside it. */
const clouds: Readonly<Record<string, { readonly url: string; readonly api: string; readonly variable: string }>> = {
  openai: { url: "https://api.openai.com/v1", api: "openai", variable: "OPENAI_API_KEY" },
  anthropic: { url: "https://api.anthropic.com/v1", api: "anthropic", variable: "ANTHROPIC_API_KEY" },
};

const readParams = ["model", "api_base", "api_key", "weight"];

/**
 * Translates the configuration of LiteLLM's proxy.
 *
 * @throws EspalierError `config_invalid` for a file without a `model_list`
 */
export function translateLitellm(text: string, file: string): Migration {
  const { tree, locate } = findEmbedded(text, file, {
    what: "model_list",
    marker: "model_list",
    isOne: ({ model_list: list }) => Array.isArray(list),
    refuse: () => "model_list is missing",
  });
  const translation = new Translation(locate);
  // Its settings stand in the table as flags of other routers do in theirs.
  const { litellm } = readRouters("litellm", () => translateModels(tree, translation));
  if (litellm) translateGiven(litellm, readSettings(tree, litellm, translation), translation);
  const unread = Object.keys(tree).filter((key) => key !== "model_list" && !sections.includes(key));
  for (const key of unread) sayUnread([key], translation);
  return translation;
}

/** The settings of the table as if they were flags. Those that are off have no effect. */
function readSettings(tree: JsonObject, { known }: FlagRouter, translation: Translation): GivenFlags {
  const given = new Map<string, readonly string[]>();
  for (const section of sections) {
    const settings = tree[section];
    for (const [key, value] of Object.entries(isJsonObject(settings) ? settings : {})) {
      const name = `${section}.${key}`;
      if (value === false || value === null) continue;
      if (!known.has(name)) sayUnread([section, key], translation);
      else given.set(name, typeof value === "object" || value === true ? [] : [variableOf(String(value))]);
    }
  }
  return given;
}

const sayUnread = (path: readonly string[], translation: Translation): void =>
  translation.missing(path, "it is not read", "look in docs/CONFIGURATION.md for what it does");

/** LiteLLM's way to name a variable, in ours. */
const variableOf = (text: string): string =>
  text.startsWith("os.environ/") ? `\${${text.slice("os.environ/".length)}}` : text.replaceAll("${", () => "$${");

interface Deployment {
  /** What clients call it. */
  readonly name: string;
  /** What its engine or provider calls it. */
  readonly model: string;
  readonly weight: number;
}

function translateModels({ model_list: list, router_settings: settings }: JsonObject, translation: Translation): void {
  const engines = new Set<string>();
  const deployments: Deployment[] = [];
  const keys = new Map<string, string[]>();
  const backends = new Map<string, Record<string, unknown> & { models: Record<string, string> }>();
  const unread = new Set<string>();
  for (const [at, entry] of (Array.isArray(list) ? list : []).entries()) {
    const path = ["model_list", at];
    const params = isJsonObject(entry) && isJsonObject(entry.litellm_params) ? entry.litellm_params : {};
    const { model_name: name } = isJsonObject(entry) ? entry : {};
    const { model: written, api_base: base, api_key: key } = params;
    if (typeof name !== "string" || typeof written !== "string") {
      translation.missing(path, "it has no model_name, or no model", "check the spelling");
      continue;
    }
    const [, provider = "", model = written] = /^([^/]+)\/(.*)$/s.exec(written) ?? [];
    const isEngine = typeof base === "string" && (provider === "" || engineProviders.includes(provider));
    const cloud = Object.hasOwn(clouds, provider) ? clouds[provider] : undefined;
    if (isEngine && !/^https?:\/\//.test(base)) {
      translation.missing([...path, "litellm_params", "api_base"], "invalid URL", "`engines[].url`");
    } else if (isEngine) {
      engines.add(base.replace(/\/+$/, "").replace(/\/v1$/, ""));
      deployments.push({ name, model, weight: typeof params.weight === "number" ? params.weight : 1 });
      if (typeof key === "string") keys.set(key, [...(keys.get(key) ?? []), model]);
    } else if (cloud && base === undefined && !name.includes("*")) {
      const secret = typeof key === "string" ? variableOf(key) : `\${${cloud.variable}}`;
      const id = `${provider} ${secret}`;
      const count = [...backends.keys()].filter((other) => other.startsWith(`${provider} `)).length;
      const backend = backends.get(id) ?? {
        name: count === 0 ? provider : `${provider}-${count + 1}`,
        ...{ url: cloud.url, api: cloud.api, key: secret, models: {} },
      };
      backend.models[name] = model;
      backends.set(id, backend);
    } else {
      const why = "a provider in the cloud answers only when engines cannot, by the API of OpenAI or Anthropic";
      translation.missing(path, why, "`overflow`, where it has such an API");
      continue;
    }
    for (const param of Object.keys(params)) if (!readParams.includes(param)) unread.add(param);
  }
  if (engines.size > 0) translation.set("engines", [...engines]);
  if (backends.size > 0) {
    translation.set("overflow", [...backends.values()]);
    translation.remark({
      theirs: "model_list, models in the cloud",
      outcome: "differs",
      ours: "`overflow`",
      why: "they answer when no engine can, or none in time",
    });
  }
  if (unread.size > 0) {
    const theirs = `model_list[].litellm_params: ${[...unread].join(", ")}`;
    const why = "requests reach engines unchanged; no rate limit per minute";
    translation.missing(theirs, why, "`admission`, `timeouts`, or the engine's own settings");
  }
  const all = new Set(deployments.map(({ model }) => model));
  for (const [key, models] of keys) {
    const pool = { models: keys.size === 1 && all.size === new Set(models).size ? ["*"] : [...new Set(models)] };
    translation.settings.pools = [
      ...((translation.get("pools") ?? []) as readonly unknown[]),
      { ...pool, "engine-api-key": variableOf(key) },
    ];
  }
  translateNames(deployments, isJsonObject(settings) ? settings.model_group_alias : undefined, translation);
}

/** What clients call models: one name for one model is an alias, one name for several is a split. */
function translateNames(deployments: readonly Deployment[], groups: unknown, translation: Translation): void {
  const aliases = new Map<string, string>();
  const splits: Record<string, unknown> = {};
  for (const name of new Set(deployments.map((each) => each.name))) {
    const weights = new Map<string, number>();
    for (const { model, weight } of deployments.filter((each) => each.name === name)) {
      weights.set(model, (weights.get(model) ?? 0) + weight);
    }
    const [model = name, another] = [...weights.keys()];
    if (name.includes("*")) continue;
    if (another !== undefined) splits[name] = [...weights].map(([each, weight]) => ({ model: each, weight }));
    else if (model !== name) aliases.set(name, model);
  }
  for (const [alias, group] of Object.entries(isJsonObject(groups) ? groups : {})) {
    const name = isJsonObject(group) ? group.model : group;
    if (typeof name === "string") aliases.set(alias, aliases.get(name) ?? name);
  }
  if (aliases.size > 0) translation.set("models.aliases", Object.fromEntries(aliases));
  if (Object.keys(splits).length > 0) translation.set("models.splits", splits);
}
