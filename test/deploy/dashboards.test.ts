import { describeMetrics } from "@espalier/server";
import { expect, test } from "vitest";
import { filesIn, readText, root } from "./files.ts";
import { checkQuery } from "./prom-query.ts";

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } };
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly legendFormat: string }[];
}

interface Dashboard {
  readonly uid: string;
  readonly title: string;
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: unknown }[] };
  readonly panels: readonly Panel[];
}

const files = filesIn("deploy/grafana", ".json");
const dashboards = files.map((file) => JSON.parse(readText(file)) as Dashboard);
const panels = dashboards.flatMap(({ title, panels }) => panels.map((panel) => ({ of: title, ...panel })));
const queries = panels.flatMap(({ of, title, targets = [] }) =>
  targets.map(({ expr, legendFormat }) => ({ where: `${of} / ${title}`, expr, legendFormat })),
);
/** As Grafana fills it in. */
const filled = (expr: string): string => expr.replaceAll("$__rate_interval", "1m");

test("the files are what the script beside them writes", async () => {
  const written = (await import(`${root}deploy/grafana/write.mjs`)) as {
    readonly dashboardFiles: () => Readonly<Record<string, string>>;
  };
  expect(Object.fromEntries(files.map((file) => [file.split("/").at(-1), readText(file)]))).toEqual(
    written.dashboardFiles(),
  );
});

test("every query names metrics that exist, with labels that they have", () => {
  expect(queries.length).toBeGreaterThan(100);
  const problems = queries.flatMap(({ where, expr }) =>
    checkQuery(filled(expr)).problems.map((problem) => `${where}: ${problem} in ${expr}`),
  );
  expect(problems).toEqual([]);
});

test("every legend names labels that the query keeps", () => {
  const problems = queries.flatMap(({ where, expr, legendFormat }) => {
    const named = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!);
    const kept = expr.match(/\bby \(([^)]*)\)/)?.[1]?.split(/, */);
    return named
      .filter((label) => !(kept ?? ["instance", "job"]).includes(label))
      .map((label) => `${where}: ${label} is not in the result of ${expr}`);
  });
  expect(problems).toEqual([]);
});

test("every metric of a router is on a panel", () => {
  const shown = new Set(queries.flatMap(({ expr }) => [...checkQuery(filled(expr)).metrics]));
  const missing = describeMetrics().filter(({ name }) => !shown.has(name));
  expect(missing.map(({ name }) => name)).toEqual([]);
});

test("panels have ids of their own, do not lie upon each other, and say what they mean", () => {
  for (const { panels, title } of dashboards) {
    expect(new Set(panels.map(({ id }) => id)).size, title).toBe(panels.length);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, at) => `${x + (at % w)} ${y + Math.floor(at / w)}`),
    );
    expect(new Set(cells).size, title).toBe(cells.length);
    for (const { gridPos, type, description } of panels) {
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
      if (type !== "row") expect(description).toMatch(/\S.*\.$/s);
    }
  }
  expect(new Set(dashboards.map(({ uid }) => uid)).size).toBe(dashboards.length);
});

test("the variables of the dashboards read what exists, and every query is narrowed by them", () => {
  for (const { templating } of dashboards) {
    const queried = templating.list.flatMap(({ query }) =>
      [...JSON.stringify(query).matchAll(/label_values\((\w+)/g)].map(([, name]) => name),
    );
    expect(queried).toEqual(["espalier_requests_in_flight", "espalier_requests_in_flight"]);
    expect(templating.list.map(({ name }) => name)).toEqual(["datasource", "job", "instance"]);
  }
  for (const { expr } of queries) {
    const selectors = expr.match(/\w+\{[^}]*\}/g) ?? [];
    expect(selectors.length).toBeGreaterThan(0);
    for (const selector of selectors) expect(selector).toMatch(/job=~"\$job", instance=~"\$instance"\}$/);
  }
});
