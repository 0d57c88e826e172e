import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readWholePage } from "./whole-page.ts";

/** One scheduler: a data-parallel rank of one model, seen by one or more of the processes inside it. */
interface Scheduler {
  readonly running: number;
  readonly waiting: number;
  readonly tokenUse: number;
  readonly pages: number;
  readonly copies: number;
}

/** How the same page may be written. */
interface Style {
  readonly timestamp: boolean;
  readonly comments: boolean;
  readonly trailingComma: boolean;
  readonly windows: boolean;
  readonly lastNewline: boolean;
  readonly model: string;
}

const scheduler: fc.Arbitrary<Scheduler> = fc.record({
  running: fc.nat(500),
  waiting: fc.nat(500),
  tokenUse: fc.integer({ min: 0, max: 1_000 }).map((thousandths) => thousandths / 1_000),
  pages: fc.integer({ min: 1, max: 100_000 }),
  copies: fc.integer({ min: 1, max: 4 }),
});

const style: fc.Arbitrary<Style> = fc.record({
  timestamp: fc.boolean(),
  comments: fc.boolean(),
  trailingComma: fc.boolean(),
  windows: fc.boolean(),
  lastNewline: fc.boolean(),
  model: fc.constantFrom("m", "org/Model-8B", 'quo"ted', "back\\slash", "br{ac}es, and = commas", "多語 модель", ""),
});

const escapeLabel = (value: string): string => value.replaceAll("\\", "\\\\").replaceAll('"', '\\"');

function renderPage(schedulers: readonly Scheduler[], { model, ...written }: Style): string {
  const lines: string[] = [];
  const sample = (name: string, labels: readonly string[], value: number): void => {
    const comma = written.trailingComma ? "," : "";
    lines.push(`${name}{${labels.join(",")}${comma}} ${value}${written.timestamp ? " 1795227029276" : ""}`);
  };
  const family = (name: string, read: (scheduler: Scheduler) => number): void => {
    if (written.comments) lines.push(`# HELP ${name} Help with a { brace.`, `# TYPE ${name} gauge`, "");
    for (const [rank, one] of schedulers.entries()) {
      for (let copy = 0; copy < one.copies; copy++) {
        const labels = [`dp_rank="${rank}"`, `model_name="${escapeLabel(model)}"`, `tp_rank="${copy}"`];
        sample(name, labels, read(one));
      }
    }
  };
  family("sglang:num_running_reqs", ({ running }) => running);
  family("sglang:unknown_series", ({ running }) => running + 1);
  family("sglang:num_queue_reqs", ({ waiting }) => waiting);
  family("sglang:num_running_reqs_offline_batch", () => 999);
  family("sglang:token_usage", ({ tokenUse }) => tokenUse);
  family("sglang:num_pages", ({ pages }) => pages);
  family("sglang:page_size", () => 64);
  const newline = written.windows ? "\r\n" : "\n";
  return lines.join(newline) + (written.lastNewline ? newline : "");
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);

test("however a page is written, its numbers are those it was written from", () => {
  fc.assert(
    fc.property(fc.array(scheduler, { minLength: 1, maxLength: 8 }), style, (schedulers, written) => {
      const reading = readWholePage(renderPage(schedulers, written));
      expect(reading).toMatchObject({
        dialect: "sglang",
        malformedLines: 0,
        values: {
          running: sum(schedulers.map(({ running }) => running)),
          waiting: sum(schedulers.map(({ waiting }) => waiting)),
          blockCount: sum(schedulers.map(({ pages }) => pages)),
          blockSize: 64,
        },
      });
      expect(reading.values.kvUse).toBeCloseTo(sum(schedulers.map(({ tokenUse }) => tokenUse)) / schedulers.length, 9);
      expect(reading.values.promptTokensTotal).toBeNaN();
    }),
    { numRuns: randomRuns(300), seed: 17 },
  );
});

test("a page cut anywhere gives no number that the whole page does not bear out", () => {
  const written = {
    timestamp: false,
    comments: true,
    trailingComma: false,
    windows: false,
    lastNewline: true,
    model: "m",
  };
  const schedulers = [
    { running: 120, waiting: 7, tokenUse: 0.5, pages: 100, copies: 2 },
    { running: 30, waiting: 0, tokenUse: 0.25, pages: 100, copies: 1 },
  ];
  const page = renderPage(schedulers, written);
  const whole = readWholePage(page).values;
  for (let length = 0; length <= page.length; length++) {
    const { values, malformedLines } = readWholePage(page.slice(0, length));
    expect(malformedLines).toBeLessThanOrEqual(1);
    for (const field of ["running", "waiting", "blockCount"] as const) {
      expect(Number.isNaN(values[field]) || values[field] <= whole[field], `${field} at ${length}`).toBe(true);
    }
  }
});

test("a page of the greatest size is read in a small share of a second, however it is made", () => {
  const size = 4 * 1024 * 1024;
  const line = 'vllm:num_requests_running{a="';
  const pages = [
    `${line}${"x".repeat(size)}`,
    `${line}${'\\"'.repeat(32_000)}\n`.repeat(64),
    "vllm:num_requests_running 1\n".repeat(150_000),
    `${"vllm:num_requests_running{".repeat(2_000)}\n`.repeat(80),
    "\n".repeat(size),
    "v".repeat(size),
  ];
  for (const page of pages) {
    // Of the processor, which others may take away for a while.
    const before = process.cpuUsage();
    readWholePage(page);
    expect(process.cpuUsage(before).user / 1_000).toBeLessThan(1_000);
  }
});
