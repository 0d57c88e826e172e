/** A flood over a real socket; see `backlog.test.ts` for symptom and mechanism. */
import { systemClock, systemScheduler } from "@espalier/core";
import { createEventDecoder } from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { Publisher } from "zeromq";
import { createKvFeed } from "../../src/events/kv-feed.ts";
import { createReplayGate } from "../../src/events/replay-run.ts";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createZmqTransport } from "../../src/events/zmq-transport.ts";
import { liveFrames } from "./fake-transport.ts";
import { storedPayload } from "./messages.ts";
import { createRecordingSink } from "./recording-sink.ts";

const [clock, scheduler] = [systemClock, systemScheduler];
/** What each message takes its reader, in milliseconds. */
const workMs = 0.1;
const flood = 6_000;

test("a flood that is read slowly: behind while much is unread, live when all is read, and the next flood again", async () => {
  const publisher = new Publisher({ linger: 0, sendHighWaterMark: 0 });
  onTestFinished(() => publisher.close());
  await publisher.bind("tcp://127.0.0.1:0");
  const sink = createRecordingSink();
  sink.onBatch = () => {
    const endMs = clock.nowMs() + workMs;
    while (clock.nowMs() < endMs);
  };
  const slices = createWorkSlices({ clock, scheduler });
  const endpoints = {
    endpoint: publisher.lastEndpoint!,
    mode: "connect",
    topic: "",
    replayEndpoint: undefined,
  } as const;
  const feed = createKvFeed({
    ...{ key: "engine-a/0", endpoints, sink, decoder: createEventDecoder(), transport: createZmqTransport(slices) },
    ...{ slices, replayGate: createReplayGate(), clock, scheduler, limits: { behindMs: 100 } },
  });
  await feed.start();
  onTestFinished(() => feed.stop());
  const send = (sequence: number) => publisher.send(liveFrames(sequence, storedPayload(sequence)));
  const state = (): string => `${feed.state} ${feed.reason}`;
  // A subscription takes effect a little after the connection.
  const isHeard = async (): Promise<boolean> => {
    await send(0);
    return sink.sequences.length > 0;
  };
  await waitFor(isHeard, { what: "first message" });
  for (let last = 0; last < 2 * flood; ) {
    const end = last + flood;
    for (; last < end; last++) await send(last + 1);
    await waitFor(() => state() === "stale behind", { what: "state stale behind" });
    expect(feed.describe().lastSequence).toBeLessThan(end - flood / 4);
    await waitFor(() => state() === "live complete", { what: "state live complete" });
    expect(feed.describe().lastSequence).toBe(end);
  }
});
