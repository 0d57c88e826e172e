import { expect, test } from "vitest";
import { detailLink, programsLink, readDetailLink } from "../src/model/detail-address.ts";
import { readOverview } from "../src/model/overview.ts";
import { type EngineRow, type EngineView, engineRows, viewedEngines } from "../src/model/rows.ts";
import { sections } from "./fixtures.ts";

const [like] = engineRows(readOverview(sections()));
const engine = (key: string, changes: Partial<EngineRow> = {}): EngineRow => ({ ...like!, key, ...changes });
const rows = [
  engine("gpu-2", { inFlight: 9, kvUse: null, blocks: 1, owner: "router-9" }),
  engine("gpu-10", { inFlight: 1, waiting: 4, kvUse: 0.5, blocks: 2, models: ["llama"] }),
  engine("gpu-1", { health: "down", inFlight: 0, kvUse: 0.1, blocks: 3, share: 0.9 }),
];
const view = (changes: Partial<EngineView>): string[] =>
  viewedEngines(rows, { by: "name", isDescending: false, query: "", ...changes }).map(({ key }) => key);

test("by state, engines that take nothing come first; by name, numbers count as such", () => {
  expect(view({ by: "state", isDescending: true })).toEqual(["gpu-1", "gpu-2", "gpu-10"]);
  expect(view({ by: "state" })).toEqual(["gpu-2", "gpu-10", "gpu-1"]);
  expect(view({})).toEqual(["gpu-1", "gpu-2", "gpu-10"]);
  expect(view({ isDescending: true })).toEqual(["gpu-10", "gpu-2", "gpu-1"]);
});

test.each([
  ["load", ["gpu-2", "gpu-10", "gpu-1"]],
  ["memory", ["gpu-10", "gpu-1", "gpu-2"]],
  ["blocks", ["gpu-1", "gpu-10", "gpu-2"]],
  ["share", ["gpu-1", "gpu-2", "gpu-10"]],
] as const)("by %s", (by, keys) => {
  expect(view({ by, isDescending: true })).toEqual(keys);
});

test("every word that is looked for has to be there: in the name, the models, the state or the reader", () => {
  expect(view({ query: "GPU-1" })).toEqual(["gpu-1", "gpu-10"]);
  expect(view({ query: "gpu llama" })).toEqual(["gpu-10"]);
  expect([view({ query: "down" }), view({ query: "router-9" }), view({ query: "nothing" })]).toEqual([
    ["gpu-1"],
    ["gpu-2"],
    [],
  ]);
  expect(rows.map(({ key }) => key)).toEqual(["gpu-2", "gpu-10", "gpu-1"]);
});

test("addresses of pages lead back to what they were made of, and others lead to the overview", () => {
  for (const key of ["10.0.0.1:8000", "router-1 7 1700", "a/b#c %"]) {
    expect(readDetailLink(detailLink("decision", key))).toEqual({ kind: "decision", key });
  }
  expect(readDetailLink(programsLink)).toEqual({ kind: "programs", key: "" });
  expect(readDetailLink(detailLink("programs", "c0ffee00"))).toEqual({ kind: "programs", key: "c0ffee00" });
  for (const strange of ["", "#", "#main", "#programs/", "#engine/", "#router/a", "#engine/%E0%A4%A"]) {
    expect(readDetailLink(strange), strange).toBeUndefined();
  }
});
