import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { describeMetrics } from "../src/index.ts";

const packages = fileURLToPath(new URL("../..", import.meta.url));
const described = describeMetrics();
const names = new Set(described.map(({ name }) => name));

// Only what a router without a mesh registers used to be described: half of what a router of a mesh shows was in no document.
test("every metric that the sources name is described, whatever a router has to do to register it", () => {
  const sources = readdirSync(packages, { recursive: true, encoding: "utf8" }).filter((path) =>
    /^[\w-]+\/src\/.*\.ts$/.test(path),
  );
  const written = sources.flatMap((path) => {
    const text = readFileSync(packages + path, "utf8");
    return [...text.matchAll(/"(espalier_[a-z_]+_(?:total|seconds|bytes|requests|members|links))"/g)].map(
      ([, name]) => name!,
    );
  });
  expect(new Set(written).size).toBeGreaterThan(60);
  expect(written.filter((name) => !names.has(name))).toEqual([]);
});

test("each is described once, with words, by labels that Prometheus takes", () => {
  expect(names.size).toBe(described.length);
  for (const { name, help, type, labels } of described) {
    expect(name).toMatch(/^espalier_[a-z_]+$/);
    expect(help).toMatch(/^\S.*\.$/);
    expect(name.endsWith("_total")).toBe(type === "counter");
    for (const label of labels) expect(label).toMatch(/^[a-z]+$/);
  }
});

test("those of feeds and of what is shared are there", () => {
  for (const name of [
    "espalier_ready",
    "espalier_kv_feed_state",
    "espalier_feed_takeovers_total",
    "espalier_mesh_members",
    "espalier_load_lag_seconds",
    "espalier_redis_connected",
    "espalier_yjs_clients",
  ])
    expect(names).toContain(name);
});
