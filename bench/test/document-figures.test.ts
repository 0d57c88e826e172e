import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { type KeptFigure, namedFigures, withFigures } from "../src/document-figures.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const read = (path: string): string => readFileSync(`${root}/${path}`, "utf8");
const kept = JSON.parse(read("docs/benchmarks/figures.json")) as Readonly<Record<string, KeptFigure>>;
const figures = namedFigures(JSON.parse(read("docs/benchmarks/peers.json")), kept);
const documents = execFileSync("git", ["ls-files", "*.md"], { cwd: root, encoding: "utf8" })
  .split("\n")
  .filter(Boolean);

test.each(documents)(
  "the figures in %s are those of the last measured runs; `npm run docs` renews them",
  (document) => {
    const text = read(document);
    expect(withFigures(text, figures)).toBe(text);
  },
);

test("every named figure has a place in a document", () => {
  const texts = documents.map(read).join("\n");
  expect([...figures.keys()].filter((name) => !texts.includes(`<!-- figure: ${name} -->`))).toEqual([]);
});

test.each(Object.entries(kept))("%s and the command that makes it are in its section of a page", (_name, each) => {
  const [page = "", anchor = ""] = each.section.split("#");
  const section = sectionOf(read(`docs/benchmarks/${page}`), anchor);
  expect(section).toMatch(new RegExp(`(?<![\\d.,])${each.figure.replaceAll(".", "\\.")}(?![\\d.,]*\\d)`));
  expect(section).toContain(each.command);
});

/** The text from the heading with this anchor to the next heading. */
function sectionOf(text: string, anchor: string): string {
  const sections = text.split(/^(?=#{1,6} )/m);
  const slugOf = (section: string): string =>
    (/^#+ (.*)/.exec(section)?.[1] ?? "").toLowerCase().replaceAll(/[^\w\- ]/g, "");
  return sections.find((section) => slugOf(section).replaceAll(" ", "-") === anchor) ?? "";
}

test("figures go into marked places only; a name or a product that is missing is an error that says which", () => {
  const rows = [
    { name: "espalier", cpu_us_4k: 70.4, cpu_us_48k: 140.5 },
    { name: "smg", cpu_us_4k: 1, cpu_us_48k: 2 },
  ];
  expect(() => namedFigures({ rows }, {})).toThrow("no figures of sglang-router");
  const all = [...rows, { name: "sglang-router", cpu_us_4k: 3, cpu_us_48k: 4 }];
  const named = namedFigures({ rows: all }, { "a.b": { figure: "7 %", section: "a", command: "b" } });
  const place = (name: string, figure: string): string => `7 <!-- figure: ${name} -->${figure}<!-- /figure --> 7`;
  expect(withFigures(place("cpu.espalier", "old"), named)).toBe(place("cpu.espalier", "70 / 141 us"));
  expect(withFigures(`${place("a.b", "6 %")}${place("a.b", "")}`, named)).toBe(
    `${place("a.b", "7 %")}${place("a.b", "7 %")}`,
  );
  expect(() => withFigures(place("a.c", ""), named)).toThrow("unknown figure a.c");
});
