import type { LogFields, Logger, Meter } from "@espalier/core";

export interface LogLine {
  readonly level: "debug" | "info" | "warn" | "error";
  readonly message: string;
  readonly fields: LogFields;
}

/** A logger that keeps its lines, and those of its children, for assertions. */
export function createRecordingLogger(): Logger & { readonly lines: readonly LogLine[] } {
  const lines: LogLine[] = [];
  const at = (base: LogFields): Logger => {
    const write =
      (level: LogLine["level"]) =>
      (message: string, fields: LogFields = {}): void => {
        lines.push({ level, message, fields: { ...base, ...fields } });
      };
    return {
      debug: write("debug"),
      info: write("info"),
      warn: write("warn"),
      error: write("error"),
      child: (fields) => at({ ...base, ...fields }),
    };
  };
  return { ...at({}), lines };
}

/** A meter whose values can be read by name and labels. */
export interface SeriesMeter extends Meter {
  /** Undefined for a series that does not exist. */
  value(name: string, ...labels: readonly string[]): number | undefined;
  /** Of all series that exist, as `name{label,label}`, sorted. */
  readonly names: readonly string[];
}

/** A series has no value before its first use. Observations of histograms are not kept. */
export function createSeriesMeter(): SeriesMeter {
  const { meter, values } = createReadings((name, labels) => `${name}{${labels.join(",")}}`);
  return {
    ...meter,
    value: (name, ...labels) => values.get(`${name}{${labels.join(",")}}`),
    get names() {
      return [...values.keys()].sort();
    },
  };
}

/** A meter whose values tests can read: the sum of a counter, the last value of a gauge, how often a histogram was fed. */
export interface CountingMeter extends Meter {
  /** The value of a series; 0 when it was never used. */
  value(name: string, ...labels: readonly string[]): number;
}

export function createCountingMeter(): CountingMeter {
  const { meter, values } = createReadings((name, labels) => [name, ...labels].join("|"), true);
  return { ...meter, value: (name, ...labels) => values.get([name, ...labels].join("|")) ?? 0 };
}

/** A meter, and the values of its series by their key. */
function createReadings(keyOf: (name: string, labels: readonly string[]) => string, countsObservations = false) {
  const values = new Map<string, number>();
  const metric = (name: string, labelNames: readonly string[], known = new Map<string, readonly string[]>()) => ({
    series: (...labels: readonly string[]) => {
      const key = keyOf(name, labels);
      known.set(key, labels);
      const add = (amount = 1): void => void values.set(key, (values.get(key) ?? 0) + amount);
      const set = (value: number): void => void values.set(key, value);
      return { add, set, observe: () => (countsObservations ? add() : undefined) };
    },
    forget: (label: string, value: string): void => {
      for (const [key, labels] of known) if (labels[labelNames.indexOf(label)] === value) values.delete(key);
    },
  });
  const meter: Meter = {
    counter: (name, _help, labels = []) => metric(name, labels),
    gauge: (name, _help, labels = []) => metric(name, labels),
    histogram: (name, _help, _buckets, labels = []) => metric(name, labels),
  };
  return { meter, values };
}
