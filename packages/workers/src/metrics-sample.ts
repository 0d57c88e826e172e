/** One sample line of the Prometheus text format, without its name. */
export interface Sample {
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
export function parseSample(line: string): Sample | undefined {
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
export function unescapeLabel(value: string): string {
  return value.replace(/\\(.)/g, (_, character: string) => (character === "n" ? "\n" : character));
}

function withValue(labels: ReadonlyMap<string, string>, rest: string): Sample | undefined {
  const text = rest.trim().split(/\s/, 1)[0]!;
  if (text === "NaN") return { labels, value: Number.NaN };
  const value = text === "" ? Number.NaN : Number(text);
  return Number.isNaN(value) ? undefined : { labels, value };
}
