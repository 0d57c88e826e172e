import { didYouMean, formatDuration, isJsonObject, type JsonObject } from "@espalier/core";
import type { Path } from "@espalier/server";
import type { Migration } from "../migration.ts";
import { ourSetting } from "../our-settings.ts";
import { Translation, takesOption } from "../translation.ts";
import { remarkUnknown, translateFlowControl } from "./flow-control.ts";
import { llmdPlugins, type ParameterRule, type ParameterRules } from "./plugins.ts";
import { mainProfile, translateDisaggregation, translatePolicy } from "./policy.ts";
import { type LlmdConfig, type LlmdPlugin, readLlmdConfig } from "./read-config.ts";
import { parseGoDuration } from "./units.ts";

/** Where gateways expect a picker. */
const pickerPort = 9_002;
const defaultBlockSize = 16;
const defaultPrefixBlocks = 2_048;
const scrapeMs = { min: 50, max: 600_000 };
/** Session headers of the written configuration. */
const maxSessionKeys = 32;
const agentHeaders = ["x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"];
const headerName = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
const zmqPlace = /^tcp:\/\/[^\s/:]+:\d{1,5}$/;
const sessionTypes = ["session-affinity-filter", "session-affinity-scorer"];
const preciseTypes = ["precise-prefix-cache-producer", "precise-prefix-cache-scorer"];
const tokenTypes = ["token-producer", "tokenizer"];
const profileKinds: readonly string[] = ["scorer", "filter", "picker"];
const dataLayerKeys = [
  ...["injectDefaults", "sources", "discovery", "peerDiscovery"],
  ...["crossReplicaSyncerPluginRef", "crossReplicaSyncInterval"],
];
const knownGates = ["flowControl", "haPopulateNonLeaderDatastore"];

/**
 * Translates llm-d's `EndpointPickerConfig`.
 *
 * @throws EspalierError `config_invalid` with the place of every mistake
 */
export function translateLlmd(text: string, file: string): Migration {
  const config = readLlmdConfig(text, file);
  const translation = new Translation(config.locate);
  translatePicker(config, translation);
  translatePolicy(config, translation);
  for (const plugin of config.plugins) translatePlugin(plugin, config, translation);
  translateDisaggregation(config, translation);
  translateTokens(config, translation);
  translateSessionKey(config, translation);
  translateParsers(config, translation);
  translateFlowControl(config, translation);
  translateDataLayer(config, translation);
  for (const gate of config.gates.keys()) {
    if (knownGates.includes(gate)) continue;
    translation.missing(`featureGates: ${gate}`, "llm-d of 2026-08-21 has no such gate", "nothing to set");
  }
  for (const path of config.unknown) {
    translation.missing(path, "llm-d has no such setting", "look for a misspelling");
  }
  return translation;
}

/** What llm-d's picker gets as flags, or does unasked. */
function translatePicker(config: LlmdConfig, translation: Translation): void {
  translation.set("endpoint-picker", { host: "0.0.0.0", port: pickerPort });
  translation.remark({
    theirs: "--secure-serving",
    outcome: "differs",
    ours: "`endpoint-picker`",
    why: "the picker serves without TLS, where theirs makes a certificate by itself",
    instead: "`endpoint-picker.tls`, or a gateway that asks without TLS",
  });
  if (config.discovery) return;
  translation.missing(
    "--pool-name, --pool-namespace",
    "the InferencePool is named by their flags, not in this file",
    "`discovery.inference-pools: [NAMESPACE/NAME]`",
  );
}

function translatePlugin(plugin: LlmdPlugin, config: LlmdConfig, translation: Translation): void {
  const { rule, path = [], type } = plugin;
  if (!rule) {
    const names = Object.keys(llmdPlugins);
    translation.missing(
      path,
      `llm-d's own repository has no such plugin${didYouMean(type, names)}`,
      "a policy of docs/POLICIES.md that does what it does",
      plugin,
    );
    return;
  }
  const members = config.profiles.flatMap((profile) => profile.plugins.filter((member) => member.plugin === plugin));
  const isInProfile = members.length > 0 || config.parsers.includes(plugin) || config.detector === plugin;
  if (profileKinds.includes(rule.kind) && !isInProfile) {
    translation.remark({ theirs: path, plugin, outcome: "same", ours: "in no profile: without effect there" });
    return;
  }
  const isMain = mainProfile(config)?.plugins.some((member) => member.plugin === plugin) ?? false;
  if (rule.kind === "scorer" && rule.ours !== undefined && !isMain) {
    translation.missing(
      path,
      "one policy chooses both engines, by the scorers of the profile for decode",
      "weigh it there",
      plugin,
    );
    return;
  }
  const policy = translation.get("policy.name");
  if (rule.policy !== undefined && policy !== rule.policy) {
    translation.missing(
      path,
      `\`policy: ${String(policy)}\` was chosen by what stands beside it, and decides alone`,
      `nothing, or \`policy: ${rule.policy}\``,
      plugin,
    );
    return;
  }
  // What a detector comes to depends on its parameters and on the gate.
  if (rule.kind !== "saturation detector") remarkRule(plugin, path, translation);
  if (rule.ours === undefined) return;
  translateParameters(plugin, plugin.parameters, rule.parameters, [...path, "parameters"], translation);
  translateSpecial(plugin, [...path, "parameters"], translation);
}

/** Says what the table says of a plugin. */
function remarkRule({ rule, ...plugin }: LlmdPlugin, theirs: Path | string, translation: Translation): void {
  if (!rule) return;
  translation.remark({
    theirs,
    plugin,
    ...(rule.ours === undefined ? { outcome: "missing" } : { outcome: rule.why ? "differs" : "same", ours: rule.ours }),
    ...(rule.why === undefined ? {} : { why: rule.why }),
    ...(rule.instead === undefined ? {} : { instead: rule.instead }),
  });
}

function translateParameters(
  plugin: LlmdPlugin,
  parameters: JsonObject,
  rules: ParameterRules,
  path: Path,
  translation: Translation,
): void {
  for (const [key, value] of Object.entries(parameters)) {
    const rule = Object.hasOwn(rules, key) ? rules[key] : undefined;
    if (!rule) remarkUnknown({ [key]: value }, [], path, translation);
    else if (value !== null) translateParameter(plugin, value, rule, [...path, key], translation);
  }
}

function translateParameter(
  plugin: LlmdPlugin,
  value: unknown,
  rule: ParameterRule,
  theirs: Path,
  translation: Translation,
): void {
  const from = { theirs, plugin };
  if (rule === "read") return;
  if ("same" in rule) translation.remark({ ...from, outcome: "same", ours: rule.same });
  else if ("sets" in rule) translateSetting(rule.sets, value, from, translation);
  else if ("why" in rule) {
    if (value !== rule.unless)
      translation.remark({ ...from, outcome: "missing", why: rule.why, instead: rule.instead });
  } else if (isJsonObject(value)) translateParameters(plugin, value, rule.parameters, theirs, translation);
  else translation.remark({ ...from, outcome: "missing", why: "unknown section", instead: "check the spelling" });
}

/** What a parameter belongs to, and where it is written. */
interface From {
  readonly theirs: Path;
  readonly plugin: LlmdPlugin;
}

function translateSetting(path: string, value: unknown, from: From, translation: Translation): void {
  const [option] = /(?<=^policy\.).*/.exec(path) ?? [];
  if (option !== undefined) translateOption(option, value, from, translation);
  else if (ourSetting(path).type === "number") translation.translateNumber(path, value, from);
  else translateText(path, value, from, translation);
}

function translateText(path: string, value: unknown, { theirs, plugin }: From, translation: Translation): void {
  const isPlace = path === "kv-events.listen";
  if (typeof value !== "string" || value === "" || (isPlace && !zmqPlace.test(value))) {
    translation.missing(theirs, "it is not a value that it takes", `set \`${path}\``, plugin);
    return;
  }
  const why =
    "an engine must publish with the topic `kv@ID@MODEL`, ID being host and port of its URL or `engines[].id`";
  translation.translate(path, value, { theirs, plugin, ...(isPlace ? { why } : {}) });
}

function translateOption(option: string, value: unknown, from: From, translation: Translation): void {
  const policy = translation.get("policy.name");
  if (typeof policy === "string" && takesOption(policy, option)) {
    translation.translateNumber(`policy.${option}`, value, from);
    return;
  }
  translation.remark({
    ...from,
    outcome: "missing",
    why: `\`policy: ${String(policy ?? "predicted_latency")}\` has no such option`,
    instead: "nothing to set",
  });
}

/** Parameters that take part in something together. */
function translateSpecial(plugin: LlmdPlugin, path: Path, translation: Translation): void {
  const { type, parameters } = plugin;
  const from = (key: string) => ({ theirs: [...path, key], plugin });
  if (type === "approx-prefix-cache-producer") translatePrefixSizes(plugin, path, translation);
  if (type === "burst-prefix-cache-producer" && typeof parameters.maxPrefixTokensToMatch === "number") {
    const value = parameters.maxPrefixTokensToMatch;
    translateOption("max-prefix-tokens", value, from("maxPrefixTokensToMatch"), translation);
  }
  const { maxNumOfEndpoints } = parameters;
  if (type.endsWith("-picker") && typeof maxNumOfEndpoints === "number" && maxNumOfEndpoints > 1) {
    translation.translateNumber("endpoint-picker.fallbacks", maxNumOfEndpoints - 1, from("maxNumOfEndpoints"));
  }
  if (type !== "metrics-data-source" && type !== "models-data-source") return;
  if (parameters.scheme === "https") {
    translation.remark({
      ...from("scheme"),
      outcome: "differs",
      ours: "the scheme of the engines' URLs",
      why: "an engine is reached by one scheme",
      instead: "`scheme: https` of the source under `discovery`",
    });
    const { insecureSkipVerify = true } = parameters;
    if (insecureSkipVerify === true) translation.translate("engine-tls.verify", false, from("insecureSkipVerify"));
  }
  if (type === "metrics-data-source" && parameters.interval !== undefined) {
    const milliseconds = parseGoDuration(parameters.interval);
    if (milliseconds === undefined) {
      const mistake = { outcome: "missing", why: "invalid duration", instead: "`scrape.interval`" } as const;
      translation.remark({ ...from("interval"), ...mistake });
      return;
    }
    const nearest = Math.min(scrapeMs.max, Math.max(scrapeMs.min, Math.round(milliseconds)));
    const why = nearest === milliseconds ? {} : { why: "50 ms is the shortest and 10 minutes the longest interval" };
    translation.translate("scrape.interval", formatDuration(nearest), { ...from("interval"), ...why });
  }
}

/** How much of a prompt is compared, and how much an engine is thought to hold. */
function translatePrefixSizes(plugin: LlmdPlugin, path: Path, translation: Translation): void {
  const { parameters } = plugin;
  const numberOf = (key: string): number | undefined => {
    const value = parameters[key];
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
  };
  const blockSize = numberOf("blockSizeTokens") ?? defaultBlockSize;
  const tokens = numberOf("maxPrefixTokensToMatch");
  const blocks = numberOf("maxPrefixBlocksToMatch");
  const isByBlocks = tokens === 0;
  const matched = isByBlocks ? (blocks ?? defaultPrefixBlocks) * blockSize : tokens;
  if (matched !== undefined) {
    const key = isByBlocks ? "maxPrefixBlocksToMatch" : "maxPrefixTokensToMatch";
    const theirs = [...path, parameters[key] === undefined ? "maxPrefixTokensToMatch" : key];
    const { max } = ourSetting("policy.max-prefix-tokens");
    translateOption("max-prefix-tokens", matched === 0 ? max : matched, { theirs, plugin }, translation);
  }
  const capacity = numberOf("lruCapacityPerServer");
  if (capacity === undefined) return;
  const from = { theirs: [...path, "lruCapacityPerServer"], plugin };
  translation.translateNumber("prefix.placement-tokens", capacity * blockSize, from);
}

/** Prompts are tokenized for KV events, and where llm-d asks an engine for their tokens. */
function translateTokens({ plugins }: LlmdConfig, translation: Translation): void {
  const asking = plugins.filter(
    ({ type, parameters }) =>
      tokenTypes.includes(type) && (isJsonObject(parameters.vllm) || isJsonObject(parameters.udsTokenizerConfig)),
  );
  const precise = plugins.find(({ type }) => preciseTypes.includes(type));
  const entries = asking.map(({ parameters: { modelName } }) =>
    typeof modelName === "string" && modelName !== "" ? { models: [modelName], mode: "engine" } : { mode: "engine" },
  );
  if (entries.length > 0) translation.set("tokenizers", entries);
  else if (precise) {
    translation.set("tokenizers", [{ mode: "engine" }]);
    translation.remark({
      theirs: precise.path ?? [],
      plugin: precise,
      outcome: "differs",
      ours: "`tokenizers: [{ mode: engine }]`",
      why: "KV events are compared with tokens, not with estimates of them",
      instead: "`mode: local` with `path`, which asks no engine",
    });
  }
}

/** The headers by which a session plugin in use knows a session. */
function translateSessionKey(config: LlmdConfig, translation: Translation): void {
  const members = mainProfile(config)?.plugins ?? [];
  const user = members.find(({ plugin }) => sessionTypes.includes(plugin.type))?.plugin;
  const producers = config.plugins.filter(({ type }) => type === "session-id-producer");
  const headersOf = (plugin: LlmdPlugin | undefined): readonly string[] => {
    const { headerName: name } = plugin?.parameters ?? {};
    return typeof name === "string" ? [name] : [];
  };
  const { sessionIdConfig } = user?.parameters ?? {};
  const sources =
    isJsonObject(sessionIdConfig) && Array.isArray(sessionIdConfig.sources) ? sessionIdConfig.sources : [];
  const theirs = [...(user?.path ?? []), "parameters", "sessionIdConfig", "sources"];
  const headers = sources.flatMap((source: unknown, at): readonly string[] => {
    if (!isJsonObject(source)) return [];
    if (typeof source.header === "string" && source.header !== "") return [source.header];
    if (source.attribute === "agent-identity") return headersOfAgents(config);
    const producer = producers.find(({ name }) => name === (source.producer ?? name));
    if (producer) return headersOf(producer);
    translation.remark({
      theirs: [...theirs, at],
      ...(user ? { plugin: user } : {}),
      outcome: "missing",
      why: "it is an attribute of a plugin that is not known",
      instead: "the header or body field that it comes from, in `session-key`",
    });
    return [];
  });
  if (sources.length === 0) headers.push(...producers.flatMap(headersOf));
  const usable = [...new Set(headers.map((name) => name.toLowerCase()))].filter((name) => headerName.test(name));
  if (usable.length === 0) return;
  translation.set(
    "session-key",
    usable.slice(0, maxSessionKeys).map((name) => `header:${name}`),
  );
}

function headersOfAgents({ plugins }: LlmdConfig): readonly string[] {
  const { additionalSessionHeaders } = plugins.find(({ type }) => type === "agent-identity")?.parameters ?? {};
  const more = Array.isArray(additionalSessionHeaders) ? additionalSessionHeaders : [];
  return [...more.filter((name: unknown): name is string => typeof name === "string"), ...agentHeaders];
}

function translateParsers({ parsers }: LlmdConfig, translation: Translation): void {
  if (parsers.some(({ type }) => type === "vllmhttp-parser")) {
    translation.set("forward-paths", ["/inference/v1/generate"]);
  }
  for (const plugin of parsers) {
    if (plugin.path === undefined) remarkRule(plugin, `requestHandler.parsers: ${plugin.name}`, translation);
  }
}

function translateDataLayer({ dataLayer }: LlmdConfig, translation: Translation): void {
  if (!dataLayer) return;
  remarkUnknown(dataLayer, dataLayerKeys, ["dataLayer"], translation);
  const keys = ["peerDiscovery", "crossReplicaSyncerPluginRef"].filter((key) => (dataLayer[key] ?? null) !== null);
  for (const key of keys) {
    translation.missing(
      ["dataLayer", key],
      "routers find each other and share what they know by settings of their own",
      "`mesh.seeds` or `mesh.seed-pods`, and `mesh.secret`",
    );
  }
}
