import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { readText, readYaml, root } from "./files.ts";
import { checkQuery } from "./prom-query.ts";

interface Rule {
  readonly record?: string;
  readonly alert?: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

const rulesOf = (path: string): readonly Rule[] => readYaml<RuleFile>(path)[0]!.groups.flatMap(({ rules }) => rules);
const recording = rulesOf("deploy/prometheus/rules.yml");
const alerts = rulesOf("deploy/prometheus/alerts.yml");
/** All of them are recorded by job, and nothing else. */
const recorded = new Map(recording.map(({ record }) => [record!, ["job"]]));

test("every query of the rules and alerts names metrics that exist, with labels that they have", () => {
  const problems = [...recording, ...alerts].flatMap(({ record, alert, expr }) =>
    checkQuery(expr, recorded).problems.map((problem) => `${record ?? alert}: ${problem}`),
  );
  expect(problems).toEqual([]);
});

test("recording rules are named by what they keep, once each, and the alerts use them", () => {
  expect(recorded.size).toBe(recording.length);
  for (const { record, expr } of recording) {
    expect(record).toMatch(/^job:espalier_\w+:(?:p\d+_|ratio_)?rate(?:5m|1d)$/);
    expect(expr).toMatch(/\bsum by \(job(?:, le)?\)/);
  }
});

test("every alert waits, has a severity, says what is the matter with labels that it has, and where to read on", () => {
  const operations = readText("docs/OPERATIONS.md");
  const anchors = [...operations.matchAll(/^#+ (.+)$/gm)].map(([, title]) =>
    title!
      .toLowerCase()
      .replace(/[^\w\s-]/g, "")
      .trim()
      .replaceAll(" ", "-"),
  );
  expect(new Set(alerts.map(({ alert }) => alert)).size).toBe(alerts.length);
  for (const { alert, expr, for: wait, labels, annotations } of alerts) {
    expect(alert).toMatch(/^Espalier[A-Z]\w+$/);
    expect(wait).toMatch(/^\d+m$/);
    expect(labels?.severity).toMatch(/^(?:critical|warning|info)$/);
    const [document, anchor = ""] = annotations!.runbook!.split("#");
    expect([document, anchors.includes(anchor)], alert).toEqual(["docs/OPERATIONS.md", true]);
    expect(operations, alert).toContain(`\`${alert}\``);
    for (const [, label] of annotations!.summary!.matchAll(/\$labels\.(\w+)/g))
      if (/\bby \(/.test(expr)) expect(expr.match(/\bby \(([^)]*)\)/)?.[1]?.split(", "), alert).toContain(label);
  }
});

test("the runbook names no alert and no metric that does not exist", () => {
  const operations = readText("docs/OPERATIONS.md");
  const named = new Set(alerts.map(({ alert }) => alert));
  for (const [, alert] of operations.matchAll(/`(Espalier[A-Z]\w+)`/g)) expect(named).toContain(alert);
  for (const [, name] of operations.matchAll(/`((?:job:)?espalier_[\w:]+)/g)) {
    const { problems } = checkQuery(name!, recorded);
    expect(problems.filter((problem) => problem.endsWith("does not exist"))).toEqual([]);
  }
});

const promtool = (...args: readonly string[]) => spawnSync("promtool", args, { cwd: root, encoding: "utf8" });

if (promtool("--version").status !== 0) {
  process.stderr.write("NOT RUN: Prometheus's own check of the rules and alerts; needs promtool\n");
} else {
  describe("promtool", () => {
    test("takes the configuration, the rules and the alerts", () => {
      const rules = promtool("check", "rules", "deploy/prometheus/rules.yml", "deploy/prometheus/alerts.yml");
      expect([rules.status, rules.stderr]).toEqual([0, ""]);
      const config = promtool("check", "config", "--syntax-only", "deploy/prometheus/prometheus.yml");
      expect([config.status, config.stderr]).toEqual([0, ""]);
    });

    test("finds that alerts come when they should, and say what is the matter", () => {
      const { status, stdout, stderr } = promtool("test", "rules", "test/deploy/alerts.promtool.yml");
      expect([status, stdout + stderr]).toEqual([0, expect.stringContaining("SUCCESS")]);
    });
  });
}
