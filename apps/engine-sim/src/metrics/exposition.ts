import type { Histogram } from "./histogram.ts";

type Labels = Readonly<Record<string, string>>;

/** Writes one page of the Prometheus text format, version 0.0.4. */
interface Exposition {
  gauge(name: string, help: string, value: number, labels?: Labels): void;
  /** `name` ends in `_total`. */
  counter(name: string, help: string, value: number, labels?: Labels): void;
  histogram(name: string, help: string, histogram: Histogram): void;
  page(): string;
}

/** @param common labels of every sample */
export function createExposition(common: Labels): Exposition {
  let page = "";
  const declared = new Set<string>();
  const declare = (name: string, help: string, type: string): void => {
    if (declared.has(name)) return;
    declared.add(name);
    page += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  };
  const sample = (name: string, labels: Labels, value: number): void => {
    page += `${name}${labelText({ ...common, ...labels })} ${numberText(value)}\n`;
  };
  return {
    gauge(name, help, value, labels = {}) {
      declare(name, help, "gauge");
      sample(name, labels, value);
    },
    counter(name, help, value, labels = {}) {
      declare(name, help, "counter");
      sample(name, labels, value);
    },
    histogram(name, help, histogram) {
      declare(name, help, "histogram");
      const counts = histogram.cumulative();
      for (const [at, count] of counts.entries()) {
        const bound = histogram.bounds[at];
        sample(`${name}_bucket`, { le: bound === undefined ? "+Inf" : numberText(bound) }, count);
      }
      sample(`${name}_count`, {}, counts.at(-1) ?? 0);
      sample(`${name}_sum`, {}, histogram.sum());
    },
    page: () => page,
  };
}

function labelText(labels: Labels): string {
  const pairs = Object.entries(labels).map(
    ([name, value]) => `${name}="${value.replace(/[\\"\n]/g, escapeCharacter)}"`,
  );
  return pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
}

const escapeCharacter = (character: string): string => (character === "\n" ? "\\n" : `\\${character}`);

/** Floats as the Python client writes them: whole numbers keep a decimal. */
const numberText = (value: number): string => (Number.isInteger(value) ? `${value}.0` : String(value));
