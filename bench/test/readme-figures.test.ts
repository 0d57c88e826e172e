import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { withFigures } from "../src/peers/readme-figures.ts";

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

test("the README's figures are those of the last measured run; `npm run docs` renews them", () => {
  const readme = read("README.md");
  expect(withFigures(readme, JSON.parse(read("docs/benchmarks/peers.json")))).toBe(readme);
});

test("figures go into the marked row; a row or a product that is missing is an error that names it", () => {
  const row = "before\n| CPU <!-- cpu-row --> | ? |\n";
  const rows = [
    { name: "espalier", cpu_us_4k: 70.4, cpu_us_48k: 140.5 },
    { name: "smg", cpu_us_4k: 1, cpu_us_48k: 2 },
  ];
  expect(() => withFigures("no row", { rows })).toThrow("README.md has no row with <!-- cpu-row -->");
  expect(() => withFigures(row, { rows })).toThrow("no figures of sglang-router");
  const all = [...rows, { name: "sglang-router", cpu_us_4k: 3, cpu_us_48k: 4 }];
  const cells = "70 / 141 us | 1 / 2 us | 3 / 4 us | not measured | not measured | not measured";
  expect(withFigures(row, { rows: all })).toBe(`before\n| CPU <!-- cpu-row --> | ${cells} |\n`);
});
