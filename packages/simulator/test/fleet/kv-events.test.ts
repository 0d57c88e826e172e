import { createSeededRandom } from "@espalier/core";
import { tier } from "@espalier/prefix-index";
import { expect, test } from "vitest";
import { createEventFaults, EventSubscription } from "../../src/fleet/kv-events.ts";
import { createNodeTime } from "../../src/fleet/node-time.ts";
import { createEngineRig, type EngineRigOptions } from "./engine-rig.ts";
import { heldAfter } from "./held-blocks.ts";
import { recordedAnswer } from "./recorded-answer.ts";
import { recordedOutput, recordedSink } from "./recorded-output.ts";
import { requestOf } from "./requests.ts";

const delayMs = 5;
const second = 1_000;
/** Small enough that blocks go: to CPU memory, and from there. */
const small = { parameters: { blockCount: 60, cpuBlocks: 40 } };

function createRig(options: EngineRigOptions = small) {
  const rig = createEngineRig(options);
  const { engine, time } = rig;
  const faults = createEventFaults([engine]);
  let sent = 0;
  return {
    ...{ ...rig, faults },
    /** Lets the engine answer so many requests, each of its own content. */
    answer(requests: number) {
      for (let left = requests; left > 0; left--) {
        engine.submit(requestOf({ index: sent++ }), recordedAnswer());
        time.advance(second);
      }
    },
    /** @param scheduler of a reader that has one of its own */
    async read(scheduler = time.scheduler) {
      const output = recordedOutput();
      const reading = new EventSubscription({
        ...{ engine, output, scheduler, delayMs },
        isLost: ({ sequence }) => faults.isLost(0, sequence),
        canReplay: () => faults.canReplay(0),
      });
      await reading.start();
      return { output, reading };
    },
  };
}

/** What the reading says of everything that it knows. */
function reportedAtOnce(reading: { tellAll(sink: ReturnType<typeof recordedSink>): void }): string[] {
  const sink = recordedSink();
  reading.tellAll(sink);
  return sink.held();
}

test("who reads from the start is complete and hears everything, in order", async () => {
  const rig = createRig();
  const { output, reading } = await rig.read();
  expect(reading.quality).toBe("void");
  rig.time.advance(3 * delayMs);
  expect(reading.quality).toBe("complete");
  rig.answer(12);
  expect(output.sequences).toEqual(rig.messages.map(({ sequence }) => sequence));
  expect(output.held()).toEqual(heldAfter(rig.messages));
  expect(output.held().length).toBeGreaterThan(0);
  expect(output.isComplete).toBe(true);
  expect(output.unknownRemovals).toBe(0);
  expect(output.news).toEqual(["complete"]);
  expect(reportedAtOnce(reading)).toEqual(output.held());
});

test("a message arrives after the wire's delay, and not before", async () => {
  const rig = createRig();
  const { output } = await rig.read();
  rig.time.advance(second);
  rig.engine.submit(requestOf({ index: 99 }), recordedAnswer());
  while (rig.messages.length === 0) rig.time.runUntil(rig.time.nextDueMs);
  rig.time.advance(delayMs - 0.01);
  expect(output.sequences).toEqual([]);
  rig.time.advance(0.02);
  expect(output.sequences).toEqual([0]);
});

test("who comes late is told what was missed where the engine tells it", async () => {
  const rig = createRig();
  rig.answer(12);
  const { output, reading } = await rig.read();
  rig.time.advance(3 * delayMs);
  expect(reading.quality).toBe("complete");
  expect(output.held()).toEqual(heldAfter(rig.messages));
  rig.answer(5);
  expect(output.sequences).toEqual(rig.messages.map(({ sequence }) => sequence));
  expect(output.held()).toEqual(heldAfter(rig.messages));
});

test("who comes late without a replay knows a part, tells nothing wrong, and counts what it did not know", async () => {
  const rig = createRig();
  rig.answer(12);
  rig.faults.setReplay(0, false);
  const { output, reading } = await rig.read();
  rig.time.advance(3 * delayMs);
  expect(reading.quality).toBe("partial");
  expect(output.held()).toEqual([]);
  const before = rig.messages.length;
  rig.answer(4);
  expect(output.isComplete).toBe(false);
  expect(output.unknownRemovals).toBeGreaterThan(0);
  expect(output.held()).toEqual(heldAfter(rig.messages.slice(before)));
  const truth = new Set(heldAfter(rig.messages));
  expect(output.held().every((name) => truth.has(name))).toBe(true);
  expect(output.held().length).toBeGreaterThan(0);
  expect(reportedAtOnce(reading)).toEqual(output.held());
  const cpu = output.held().filter((name) => name.startsWith(`${tier.cpu}/`)).length;
  expect(cpu).toBeGreaterThan(0);
  expect(reading.describe()).toMatchObject({ state: "partial", blocks: { gpu: output.held().length - cpu, cpu } });
});

test("lost messages are replayed when the next one shows the gap", async () => {
  const rig = createRig();
  const { output, reading } = await rig.read();
  rig.answer(6);
  rig.faults.lose(0, 3);
  rig.answer(12);
  expect(output.sequences).toEqual(rig.messages.map(({ sequence }) => sequence));
  expect(output.held()).toEqual(heldAfter(rig.messages));
  expect(output.news).toEqual(["complete"]);
  expect(reading.quality).toBe("complete");
});

test("lost messages that are not told again are a gap, and what is known from then on is a part", async () => {
  const rig = createRig();
  const { output, reading } = await rig.read();
  rig.answer(6);
  rig.faults.setReplay(0, false);
  const from = rig.messages.length;
  rig.faults.lose(0, 3);
  rig.answer(12);
  expect(output.news).toEqual(["complete", `gap ${from}-${from + 2}`, "partial"]);
  expect(output.isComplete).toBe(false);
  expect(reading.quality).toBe("partial");
  const read = rig.messages.filter(({ sequence }) => sequence < from || sequence > from + 2);
  expect(output.held()).toEqual(heldAfter(read));
  expect(reportedAtOnce(reading)).toEqual(output.held());
});

test("a new epoch is told as one, and is complete again whatever was missed before", async () => {
  const rig = createRig();
  rig.answer(3);
  rig.faults.setReplay(0, false);
  const { output, reading } = await rig.read();
  rig.answer(2);
  expect(reading.quality).toBe("partial");
  rig.engine.kill();
  rig.time.advance(delayMs);
  expect(reading.quality).toBe("void");
  const before = rig.messages.length;
  rig.engine.start();
  rig.time.advance(delayMs);
  expect(reading.quality).toBe("complete");
  rig.answer(12);
  expect(output.news).toEqual(["partial", "void", "new epoch", "complete"]);
  expect(output.sequences).toEqual(rig.messages.slice(before).map(({ sequence }) => sequence));
  expect(output.held()).toEqual(heldAfter(rig.messages.slice(before)));
  expect(reportedAtOnce(reading)).toEqual(output.held());
});

test("an engine that was down at first is read once it runs, without an epoch to forget", async () => {
  const rig = createRig();
  rig.engine.kill();
  const { output, reading } = await rig.read();
  rig.time.advance(second);
  expect(reading.quality).toBe("void");
  expect(reportedAtOnce(reading)).toEqual([]);
  rig.engine.start();
  rig.answer(3);
  expect(output.news.at(-1)).toBe("complete");
  expect(output.news).not.toContain("new epoch");
  expect(output.held()).toEqual(heldAfter(rig.messages));
});

test("messages of an epoch that ended on the way are not taken for those of the next", async () => {
  const rig = createRig();
  const { output } = await rig.read();
  rig.time.advance(second);
  rig.engine.submit(requestOf({ index: 99 }), recordedAnswer());
  while (rig.messages.length === 0) rig.time.runUntil(rig.time.nextDueMs);
  rig.engine.kill();
  rig.engine.start();
  rig.time.advance(second);
  expect(output.sequences).toEqual([]);
  expect(output.held()).toEqual([]);
});

test("what was heard of an epoch is known until the reader hears of its end", async () => {
  const rig = createRig();
  const { output, reading } = await rig.read();
  rig.answer(6);
  const held = heldAfter(rig.messages);
  expect(held.length).toBeGreaterThan(0);
  rig.engine.kill();
  expect(reportedAtOnce(reading)).toEqual(held);
  rig.engine.start();
  rig.time.advance(delayMs - 0.01);
  expect(reportedAtOnce(reading)).toEqual(held);
  rig.time.advance(0.02);
  expect(output.news).toContain("new epoch");
  expect(reportedAtOnce(reading)).toEqual([]);
});

test("what was missed of an epoch that has ended is a gap, and is not read from the next one", async () => {
  const rig = createRig();
  const reader = createNodeTime(rig.time);
  const { output, reading } = await rig.read(reader.scheduler);
  rig.answer(6);
  const from = rig.messages.length;
  reader.pause();
  rig.faults.lose(0, 1);
  rig.answer(1);
  rig.engine.kill();
  rig.engine.start();
  const next = rig.messages.length;
  rig.answer(12);
  expect(rig.engine.messages.length).toBeGreaterThan(next);
  reader.resume();
  rig.time.advance(second);
  expect(output.news.slice(0, 4)).toEqual(["complete", `gap ${from}-${from}`, "partial", "new epoch"]);
  expect(output.held()).toEqual(heldAfter(rig.engine.messages));
  expect(reading.quality).toBe("complete");
  expect(reportedAtOnce(reading)).toEqual(output.held());
});

test("who has stopped hears nothing, and leaves no timer", async () => {
  const rig = createRig();
  const { output, reading } = await rig.read();
  rig.answer(1);
  rig.engine.submit(requestOf({ index: 98 }), recordedAnswer());
  while (rig.messages.length === output.sequences.length) rig.time.runUntil(rig.time.nextDueMs);
  await reading.stop();
  const read = output.sequences.length;
  rig.answer(2);
  rig.engine.kill();
  rig.time.advance(second);
  expect(output.sequences).toHaveLength(read);
  expect(output.news).toEqual(["complete"]);
  expect(rig.time.pendingCount).toBe(0);
});

for (let seed = 1; seed <= 40; seed++) {
  test(`whatever happens, all that is told at once is what was told and not taken back (seed ${seed})`, async () => {
    const random = createSeededRandom(seed);
    const rig = createRig({ parameters: { blockCount: 30 + random.integer(60) } });
    rig.answer(random.integer(10));
    if (random.integer(2) === 0) rig.faults.setReplay(0, false);
    const { output, reading } = await rig.read();
    rig.time.advance(random.integer(3) * delayMs);
    for (let act = 0; act < 25; act++) {
      const kind = random.integer(8);
      if (kind === 0) rig.faults.lose(0, 1 + random.integer(3));
      else if (kind === 1) rig.faults.setReplay(0, random.integer(2) === 0);
      else if (kind === 2 && rig.engine.isUp) rig.engine.kill();
      else if (kind === 2 || kind === 3) rig.engine.start();
      else rig.answer(1 + random.integer(3));
      rig.time.advance(random.integer(4) * delayMs);
      expect(reportedAtOnce(reading)).toEqual(output.held());
    }
    rig.engine.start();
    rig.time.advance(second);
    expect(reportedAtOnce(reading)).toEqual(output.held());
    if (reading.quality === "complete")
      expect(output.held()).toEqual(heldAfter(rig.engine.messages.slice(0, (output.sequences.at(-1) ?? -1) + 1)));
    else expect(reading.quality).toBe("partial");
  });
}
