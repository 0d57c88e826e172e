import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import {
  type Figure,
  maxLineNames,
  maxLinePoints,
  maxPanels,
  type PlotLine,
  type PlotPanel,
  renderFigure,
} from "../../src/plot.ts";
import { elementsOf } from "./elements.ts";

const line = (name: string, values: readonly number[]): PlotLine => ({
  name,
  points: values.map((y, x) => ({ x, y })),
});

const panel = (title: string, ...lines: readonly PlotLine[]): PlotPanel => ({
  title,
  x: { label: "time (s)" },
  y: { label: "load" },
  lines,
});

const figure = (...panels: readonly PlotPanel[]): Figure => ({ title: "a title", description: "what it says", panels });

const render = (one: Figure) => elementsOf(renderFigure(one));

test("a figure is one well-formed document with a title and a description that readers are told of", () => {
  const elements = render(figure(panel("one", line("a", [1, 2, 3]))));
  const root = elements[0]!;
  expect(root.name).toBe("svg");
  expect(root.attributes).toMatchObject({ xmlns: "http://www.w3.org/2000/svg", role: "img" });
  expect(root.attributes["aria-labelledby"]).toBe("figure-title figure-desc");
  const byId = new Map(elements.map((element) => [element.attributes.id, element.text]));
  expect([byId.get("figure-title"), byId.get("figure-desc")]).toEqual(["a title", "what it says"]);
});

test("text is escaped wherever it stands", () => {
  const nasty = `<b>"R&D"</b> 'x'`;
  const document = renderFigure({
    title: nasty,
    description: nasty,
    panels: [{ title: nasty, x: { label: nasty }, y: { label: nasty }, lines: [line(nasty, [1, 2])] }],
  });
  expect(document).not.toContain("<b>");
  // Title, description, heading, panel, two axes, legend, and the line's own title.
  expect(elementsOf(document).filter(({ text }) => text === nasty)).toHaveLength(8);
});

test("colours follow the reader's scheme, and nothing is loaded or run", () => {
  const document = renderFigure(figure(panel("one", line("a", [1, 2]))));
  expect(document).toContain("@media(prefers-color-scheme:dark)");
  expect(document).not.toMatch(/<script|href|url\(|@import/);
});

test("a line of one name looks alike in all panels, and lines of other names differ", () => {
  const names = Array.from({ length: maxLineNames }, (_, at) => `line ${at}`);
  const lines = names.map((name, at) => line(name, [at, at + 1]));
  const elements = render(figure(panel("one", ...lines), panel("two", ...[...lines].reverse())));
  const looks = new Map<string, Set<string>>();
  for (const { name, text, children } of elements) {
    const path = children.find((child) => child.name === "path");
    const label = children.find((child) => child.name === "title" || child.name === "text")?.text ?? text;
    if (name !== "g" || !path?.attributes.class?.startsWith("line ") || !names.includes(label)) continue;
    looks.set(label, (looks.get(label) ?? new Set()).add(path.attributes.class));
  }
  expect([...looks.keys()].sort()).toEqual([...names].sort());
  for (const classes of looks.values()) expect(classes.size).toBe(1);
  expect(new Set([...looks.values()].map(([first]) => first)).size).toBe(maxLineNames);
});

test("few points are marked, many are not", () => {
  const circles = (count: number): number =>
    render(figure(panel("one", line("a", Array(count).fill(1))))).filter(({ name }) => name === "circle").length;
  expect([circles(1), circles(16), circles(17)]).toEqual([1, 16, 0]);
});

test("a point without a place breaks the line", () => {
  const path = pathOf(figure(panel("one", line("a", [1, 2, Number.NaN, 3, 4]))));
  expect(path.match(/M/g)).toHaveLength(2);
  expect(path.match(/L/g)).toHaveLength(2);
});

test("a line without any point with a place is left out, its axes are there", () => {
  const log: PlotPanel = { ...panel("one", line("a", [0, 0])), y: { label: "load", kind: "log" } };
  const elements = render(figure(log, panel("two")));
  const paths = elements.filter(({ name }) => name === "path").map(({ attributes }) => attributes.class);
  expect(paths.filter((look) => look?.startsWith("line "))).toHaveLength(1); // The legend's.
  expect(paths.filter((look) => look === "axis")).toHaveLength(2);
});

test("the spread is a band around the line, inside the chart", () => {
  const points = [1, 2, 3].map((y, x) => ({ x, y, low: y - 1, high: y + 1 }));
  const elements = render(figure(panel("one", { name: "a", points }, line("b", [2, 2, 2]))));
  const bands = elements.filter(({ attributes }) => attributes.class?.startsWith("band "));
  expect(bands).toHaveLength(1);
  const edge = numbersOf(bands[0]!.attributes.d!);
  expect(edge).toHaveLength(6);
  for (const [, y] of edge) {
    expect(y).toBeGreaterThanOrEqual(30);
    expect(y).toBeLessThanOrEqual(214);
  }
});

test("where a line goes: left to right, higher values higher, between the axes", () => {
  const random = createSeededRandom(8);
  const values = Array.from({ length: 300 }, () => random.float() * 1_000 + 0.001);
  for (const kind of ["linear", "log"] as const) {
    const places = numbersOf(pathOf(figure({ ...panel("one", line("a", values)), y: { label: "load", kind } })));
    expect(places).toHaveLength(values.length);
    for (let at = 1; at < places.length; at++) {
      expect(places[at]![0]).toBeGreaterThan(places[at - 1]![0]);
      if (values[at]! > values[at - 1]! * 1.02) expect(places[at]![1]).toBeLessThan(places[at - 1]![1] + 0.1);
    }
    for (const [x, y] of places) {
      expect(x >= 62 && x <= 386 && y >= 30 && y <= 214).toBe(true);
    }
  }
});

test("panels stand beside each other without overlap, in a picture that holds them", () => {
  for (const columns of [1, 2, 3]) {
    const panels = Array.from({ length: 5 }, (_, at) => panel(`panel ${at}`, line("a", [1, 2])));
    const elements = render({ ...figure(...panels), columns });
    const root = elements[0]!;
    const corners = elements
      .map(({ attributes }) => /^translate\((\d+) (\d+)\)$/.exec(attributes.transform ?? ""))
      .filter((match) => match !== null)
      .map(([, x, y]) => [Number(x), Number(y)] as const);
    expect(new Set(corners.map(String)).size).toBe(5);
    expect(new Set(corners.map(([x]) => x)).size).toBe(columns);
    for (const [x, y] of corners) {
      expect(x + 400).toBeLessThanOrEqual(Number(root.attributes.width));
      expect(y + 260).toBeLessThanOrEqual(Number(root.attributes.height));
    }
  }
});

test("the legend wraps where the picture ends", () => {
  const names = Array.from({ length: 12 }, (_, at) => `a policy with a long name ${at}`);
  const elements = render(figure(panel("one", ...names.map((name) => line(name, [1, 2])))));
  const places = names.map((name) => elements.find((element) => element.name === "text" && element.text === name)!);
  const width = Number(elements[0]!.attributes.width);
  for (const { attributes, text } of places) expect(Number(attributes.x) + text.length * 7).toBeLessThan(width);
  expect(new Set(places.map(({ attributes }) => `${attributes.x} ${attributes.y}`)).size).toBe(names.length);
});

test.each([
  { what: "panels", count: maxPanels, make: (count: number) => figure(...Array(count).fill(panel("p"))) },
  {
    what: "names of lines",
    count: maxLineNames,
    make: (count: number) => figure(panel("p", ...Array.from({ length: count }, (_, at) => line(`${at}`, [1])))),
  },
  {
    what: "points",
    count: maxLinePoints,
    make: (count: number) => figure(panel("p", line("a", Array(count).fill(1)))),
  },
])("up to $count $what", ({ what, count, make }) => {
  expect(() => renderFigure(make(count))).not.toThrow();
  expect(() => renderFigure(make(count + 1))).toThrow(RangeError);
  expect(() => renderFigure(make(count + 1))).toThrow(what);
});

test("a figure has at least one panel", () => {
  expect(() => renderFigure(figure())).toThrow("1 to 24 panels, not 0");
});

function pathOf(one: Figure): string {
  const lines = render(one).filter(({ name, children }) => name === "g" && children[0]?.name === "title");
  return lines[0]!.children.find(({ name }) => name === "path")!.attributes.d!;
}

const numbersOf = (path: string): readonly (readonly [number, number])[] =>
  [...path.matchAll(/(-?[\d.]+) (-?[\d.]+)/g)].map(([, x, y]) => [Number(x), Number(y)]);
