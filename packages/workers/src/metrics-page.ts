import {
  type EngineDialect,
  type SignalSource,
  type SignalValues,
  signalSources,
  unknownSignals,
} from "./engine-signals.ts";
import { maxModelNameLength } from "./served-models.ts";

/** The numbers of one metrics page. */
export interface MetricsReading {
  /** Which engine's metrics the page has; undefined if none is known. */
  readonly dialect: EngineDialect | undefined;
  /** NaN where the page says nothing. */
  readonly values: Readonly<SignalValues>;
  /** Absent where the page names no LoRA adapters. */
  readonly adapters?: AdapterReading;
  /** When the engine's process started, in Unix seconds; NaN where the page says nothing, as SGLang's. */
  readonly processStartS: number;
  /** Malformed lines with a known name. */
  readonly malformedLines: number;
}

/** Samples with a known name beyond this many are counted as malformed and skipped. */
const maxSamples = 4_096;

/** What Prometheus clients write for the process as a whole, whatever the engine. */
const processStartMetric = "process_start_time_seconds";

/** The ranks inside one scheduler all report that scheduler's numbers: such samples are copies, not parts of a sum. */
const copyLabels: ReadonlySet<string> = new Set(["tp_rank", "pp_rank", "moe_ep_rank"]);

/** One of an engine's data-parallel ranks. */
interface RankOfEngine {
  readonly rank: number;
  readonly ranks: number;
}

const sourcesByName = new Map<string, { readonly source: SignalSource; readonly order: number }[]>();
for (const [order, source] of signalSources.entries()) {
  const known = sourcesByName.get(source.name) ?? [];
  known.push({ source, order });
  sourcesByName.set(source.name, known);
}

/**
 * Reads the numbers a router needs from a page in the Prometheus text format.
 *
 * One engine may report several series of a metric, one per data-parallel rank or model. Counts and totals are summed.
 * The cache use is their mean (the ranks have caches of one size). The block size is their maximum, as is a number that
 * each series gives for the whole engine. Series that differ only in the rank inside one scheduler are copies, and the
 * largest counts.
 *
 * @param ofRank reads the numbers of one data-parallel rank, by vLLM's label `engine` or SGLang's `dp_rank`
 */
export function readMetricsPage(page: string, ofRank?: RankOfEngine): MetricsReading {
  /** For each source its series: labels without the copy labels, and the largest value seen. */
  const found: (Map<string, number> | undefined)[] = new Array(signalSources.length);
  let dialect: EngineDialect | undefined;
  let malformedLines = 0;
  let samples = 0;
  let processStartS = Number.NaN;
  const adapterSamples = createAdapterSamples();
  let at = 0;
  while (at < page.length) {
    const newline = page.indexOf("\n", at);
    const end = newline < 0 ? page.length : newline;
    const name = hasKnownPrefix(page, at) ? page.slice(at, nameEnd(page, at, end)) : "";
    const sources = name === "" ? undefined : sourcesByName.get(name);
    if (name === processStartMetric) processStartS = parseSample(page.slice(at, end))?.value ?? Number.NaN;
    if (name === adapterMetric) {
      samples += 1;
      if (samples > maxSamples || !addAdapters(page.slice(at, end), adapterSamples, ofRank)) malformedLines += 1;
    }
    if (sources) {
      samples += 1;
      dialect ??= sources[0]!.source.dialect;
      if (samples > maxSamples || !addSample(page.slice(at, end), sources, found, ofRank)) malformedLines += 1;
    }
    at = end + 1;
  }
  const adapters = adapterSamples.newest();
  const values = combine(found, ofRank);
  return { dialect, values, ...(adapters && { adapters }), processStartS, malformedLines };
}

/** Most lines of a page are comments, histogram buckets and process metrics; this rules most out by one character. */
function hasKnownPrefix(page: string, at: number): boolean {
  switch (page.charCodeAt(at)) {
    case 0x76: // v
      return page.startsWith("vllm:", at);
    case 0x73: // s
      return page.startsWith("sglang:", at);
    case 0x74: // t
      return page.startsWith("trtllm_", at);
    case 0x6e: // n
      return page.startsWith("nv_", at);
    case 0x70: // p
      return page.startsWith(processStartMetric, at);
    default:
      return false;
  }
}

function nameEnd(page: string, start: number, end: number): number {
  for (let at = start; at < end; at++) {
    const code = page.charCodeAt(at);
    if (code === 0x7b || code <= 0x20) return at;
  }
  return end;
}

/** @returns false when the line is malformed */
function addSample(
  line: string,
  sources: readonly { readonly source: SignalSource; readonly order: number }[],
  found: (Map<string, number> | undefined)[],
  ofRank: RankOfEngine | undefined,
): boolean {
  const sample = parseSample(line);
  if (!sample) return false;
  if (isOfOtherRank(sample, ofRank)) return true;
  let series: string | undefined;
  for (const { source, order } of sources) {
    if (source.where && sample.labels.get(source.where[0]) !== source.where[1]) continue;
    const value = source.fromLabel ? Number(sample.labels.get(source.fromLabel)) : sample.value;
    // A client library writes NaN, and an info gauge "None", for a number that is not known yet.
    if (Number.isNaN(value)) continue;
    if (value < 0 || value > Number.MAX_SAFE_INTEGER) return false;
    series ??= seriesKey(sample.labels);
    found[order] ??= new Map();
    found[order].set(series, Math.max(value, found[order].get(series) ?? 0));
  }
  return true;
}

/** @returns false when the line is malformed */
function addAdapters(line: string, samples: AdapterSamples, ofRank: RankOfEngine | undefined): boolean {
  const sample = parseSample(line);
  return sample !== undefined && (isOfOtherRank(sample, ofRank) || samples.add(sample));
}

function isOfOtherRank({ labels }: Sample, ofRank: RankOfEngine | undefined): boolean {
  const rank = labels.get("dp_rank") ?? labels.get("engine");
  return ofRank !== undefined && rank !== undefined && rank !== String(ofRank.rank);
}

function seriesKey(labels: ReadonlyMap<string, string>): string {
  let key = "";
  for (const [name, value] of labels) if (!copyLabels.has(name)) key += `${name}=${value};`;
  return key;
}

function combine(
  found: readonly (ReadonlyMap<string, number> | undefined)[],
  ofRank: RankOfEngine | undefined,
): SignalValues {
  const values = unknownSignals();
  for (const [order, source] of signalSources.entries()) {
    const series = found[order];
    if (!series || !Number.isNaN(values[source.field])) continue;
    const value = combineSeries(source, series);
    values[source.field] = source.isWhole && ofRank ? value / ofRank.ranks : value;
  }
  return values;
}

function combineSeries({ field, isWhole }: SignalSource, series: ReadonlyMap<string, number>): number {
  if (field === "blockSize" || isWhole) return Math.max(...series.values());
  let sum = 0;
  for (const value of series.values()) sum += value;
  return field === "kvUse" ? Math.min(1, sum / series.size) : sum;
}

/** One sample line of the Prometheus text format, without its name. */
interface Sample {
  readonly labels: ReadonlyMap<string, string>;
  /** NaN when the line says so. */
  readonly value: number;
}

const noLabels: ReadonlyMap<string, string> = new Map();

const labelPattern = /\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"\s*(,?)/y;

/** Characters in a line; a longer one is malformed. The longest seen, vLLM's `cache_config_info`, has about 1,500. */
const maxLineLength = 64 * 1024;

/**
 * Parses `name{label="value",...} number [timestamp]`.
 *
 * @returns undefined when the line has another shape
 */
function parseSample(line: string): Sample | undefined {
  if (line.length > maxLineLength) return undefined;
  const open = line.indexOf("{");
  const space = line.search(/\s/);
  if (open < 0 || (space >= 0 && space < open)) return withValue(noLabels, space < 0 ? "" : line.slice(space));
  const labels = new Map<string, string>();
  let at = open + 1;
  for (;;) {
    labelPattern.lastIndex = at;
    const match = labelPattern.exec(line);
    if (!match) break;
    labels.set(match[1]!, match[2]!);
    at = labelPattern.lastIndex;
    if (!match[3]) break;
  }
  while (line.charCodeAt(at) === 0x20) at += 1;
  return line[at] === "}" ? withValue(labels, line.slice(at + 1)) : undefined;
}

/** The text of a label's value as it was before it was escaped for the page. */
function unescapeLabel(value: string): string {
  return value.replace(/\\(.)/g, (_, character: string) => (character === "n" ? "\n" : character));
}

function withValue(labels: ReadonlyMap<string, string>, rest: string): Sample | undefined {
  const text = rest.trim().split(/\s/, 1)[0]!;
  if (text === "NaN") return { labels, value: Number.NaN };
  const value = text === "" ? Number.NaN : Number(text);
  return Number.isNaN(value) ? undefined : { labels, value };
}

/** The metric of vLLM that names the LoRA adapters in use (`v1/metrics/loggers.py`). Its value is the time in Unix seconds. */
const adapterMetric = "vllm:lora_requests_info";

/** The LoRA adapters of an engine's requests, by its metrics. */
export interface AdapterReading {
  /** Most adapters that can be in use at once. */
  readonly slots: number;
  /** Adapters of running requests. */
  readonly running: readonly string[];
  /** Adapters of waiting requests. */
  readonly waiting: readonly string[];
}

/** Most names read from one list; further ones are left out. */
export const maxAdapterNames = 256;

/** A larger number of slots is malformed. */
const maxSlots = 65_536;

/** A page has a series for each combination of adapters since the engine's start. The newest one is current. */
interface AdapterSamples {
  /** @returns false when the sample cannot be used */
  add(sample: Sample): boolean;
  /** Undefined without a usable sample: vLLM has none before its first request for an adapter. */
  newest(): AdapterReading | undefined;
}

function createAdapterSamples(): AdapterSamples {
  let newest: Sample | undefined;
  return {
    add(sample) {
      const slots = Number(sample.labels.get("max_lora"));
      if (!(Number.isInteger(slots) && slots >= 1 && slots <= maxSlots) || !(sample.value >= 0)) return false;
      if (!newest || sample.value >= newest.value) newest = sample;
      return true;
    },
    newest: () =>
      newest && {
        slots: Number(newest.labels.get("max_lora")),
        running: namesOf(newest.labels.get("running_lora_adapters")),
        waiting: namesOf(newest.labels.get("waiting_lora_adapters")),
      },
  };
}

/** Comma-separated names. A name that contains a comma reads as two. */
function namesOf(label = ""): readonly string[] {
  const names = unescapeLabel(label)
    .split(",", maxAdapterNames + 1)
    .map((name) => name.trim());
  const usable = names.filter((name) => name !== "" && name.length <= maxModelNameLength);
  return [...new Set(usable)].slice(0, maxAdapterNames);
}
