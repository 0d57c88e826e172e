interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A page of metrics, strictly parsed. */
export interface MetricsPage {
  readonly samples: readonly Sample[];
  /** By name: counter, gauge, histogram. */
  readonly types: ReadonlyMap<string, string>;
  /** Sum over the series of this name that have these labels. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
}

const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const label = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(?:,|$)/g;

/** @throws Error for a line that Prometheus' text format (0.0.4) does not have */
export function parseMetrics(text: string): MetricsPage {
  if (!text.endsWith("\n")) throw new Error("the page does not end with a line feed");
  const types = new Map<string, string>();
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("# HELP ")) continue;
    const type = /^# TYPE (\S+) (counter|gauge|histogram|summary|untyped)$/.exec(line);
    if (type) {
      if (types.has(type[1]!)) throw new Error(`${type[1]} has two TYPE lines`);
      types.set(type[1]!, type[2]!);
      continue;
    }
    samples.push(parseSample(line));
  }
  return {
    samples,
    types,
    sum: (name, labels = {}) =>
      samples
        .filter((sample) => sample.name === name)
        .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
        .reduce((sum, sample) => sum + sample.value, 0),
  };
}

function parseSample(line: string): Sample {
  const match = sampleLine.exec(line);
  if (!match) throw new Error(`not a sample: ${line}`);
  const labels: Record<string, string> = {};
  const written = match[2] ?? "";
  if (written.replace(label, "") !== "") throw new Error(`not labels: ${written}`);
  for (const [, name = "", value = ""] of written.matchAll(label)) labels[name] = value;
  const value = match[3] === "+Inf" ? Number.POSITIVE_INFINITY : Number(match[3]);
  // Prometheus reads it in any case, and prom-client writes "Nan".
  if (Number.isNaN(value) && match[3]?.toLowerCase() !== "nan") throw new Error(`not a number: ${line}`);
  return { name: match[1]!, labels, value };
}
