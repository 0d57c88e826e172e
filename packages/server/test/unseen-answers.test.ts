import type { Target } from "@espalier/engines";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { maxUnseen, UnseenAnswers } from "../src/endpoint-picker/unseen-answers.ts";

interface Metrics {
  running: number;
  waiting: number;
  inFlightAtScrape: number;
  scrapedMs: number;
}

function rig() {
  const { clock, advance } = createVirtualTime();
  const metrics: Metrics = { running: NaN, waiting: NaN, inFlightAtScrape: NaN, scrapedMs: -Infinity };
  const signals = {
    get running() {
      return metrics.running;
    },
    get waiting() {
      return metrics.waiting;
    },
    get inFlightAtScrape() {
      return metrics.inFlightAtScrape;
    },
    ageMs: () => clock.nowMs() - metrics.scrapedMs,
  };
  const load = { inFlight: 0 };
  const target = { signals, load } as unknown as Target;
  const unseen = new UnseenAnswers({ clock, releaseAfterMs: 10_000 });
  const over: number[] = [];
  const prompts: number[] = [];
  return {
    unseen,
    over,
    prompts,
    add: (id: number, expectedPromptMs = 50) => {
      load.inFlight += 1;
      unseen.add({
        ...{ target, expectedPromptMs },
        assumePrompt: () => void prompts.push(id),
        finishUnseen: () => {
          load.inFlight -= 1;
          over.push(id);
        },
      });
    },
    scrape(running: number, waiting: number, inFlightAtScrape: number) {
      Object.assign(metrics, { running, waiting, inFlightAtScrape, scrapedMs: clock.nowMs() });
    },
    pass: (ms: number) => advance(ms),
  };
}

test("the oldest requests end when a scrape shows fewer than there should be, once for each scrape", () => {
  const { add, scrape, pass, unseen, over } = rig();
  for (const id of [1, 2, 3]) add(id);
  pass(100);
  unseen.sweep();
  expect(over).toEqual([]);
  scrape(1, 1, 3);
  pass(10);
  unseen.sweep();
  unseen.sweep();
  expect(over).toEqual([1]);
  scrape(1, 1, 2);
  unseen.sweep();
  expect(over).toEqual([1]);
  pass(10);
  scrape(0, 0, 2);
  unseen.sweep();
  expect([over, unseen.count]).toEqual([[1, 2, 3], 0]);
});

test("a scrape says nothing of later requests, nor does one without numbers", () => {
  const { add, scrape, pass, unseen, over } = rig();
  scrape(0, 0, 1);
  pass(10);
  add(1);
  unseen.sweep();
  pass(10);
  scrape(NaN, NaN, 1);
  unseen.sweep();
  expect(over).toEqual([]);
});

test("other routers' requests count: each router ends its own share", () => {
  const { add, scrape, pass, unseen, over } = rig();
  for (const id of [1, 2]) add(id);
  pass(100);
  // Four are in flight through all routers.
  scrape(4, 0, 4);
  unseen.sweep();
  expect(over).toEqual([]);
  pass(100);
  scrape(2, 0, 4);
  unseen.sweep();
  expect(over).toEqual([1]);
});

test.each([
  ["at an engine that is busy all the time", 10_000, true],
  ["sooner at an engine without metrics", 2_000, false],
])("a request ends after its time, %s, one moment earlier it does not", (_, mostMs, hasMetrics) => {
  const { add, pass, scrape, unseen, over } = rig();
  if (hasMetrics) scrape(5, 0, 1);
  add(1);
  pass(mostMs - 1);
  unseen.sweep();
  expect(over).toEqual([]);
  pass(1);
  unseen.sweep();
  expect(over).toEqual([1]);
});

test("a prompt counts as computed once, after the time that it is expected to take", () => {
  const { add, pass, unseen, prompts, over } = rig();
  add(1, 100);
  add(2, 300);
  pass(99);
  unseen.sweep();
  expect(prompts).toEqual([]);
  pass(1);
  unseen.sweep();
  unseen.sweep();
  expect(prompts).toEqual([1]);
  pass(200);
  unseen.sweep();
  expect([prompts, over]).toEqual([[1, 2], []]);
});

test("one more than the most there may be ends the oldest, and later ones still end in time", () => {
  const { add, pass, unseen, over } = rig();
  add(0);
  pass(1);
  for (let id = 1; id <= maxUnseen; id++) add(id);
  expect([over, unseen.count]).toEqual([[0], maxUnseen]);
  pass(10_000);
  unseen.sweep();
  expect([over.length, unseen.count]).toEqual([maxUnseen + 1, 0]);
});

test("without a target there is nothing to wait for, and an end of the picker ends all", () => {
  const { add, unseen, over } = rig();
  const nothing = { target: undefined, expectedPromptMs: 0, assumePrompt() {} };
  unseen.add({ ...nothing, finishUnseen: () => void over.push(7) });
  add(1);
  unseen.stop();
  expect([over, unseen.count]).toEqual([[7, 1], 0]);
});
