import { formatDuration, formatSize, isJsonObject, type JsonObject } from "@espalier/core";
import type { Path } from "@espalier/server";
import { ourSetting } from "../our-settings.ts";
import type { Translation } from "../translation.ts";
import type { LlmdConfig, LlmdPlugin } from "./read-config.ts";
import { parseGoDuration, parseQuantity } from "./units.ts";

/** Bounds of our settings. */
const heldMs = { min: 10, max: 3_600_000 };
/** Classes of the written configuration. */
const maxClasses = 16;
/** The defaults of llm-d's utilization detector. */
const defaultQueueDepth = 5;
const defaultKvUse = 0.8;
/** How long llm-d's flow control holds a request unless it is told. */
const defaultTtlMs = 60_000;

const orderings: Readonly<Record<string, string>> = {
  "fcfs-ordering-policy": "fcfs",
  "edf-ordering-policy": "edf",
  "slo-deadline-ordering-policy": "edf",
};

interface Band {
  readonly priority: number;
  readonly order: string;
  readonly maxRequests: number | undefined;
  readonly maxBytes: number | undefined;
}

/** Translates who waits, and for how long: the gate `flowControl`, its section, and the saturation detector. */
export function translateFlowControl(config: LlmdConfig, translation: Translation): void {
  const isOn = config.gates.get("flowControl") ?? false;
  const admitter = config.plugins.find(({ type }) => type === "latency-slo-admitter");
  if (!isOn) {
    if (!admitter) translation.set("admission.mode", "off");
    translation.remark({
      theirs: config.gates.has("flowControl") ? ["featureGates"] : "featureGates: flowControl",
      outcome: admitter ? "differs" : "same",
      ours: admitter ? "`admission.mode: on`" : "`admission.mode: off`",
      ...(admitter ? { why: "it is off there, and only a queue here knows deadlines" } : {}),
    });
    if (config.flowControl) {
      const ignored = Object.keys(config.flowControl).filter((key) => key !== "saturationDetector");
      for (const key of ignored) {
        translation.remark({
          theirs: ["flowControl", key],
          outcome: "same",
          ours: "without effect there, the gate being off",
        });
      }
    }
  }
  if (isOn) translateQueues(config.flowControl ?? {}, config, translation);
  translateDetector(isOn, config, translation);
}

function translateQueues(flowControl: JsonObject, config: LlmdConfig, translation: Translation): void {
  translation.remark({ theirs: ["featureGates"], outcome: "same", ours: "`admission.mode: on`" });
  const bands = readBands(flowControl, config, translation);
  translateBound("maxRequests", "admission.max-queued", (value) => value);
  translateBound("maxBytes", "admission.max-queued-bytes", formatSize);
  const ttlMs = duration("defaultRequestTTL") ?? defaultTtlMs;
  const held = ttlMs === 0 ? heldMs.max : Math.min(heldMs.max, Math.max(heldMs.min, ttlMs));
  translation.translate("endpoint-picker.answer-within", formatDuration(held), {
    theirs: flowControl.defaultRequestTTL === undefined ? "defaultRequestTTL" : ["flowControl", "defaultRequestTTL"],
    ...(held === ttlMs ? {} : { why: "a request never waits without a limit, nor longer than an hour" }),
  });
  if (duration("noEndpointRequestTTL") !== undefined) {
    translation.missing(
      ["flowControl", "noEndpointRequestTTL"],
      "a request without an engine gets 503 at once",
      "let the gateway try again",
    );
  }
  if (flowControl.enableEviction === true) {
    translation.missing(
      ["flowControl", "enableEviction"],
      "a request that runs is not ended for another one",
      "`admission.engine-priority`: engines preempt by class",
    );
  }
  remarkUnknown(flowControl, flowControlKeys, ["flowControl"], translation);
  if (bands.length > 0) {
    translation.set(
      "admission.classes",
      bands.map(({ priority, order }) => ({ name: nameOf(priority), order })),
    );
    translation.set("admission.default-class", nameOf(0));
  }

  function translateBound(key: "maxRequests" | "maxBytes", setting: string, write: (value: number) => unknown): void {
    const whole = parseQuantity(flowControl[key]);
    const isTotal = whole !== undefined && whole > 0;
    const parts = bands.flatMap((band) => band[key] ?? []);
    if (flowControl[key] !== undefined && flowControl[key] !== null && whole === undefined) {
      translation.missing(["flowControl", key], "it is not a quantity such as 500, 1k or 10Gi", `set \`${setting}\``);
    }
    if (!isTotal && parts.length === 0) return;
    const { min, max } = ourSetting(setting);
    const value = isTotal ? whole : parts.reduce((sum, part) => sum + part, 0);
    translation.translate(setting, write(Math.min(max, Math.max(min, Math.round(value)))), {
      theirs: isTotal ? ["flowControl", key] : ["flowControl", "priorityBands"],
      why: "it bounds what waits in one router, all classes together",
    });
  }

  function duration(key: string): number | undefined {
    const written = flowControl[key] ?? undefined;
    const value = parseGoDuration(written);
    if (written !== undefined && value === undefined) {
      translation.missing(
        ["flowControl", key],
        "it is not a duration such as 60s or 1m30s",
        "set `endpoint-picker.answer-within`",
      );
    }
    return value;
  }
}

const bandKeys = ["priority", "maxBytes", "maxRequests", "fairnessPolicyRef", "orderingPolicyRef"];
const flowControlKeys = [
  ...["maxBytes", "maxRequests", "defaultRequestTTL", "noEndpointRequestTTL", "priorityBands", "enableEviction"],
  ...["defaultPriorityBand", "defaultNegativePriorityBand", "usageLimitPolicyPluginRef", "saturationDetector"],
];

/** The bands as classes, the highest first, with one for priority 0; none when no band is written. */
function readBands(flowControl: JsonObject, config: LlmdConfig, translation: Translation): readonly Band[] {
  const standard = isJsonObject(flowControl.defaultPriorityBand) ? flowControl.defaultPriorityBand : {};
  const standardPath = ["flowControl", "defaultPriorityBand"];
  remarkUnknown(standard, bandKeys, standardPath, translation);
  const orderOf = (band: JsonObject, path: Path): string => {
    const reference = band.orderingPolicyRef ?? standard.orderingPolicyRef;
    const plugin = typeof reference === "string" ? config.find(reference) : undefined;
    const order = plugin ? orderings[plugin.type] : "fcfs";
    if (order === undefined || (reference !== undefined && !plugin)) {
      translation.missing(
        [...path, "orderingPolicyRef"],
        `${String(reference)} is an unknown order`,
        "`admission.classes[].order`",
      );
    }
    return order ?? "fcfs";
  };
  const written = Array.isArray(flowControl.priorityBands) ? flowControl.priorityBands : [];
  const bands = written.flatMap((band: unknown, at): Band[] => {
    const path = ["flowControl", "priorityBands", at];
    const priority = isJsonObject(band) ? (band.priority ?? 0) : undefined;
    if (!isJsonObject(band) || typeof priority !== "number" || !Number.isInteger(priority)) {
      translation.missing(path, "it has no whole priority", "`admission.classes`");
      return [];
    }
    remarkUnknown(band, bandKeys, path, translation);
    translation.remark({
      theirs: path,
      outcome: "differs",
      ours: `class \`${nameOf(priority)}\``,
      why: "an InferenceObjective chooses it by the rank of its priority, or a request names it in `x-espalier-priority`",
    });
    return [
      { priority, order: orderOf(band, path), maxRequests: bound(band.maxRequests), maxBytes: bound(band.maxBytes) },
    ];
  });
  const negative = flowControl.defaultNegativePriorityBand ?? undefined;
  if (negative !== undefined) {
    translation.missing(
      ["flowControl", "defaultNegativePriorityBand"],
      "classes are listed one by one",
      "a last one in `admission.classes`",
    );
  }
  const hasStandard = Object.keys(standard).length > 0;
  if (bands.length === 0 && !hasStandard) return [];
  if (!bands.some(({ priority }) => priority === 0)) {
    const order = orderOf(hasStandard ? standard : {}, standardPath);
    bands.push({ priority: 0, order, maxRequests: bound(standard.maxRequests), maxBytes: bound(standard.maxBytes) });
  }
  const sorted = bands.toSorted((one, other) => other.priority - one.priority);
  const unique = sorted.filter(({ priority }, at) => sorted[at - 1]?.priority !== priority);
  // The default class must stay among those that are kept.
  const kept = unique.filter(({ priority }, at) => at < maxClasses - 1 || priority === 0).slice(0, maxClasses);
  for (const { priority } of unique.filter((band) => !kept.includes(band))) {
    translation.missing(
      `priority ${priority}`,
      `there are at most ${maxClasses} classes`,
      "one class for several priorities",
    );
  }
  return kept;
}

function bound(written: unknown): number | undefined {
  const value = parseQuantity(written);
  return value === undefined || value === 0 ? undefined : value;
}

const nameOf = (priority: number): string => `priority-${priority < 0 ? `minus-${-priority}` : priority}`;

/** The limits of engines count only while requests wait. */
function translateDetector(isOn: boolean, config: LlmdConfig, translation: Translation): void {
  const { detector } = config;
  for (const plugin of config.plugins) {
    if (plugin === detector || plugin.rule?.kind !== "saturation detector") continue;
    translation.remark({ theirs: plugin.path ?? [], plugin, outcome: "same", ours: "not in use there" });
  }
  if (detector && detector.rule === undefined) return;
  if (translation.get("admission.mode") === "off") {
    if (!detector) return;
    translation.missing(
      detector.path ?? detector.name,
      "without the gate `flowControl` it only refuses requests of a priority below 0, and here none is refused",
      "`admission.mode: on`, `admission.max-waiting`, `admission.max-kv-use`",
      detector,
    );
  } else if (detector?.type === "concurrency-detector") translateConcurrency(detector, translation);
  else if (isOn || detector) translateUtilization(detector, translation);
}

function translateUtilization(detector: LlmdPlugin | undefined, translation: Translation): void {
  const { queueDepthThreshold = defaultQueueDepth, kvCacheUtilThreshold = defaultKvUse } = detector?.parameters ?? {};
  translation.remark({
    theirs: detector ? (detector.path ?? detector.name) : "the default saturation detector",
    ...(detector ? { plugin: detector } : {}),
    outcome: "differs",
    ours: "`admission.max-waiting`, `admission.max-kv-use`",
    why: "each engine has its limits; theirs are for the mean of the pool",
  });
  const fromQueue = ofDetector(detector, "queueDepthThreshold");
  translation.translateNumber("admission.max-waiting", queueDepthThreshold, fromQueue);
  const fromKvUse = ofDetector(detector, "kvCacheUtilThreshold");
  translation.translateNumber("admission.max-kv-use", kvCacheUtilThreshold, fromKvUse);
}

function translateConcurrency(detector: LlmdPlugin, translation: Translation): void {
  const { concurrencyMode = "requests", maxTokenConcurrency = 1_000_000 } = detector.parameters;
  if (concurrencyMode !== "tokens") {
    translation.remark({
      ...ofDetector(detector, "maxConcurrency"),
      outcome: "missing",
      why: "engines are full by their own queue and by tokens, not by a count of requests",
      instead: "`admission.max-waiting`, `admission.classes[].max-pending-tokens`",
    });
  }
  if (concurrencyMode === "requests") return;
  const classes = translation.get("admission.classes");
  const names = Array.isArray(classes) ? (classes as readonly JsonObject[]) : [{ name: "default" }];
  const pendingTokens = ourSetting("admission.classes[].max-pending-tokens");
  const value = typeof maxTokenConcurrency === "number" ? maxTokenConcurrency : pendingTokens.max;
  const tokens = Math.min(pendingTokens.max, Math.max(pendingTokens.min, Math.round(value)));
  translation.remark({
    ...ofDetector(detector, "maxTokenConcurrency"),
    outcome: "differs",
    ours: `\`admission.classes[].max-pending-tokens: ${tokens}\``,
    why: "only the tokens of prompts count, and only until their answers begin",
  });
  const { admission } = translation.settings;
  translation.settings.admission = {
    ...(isJsonObject(admission) ? admission : {}),
    classes: names.map((one) => ({ ...one, "max-pending-tokens": tokens })),
  };
}

/** Where a parameter of the detector is written; the detector itself, or words, when it is not. */
function ofDetector(detector: LlmdPlugin | undefined, key: string) {
  if (!detector) return { theirs: `${key} of the default saturation detector` };
  const { path } = detector;
  const isWritten = path !== undefined && detector.parameters[key] !== undefined;
  return { theirs: isWritten ? [...path, "parameters", key] : (path ?? detector.name), plugin: detector };
}

/** Says of every key that none of theirs has this name. */
export function remarkUnknown(
  section: JsonObject,
  known: readonly string[],
  path: Path,
  translation: Translation,
): void {
  for (const key of Object.keys(section).filter((each) => !known.includes(each))) {
    translation.missing([...path, key], "llm-d has no such setting", "look for a misspelling");
  }
}
