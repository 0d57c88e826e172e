import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { createProgressBar } from "../src/output.ts";

function createOutput(terminal: boolean, columns = 80) {
  const written: string[] = [];
  return { isTTY: terminal, columns, written, write: (text: string) => written.push(text) };
}

const clear = "\u001b[K";
const bar = (filled: number): string => "█".repeat(filled) + "░".repeat(24 - filled);

test("on a terminal the bar is redrawn in place, at most every 100 ms", () => {
  const time = createVirtualTime();
  const output = createOutput(true);
  const progress = createProgressBar("replay", 100, output, time.clock);
  progress.update(1, "0 errors");
  for (let done = 2; done <= 50; done++) progress.update(done, "0 errors");
  expect(output.written).toEqual([`\rreplay ${bar(0)} 1/100  0 s  0 errors${clear}`]);
  time.advance(99);
  progress.update(51, "0 errors");
  expect(output.written).toHaveLength(1);
  time.advance(1);
  progress.update(52, "1 errors");
  expect(output.written).toEqual([expect.any(String), `\rreplay ${bar(12)} 52/100  0 s  1 errors${clear}`]);
});

test("the last update is always drawn, and the end leaves it on a line of its own", () => {
  const time = createVirtualTime();
  const output = createOutput(true);
  const progress = createProgressBar("replay", 2, output, time.clock);
  progress.update(1, "");
  time.advance(50);
  progress.update(2, "done");
  progress.end();
  expect(output.written.slice(1)).toEqual([`\rreplay ${bar(24)} 2/2  0 s  done${clear}`, "\n"]);
});

test("an end before the total shows how far it came", () => {
  const time = createVirtualTime();
  const output = createOutput(true);
  const progress = createProgressBar("replay", 10, output, time.clock);
  progress.update(1, "");
  progress.update(4, "stopped");
  progress.end();
  expect(output.written.slice(1)).toEqual([`\rreplay ${bar(10)} 4/10  0 s  stopped${clear}`, "\n"]);
});

test("a narrow terminal cuts the line before its last column, so that it never wraps", () => {
  const output = createOutput(true, 30);
  createProgressBar("a long title of a run", 10, output, createVirtualTime().clock).update(5, "and a long note");
  const [line = ""] = output.written;
  expect(line.slice(1, -clear.length)).toHaveLength(29);
});

test("elsewhere it is a line at once, then every 10 s, and one at the end", () => {
  const time = createVirtualTime();
  const output = createOutput(false);
  const progress = createProgressBar("replay", 50, output, time.clock);
  for (let done = 1; done <= 49; done++) {
    progress.update(done, "0 errors");
    time.advance(500);
  }
  progress.update(50, "0 errors");
  progress.end();
  expect(output.written).toEqual([
    `replay ${bar(0)} 1/50  0 s  0 errors\n`,
    `replay ${bar(10)} 21/50  10 s  0 errors\n`,
    `replay ${bar(20)} 41/50  20 s  0 errors\n`,
    `replay ${bar(24)} 50/50  25 s  0 errors\n`,
  ]);
});

// A total of 0 made every update look like the last one: a line for each request of a load without an end.
test("without a total there is no share, and no more drawing than with one", () => {
  const time = createVirtualTime();
  const output = createOutput(false);
  const progress = createProgressBar("load", 0, output, time.clock);
  for (let done = 1; done <= 100; done++) progress.update(done, "0 errors");
  progress.end();
  expect(output.written).toEqual(["load 1  0 s  0 errors\n", "load 100  0 s  0 errors\n"]);
});

test("more than the total is a full bar, drawn no more often", () => {
  const output = createOutput(false);
  const progress = createProgressBar("load", 2, output, createVirtualTime().clock);
  for (let done = 3; done <= 100; done++) progress.update(done, "");
  expect(output.written).toEqual([`load ${bar(24)} 3/2  0 s  \n`]);
});

test("a bar that was never updated writes nothing", () => {
  for (const terminal of [true, false]) {
    const output = createOutput(terminal);
    createProgressBar("replay", 5, output, createVirtualTime().clock).end();
    expect(output.written).toEqual([]);
  }
});
