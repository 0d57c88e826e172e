import {
  type EngineDialect,
  type SignalSource,
  type SignalValues,
  signalSources,
  unknownSignals,
} from "./engine-signals.ts";
import { maxModelNameLength } from "./served-models.ts";

/** One metrics page. */
export interface MetricsReading {
  /** Which engine's metrics the page has; undefined if none is known. */
  readonly dialect: EngineDialect | undefined;
  /** The numbers of each data-parallel rank, in the order asked for. */
  readonly ranks: readonly RankReading[];
  /** When the engine's process started, in Unix seconds; NaN where the page says nothing, as SGLang's. */
  readonly processStartS: number;
  /** Malformed lines with a known name. */
  readonly malformedLines: number;
  /** The ranks that the page names, ascending. */
  readonly rankNumbers: readonly number[];
}

/** The numbers of one data-parallel rank. */
export interface RankReading {
  /** NaN where the page says nothing. */
  readonly values: Readonly<SignalValues>;
  /** Absent where the page names no LoRA adapters. */
  readonly adapters?: AdapterReading;
}

/** Most ranks that a page may name; further ones are not listed. */
const maxRankNumbers = 1_024;

/** Samples with a known name beyond this many are counted as malformed and skipped. */
const maxSamples = 4_096;

/** What Prometheus clients write for the process as a whole, whatever the engine. */
const processStartMetric = "process_start_time_seconds";

/** The ranks inside one scheduler all report that scheduler's numbers: such samples are copies, not parts of a sum. */
const copyLabels: ReadonlySet<string> = new Set(["tp_rank", "pp_rank", "moe_ep_rank"]);

const sourcesByName = new Map<string, { readonly source: SignalSource; readonly order: number }[]>();
for (const [order, source] of signalSources.entries()) {
  const known = sourcesByName.get(source.name) ?? [];
  known.push({ source, order });
  sourcesByName.set(source.name, known);
}

/** 1 for the marks of names that are known. */
const knownMarks = new Uint8Array(2_048);

/**
 * Reads the numbers a router needs from a page in the Prometheus text format, in one pass.
 *
 * One engine may report several series of a metric, one per data-parallel rank or model. Counts and totals are summed.
 * The cache use is their mean (the ranks have caches of one size). The block size is their maximum, as is a number that
 * each series gives for the whole engine. Series that differ only in the rank inside one scheduler are copies, and the
 * largest counts.
 *
 * @param ranks the data-parallel ranks to read, as vLLM's label `engine` or SGLang's `dp_rank` numbers them. A series
 *   without such a label counts for each of them. With fewer than two, one reading has the sum of the whole page.
 */
export function readMetricsPage(page: string, ranks: readonly number[] = []): MetricsReading {
  const found = Array.from({ length: Math.max(1, ranks.length) }, createRankSamples);
  const numbers = new Set<number>();
  const byLabel = new Map(ranks.length < 2 ? [] : ranks.map((rank, at) => [String(rank), [found[at]!]]));
  const foundFor = ({ labels }: Sample): readonly RankSamples[] => {
    const rank = labels.get("dp_rank") ?? labels.get("engine");
    if (rank !== undefined && numbers.size < maxRankNumbers && /^\d{1,6}$/.test(rank)) numbers.add(Number(rank));
    return rank === undefined || byLabel.size === 0 ? found : (byLabel.get(rank) ?? []);
  };
  let dialect: EngineDialect | undefined;
  let malformedLines = 0;
  let samples = 0;
  let processStartS = Number.NaN;
  let at = 0;
  while (at < page.length) {
    const newline = page.indexOf("\n", at);
    const end = newline < 0 ? page.length : newline;
    const name = mayBeKnown(page, at) ? page.slice(at, nameEnd(page, at, end)) : "";
    const sources = name === "" ? undefined : sourcesByName.get(name);
    if (name === processStartMetric) processStartS = parseSample(page.slice(at, end))?.value ?? Number.NaN;
    if (sources || name === adapterMetric) {
      samples += 1;
      if (sources) dialect ??= sources[0]!.source.dialect;
      const sample = samples > maxSamples ? undefined : parseSample(page.slice(at, end));
      const isUsable =
        sample && (sources ? addSample(sample, foundFor(sample), sources) : addAdapters(sample, foundFor(sample)));
      if (!isUsable) malformedLines += 1;
    }
    at = end + 1;
  }
  return {
    dialect,
    ranks: found.map((samples) => readingOf(samples, found.length)),
    processStartS,
    malformedLines,
    rankNumbers: [...numbers].sort((a, b) => a - b),
  };
}

/** What a page says of one rank. */
interface RankSamples {
  /** By the order of its source: labels without the copy labels, and the largest value seen. */
  readonly series: (Map<string, number> | undefined)[];
  /** A page has a series for each combination of adapters since the engine's start. The newest one is current. */
  newestAdapters: Sample | undefined;
}

const createRankSamples = (): RankSamples => ({ series: [], newestAdapters: undefined });

/** Lines of a page with a name that is not known are told by four of its characters, mostly: nearly all are such lines. */
function mayBeKnown(page: string, at: number): boolean {
  return knownMarks[markOf(page, at)] === 1;
}

/** All names that are known are longer than the last of these places. */
function markOf(text: string, at: number): number {
  const first = text.charCodeAt(at) * 0x35 + text.charCodeAt(at + 5) * 0x1f;
  return (first + text.charCodeAt(at + 9) * 0x7 + text.charCodeAt(at + 13)) & (knownMarks.length - 1);
}

function nameEnd(page: string, start: number, end: number): number {
  for (let at = start; at < end; at++) {
    const code = page.charCodeAt(at);
    if (code === 0x7b || code <= 0x20) return at;
  }
  return end;
}

/** @returns false when the sample cannot be used */
function addSample(
  { labels, value: ownValue }: Sample,
  ranks: readonly RankSamples[],
  sources: readonly { readonly source: SignalSource; readonly order: number }[],
): boolean {
  let key: string | undefined;
  for (const { source, order } of sources) {
    // A label that is absent and one that is empty mean the same.
    if (source.where && (labels.get(source.where[0]) ?? "") !== source.where[1]) continue;
    const value = source.fromLabel ? Number(labels.get(source.fromLabel)) : ownValue;
    // A client library writes NaN, and an info gauge "None", for a number that is not known yet.
    if (Number.isNaN(value)) continue;
    if (value < 0 || value > Number.MAX_SAFE_INTEGER) return false;
    key ??= seriesKey(labels);
    for (const { series } of ranks) {
      series[order] ??= new Map();
      series[order].set(key, Math.max(value, series[order].get(key) ?? 0));
    }
  }
  return true;
}

function seriesKey(labels: ReadonlyMap<string, string>): string {
  let key = "";
  for (const [name, value] of labels) if (!copyLabels.has(name)) key += `${name}=${value};`;
  return key;
}

/** @param ranks that share what a series gives for the whole engine */
function readingOf({ series, newestAdapters }: RankSamples, ranks: number): RankReading {
  const values = unknownSignals();
  for (const [order, source] of signalSources.entries()) {
    const found = series[order];
    if (!found || !Number.isNaN(values[source.field])) continue;
    const { field, isWhole, reserved = 0 } = source;
    values[field] = combineSeries(source, found) / (isWhole ? ranks : 1) - reserved * found.size;
  }
  return { values, ...(newestAdapters && { adapters: adaptersOf(newestAdapters) }) };
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

for (const name of [...sourcesByName.keys(), adapterMetric, processStartMetric]) knownMarks[markOf(name, 0)] = 1;

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

/** @returns false when the sample cannot be used */
function addAdapters(sample: Sample, ranks: readonly RankSamples[]): boolean {
  const slots = Number(sample.labels.get("max_lora"));
  if (!(Number.isInteger(slots) && slots >= 1 && slots <= maxSlots) || !(sample.value >= 0)) return false;
  for (const rank of ranks) if (!(sample.value < (rank.newestAdapters?.value ?? 0))) rank.newestAdapters = sample;
  return true;
}

function adaptersOf({ labels }: Sample): AdapterReading {
  return {
    slots: Number(labels.get("max_lora")),
    running: namesOf(labels.get("running_lora_adapters")),
    waiting: namesOf(labels.get("waiting_lora_adapters")),
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
