import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { linger } from "../src/data-plane/client-connections.ts";

/** A refused body that is still being sent, and how often its end was told. */
function lingering() {
  const time = createVirtualTime();
  const body = new PassThrough();
  const ends: number[] = [];
  const startMs = time.clock.nowMs();
  linger(body as unknown as IncomingMessage, time.scheduler, () => ends.push(time.clock.nowMs() - startMs));
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  return {
    time,
    body,
    ends,
    settle,
    /** So many bytes each 100 ms. */
    async sendFor(durationMs: number, sizeBytes = 65_536): Promise<void> {
      for (let sentMs = 0; sentMs < durationMs; sentMs += 100) {
        body.write(Buffer.alloc(sizeBytes));
        await settle();
        time.advance(100);
      }
    },
  };
}

/** A client that never ends its body would hold its connection for good, and the router would read for it. */
test("a client that goes on and on has ten seconds, and then no more is read", async () => {
  const { body, ends, sendFor, time } = lingering();
  await sendFor(9_900);
  expect(ends).toEqual([]);
  expect(body.readableLength, "what comes is dropped").toBe(0);
  await sendFor(100);
  expect(ends).toEqual([10_000]);
  await sendFor(2_000);
  expect(ends).toEqual([10_000]);
  expect([body.listenerCount("data"), time.pendingCount]).toEqual([0, 0]);
});

test("one that is silent for a second or two is waited for no longer", async () => {
  const { ends, sendFor, time } = lingering();
  await sendFor(3_000);
  expect(ends).toEqual([]);
  time.advance(2_000);
  expect(ends).toHaveLength(1);
  expect(ends[0]).toBeGreaterThanOrEqual(4_000);
});

test.each(["end", "destroy"] as const)("its %s ends it at once, and once", async (how) => {
  const { body, ends, sendFor, settle, time } = lingering();
  await sendFor(500);
  body[how]();
  await settle();
  await settle();
  expect(ends).toEqual([500]);
  time.advance(20_000);
  expect([ends, time.pendingCount]).toEqual([[500], 0]);
});
