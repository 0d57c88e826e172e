// Short ways to write panels. Every query is narrowed to the routers that the dashboard's variables choose.

/** Label matchers of the variables `job` and `instance`. */
const chosen = 'job=~"$job", instance=~"$instance"';

/** @param {string} name of a metric @param {string} [matchers] further label matchers */
export const of = (name, matchers) => `${name}{${matchers ? `${matchers}, ` : ""}${chosen}}`;

/** How fast a counter grows, per second. */
export const rate = (name, matchers) => `rate(${of(name, matchers)}[$__rate_interval])`;

/** The sum over all series, or by some labels. */
export const sum = (expression, by) => `sum${by ? ` by (${by})` : ""} (${expression})`;

/** A quantile of a histogram, over all series or by some labels. */
export const quantile = (q, name, { by, matchers } = {}) =>
  `histogram_quantile(${q}, ${sum(rate(`${name}_bucket`, matchers), by ? `le, ${by}` : "le")})`;

/** The mean of a histogram. */
export const mean = (name) => `${sum(rate(`${name}_sum`))} / ${sum(rate(`${name}_count`))}`;

/** Median and 99th percentile of a histogram as two lines. */
export const quantiles = (name) => [
  [quantile(0.5, name), "p50"],
  [quantile(0.99, name), "p99"],
];

/**
 * A plot of lines over time.
 *
 * @param {string} title
 * @param {string} unit of Grafana: s, short, percentunit, Bps, bytes, reqps, ops
 * @param {readonly (readonly [string, string])[]} queries expression and legend
 * @param {string} description what it means when it is not as it should be
 */
export const plot = (title, unit, queries, description) => ({ kind: "timeseries", title, unit, queries, description });

/** One large number, the latest. */
export const stat = (title, unit, queries, description) => ({ kind: "stat", title, unit, queries, description });

/** A heading above the panels that follow. */
export const row = (title) => ({ kind: "row", title });

const width = { timeseries: 8, stat: 4, row: 24 };
const height = { timeseries: 8, stat: 4, row: 1 };

/** Places panels from left to right, each row under the last, and gives Grafana's JSON for them. */
export function layOut(panels) {
  let x = 0;
  let y = 0;
  let rowHeight = 0;
  return panels.map((panel, at) => {
    const size = { w: width[panel.kind], h: height[panel.kind] };
    if (x + size.w > 24) {
      x = 0;
      y += rowHeight;
      rowHeight = 0;
    }
    const gridPos = { x, y, ...size };
    x += size.w;
    rowHeight = Math.max(rowHeight, size.h);
    return panel.kind === "row" ? rowJson(panel, at + 1, gridPos) : panelJson(panel, at + 1, gridPos);
  });
}

const datasource = { type: "prometheus", uid: "${datasource}" };

const rowJson = ({ title }, id, gridPos) => ({ id, type: "row", title, gridPos, collapsed: false, panels: [] });

function panelJson({ kind, title, unit, queries, description }, id, gridPos) {
  return {
    id,
    type: kind,
    title,
    description,
    gridPos,
    datasource,
    fieldConfig: { defaults: { unit, min: 0 }, overrides: [] },
    options:
      kind === "stat"
        ? {
            reduceOptions: { calcs: ["lastNotNull"], fields: "", values: false },
            colorMode: "value",
            graphMode: "area",
          }
        : { legend: { displayMode: "list", placement: "bottom" }, tooltip: { mode: "multi", sort: "desc" } },
    targets: queries.map(([expr, legendFormat], index) => ({
      refId: String.fromCharCode("A".charCodeAt(0) + index),
      datasource,
      expr,
      legendFormat,
      ...(kind === "stat" ? { instant: true } : {}),
    })),
  };
}
