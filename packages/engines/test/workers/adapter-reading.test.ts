import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import { sharedPath } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxAdapterNames, maxModelNameLength, readMetricsPage } from "../../src/workers/index.ts";
import { readWholePage } from "./whole-page.ts";

const line = (running: string, waiting: string, value: number | string, more = 'max_lora="4"'): string =>
  `vllm:lora_requests_info{${more},running_lora_adapters="${running}",waiting_lora_adapters="${waiting}"} ${value}\n`;

test("of all combinations that there ever were the newest counts, wherever it stands", () => {
  const lines = [line("old", "", 1.7952270150751755e9), line("a,b", "c", 1.7952270187442672e9), line("", "", 12)];
  for (const page of [lines, lines.toReversed(), [lines[1]!, lines[0]!, lines[2]!]]) {
    const { adapters, dialect, malformedLines } = readWholePage(`vllm:num_requests_running 1\n${page.join("")}`);
    expect([adapters, dialect, malformedLines]).toEqual([{ slots: 4, running: ["a", "b"], waiting: ["c"] }, "vllm", 0]);
  }
});

test("a page that names none has none", () => {
  expect(readWholePage("vllm:num_requests_running 1\n").adapters).toBeUndefined();
  expect(readWholePage("sglang:num_running_reqs 1\n").adapters).toBeUndefined();
});

test("names lose the spaces around them and what was escaped for the page; a name twice counts once", () => {
  const { adapters } = readWholePage(line(String.raw` a , say \"b\" ,c\\d,,a`, "", 3));
  expect(adapters?.running).toEqual(["a", 'say "b"', String.raw`c\d`]);
});

test("of ranks with samples of their own each has its own", () => {
  const page = line("a", "", 5, 'engine="0",max_lora="1"') + line("b", "", 9, 'engine="1",max_lora="2"');
  expect(readMetricsPage(page, [0, 1]).ranks[0]?.adapters).toEqual({ slots: 1, running: ["a"], waiting: [] });
  expect(readMetricsPage(page, [0, 1]).ranks[1]?.adapters).toEqual({ slots: 2, running: ["b"], waiting: [] });
});

test.each([
  ["no slots", line("a", "", 5, 'max_lora="0"')],
  ["slots that are no number", line("a", "", 5, 'max_lora="many"')],
  ["slots beyond belief", line("a", "", 5, 'max_lora="65537"')],
  ["no time", line("a", "", "NaN")],
  ["a time before time", line("a", "", -1)],
  ["a broken line", 'vllm:lora_requests_info{max_lora="4 5\n'],
])("%s is malformed, and what else the page says still counts", (_, broken) => {
  const { adapters, malformedLines } = readWholePage(broken + line("b", "", 4));
  expect([adapters?.running, malformedLines]).toEqual([["b"], 1]);
});

test(`at most ${maxAdapterNames} names are read of a list, and none longer than a model's may be`, () => {
  const names = Array.from({ length: maxAdapterNames + 1 }, (_, number) => `a${number}`);
  expect(readWholePage(line(names.join(","), "", 1)).adapters?.running).toEqual(names.slice(0, -1));
  const long = "x".repeat(maxModelNameLength);
  expect(readWholePage(line(`${long},${long}x`, "", 1)).adapters?.running).toEqual([long]);
});

test.each(["vllm-0.23.0", "vllm-0.32.0"])("%s: what a real engine's page says", (capture) => {
  const folder = sharedPath("fixtures", capture);
  if (folder === undefined) return;
  const pages = gunzipSync(readFileSync(`${folder}/metrics.txt.gz`)).toString();
  expect(readWholePage(pages).adapters).toEqual({ slots: 1, running: [], waiting: [] });
});
