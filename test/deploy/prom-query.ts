import { describeMetrics } from "@espalier/server";
import type { SyntaxNode } from "@lezer/common";
import { parser } from "@prometheus-io/lezer-promql";

interface KnownMetric {
  readonly type: string;
  readonly labels: readonly string[];
}

/** What Prometheus adds to whatever it scrapes. */
const targetLabels = ["job", "instance"];
/** Of the process and of Node.js, which `/metrics` shows as well, and Prometheus' own. */
const others: readonly (readonly [string, KnownMetric])[] = [
  ["up", { type: "gauge", labels: [] }],
  ["process_cpu_seconds_total", { type: "counter", labels: [] }],
  ["process_resident_memory_bytes", { type: "gauge", labels: [] }],
  ["nodejs_eventloop_lag_p99_seconds", { type: "gauge", labels: [] }],
];

/** Every metric of a router by name, as the code registers them. */
const catalogue: ReadonlyMap<string, KnownMetric> = new Map([
  ...describeMetrics().map(({ name, type, labels }) => [name, { type, labels }] as const),
  ...others,
]);

/** What a query reads. */
export interface QueryReport {
  /** What is wrong with it, in one line each. */
  readonly problems: readonly string[];
  /** Names from the catalogue, without the endings of histograms. */
  readonly metrics: ReadonlySet<string>;
}

/**
 * Parses a query with Prometheus' own grammar and compares what it reads with the catalogue: names, labels, that counters
 * are read by their rate and gauges are not, and that histograms are read by their parts.
 *
 * @param recorded names that recording rules make, by the labels that they keep
 */
export function checkQuery(query: string, recorded: ReadonlyMap<string, readonly string[]> = new Map()): QueryReport {
  const problems: string[] = [];
  const metrics = new Set<string>();
  const text = (node: SyntaxNode): string => query.slice(node.from, node.to);
  parser.parse(query).iterate({
    enter({ node }) {
      if (node.type.isError) problems.push(`is no PromQL at character ${node.from}`);
      if (node.name === "VectorSelector") readSelector(node);
      if (node.name === "FunctionCall" && text(node).startsWith("histogram_quantile")) readQuantile(node);
    },
  });
  return { problems, metrics };

  function readSelector(node: SyntaxNode): void {
    const identifier = node.getChild("Identifier");
    const name = identifier ? text(identifier) : "";
    const labels = readName(name, node);
    if (labels === undefined) return;
    const used = [...namesIn(node, "LabelName"), ...labelsAround(node)].map(text);
    for (const label of used.filter((one) => !labels.includes(one))) problems.push(`${name} has no label ${label}`);
  }

  /** @returns the labels that it has; undefined when it is not known */
  function readName(name: string, node: SyntaxNode): readonly string[] | undefined {
    const kept = recorded.get(name);
    if (kept) return kept;
    const part = /_(?:bucket|sum|count)$/.exec(name)?.[0];
    const histogram = part === undefined ? undefined : catalogue.get(name.slice(0, -part.length));
    const found = histogram?.type === "histogram" ? histogram : catalogue.get(name);
    if (found === undefined) {
      problems.push(`${name} does not exist`);
      return undefined;
    }
    metrics.add(found === histogram ? name.slice(0, -part!.length) : name);
    const isRate = isInRate(node);
    if (found.type === "histogram" && found !== histogram) problems.push(`${name} is a histogram: read its parts`);
    else if (found.type === "gauge" && isRate) problems.push(`${name} is a gauge, which has no rate`);
    else if (found.type !== "gauge" && !isRate) problems.push(`${name} only grows: read its rate`);
    return [...targetLabels, ...found.labels, ...(part === "_bucket" ? ["le"] : [])];
  }

  function readQuantile(node: SyntaxNode): void {
    const selectors = namesIn(node, "VectorSelector").map((one) => text(one.getChild("Identifier")!));
    const groupings = namesIn(node, "GroupingLabels").flatMap((one) => namesIn(one, "LabelName").map(text));
    if (!selectors.every((name) => name.endsWith("_bucket"))) problems.push("a quantile is read from buckets");
    if (!groupings.includes("le")) problems.push("a quantile needs the label le");
  }

  function isInRate(node: SyntaxNode): boolean {
    for (let at = node.parent; at; at = at.parent)
      if (at.name === "FunctionCall" && /^(?:rate|increase)\(/.test(text(at))) return true;
    return false;
  }
}

/** All nodes of a kind below one. */
function namesIn(node: SyntaxNode, kind: string): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  node.cursor().iterate((one) => {
    if (one.name === kind) found.push(one.node);
  });
  return found;
}

/** Labels by which aggregations around a selector group it. */
function labelsAround(node: SyntaxNode): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let at = node.parent; at; at = at.parent) {
    const modifier = at.name === "AggregateExpr" ? at.getChild("AggregateModifier") : null;
    if (modifier) found.push(...namesIn(modifier, "LabelName"));
  }
  return found;
}
