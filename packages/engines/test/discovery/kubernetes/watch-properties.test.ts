import { createSeededRandom, type HttpStreamObserver, type Random } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createKubernetesClient, createServiceSource } from "../../../src/discovery/index.ts";
import { createRecorder, plainTraits } from "../helpers.ts";
import { slice } from "./rig.ts";

const seeds = Array.from({ length: 150 }, (_, at) => at + 1);

/** A server whose list is empty and whose first watch is the test's to write, byte by byte. */
async function watchByHand() {
  const time = createVirtualTime();
  const recorder = createRecorder();
  const observers: HttpStreamObserver[] = [];
  const client = createKubernetesClient({
    access: { apiServer: "http://api", tokenFile: undefined, caFile: undefined },
    connect: () => ({
      request: async () => ({ status: 200, headers: {}, body: '{"metadata":{"resourceVersion":"1"},"items":[]}' }),
      stream(_, observer) {
        observers.push(observer);
        observer.onHead(200, {});
        return () => {};
      },
      close() {},
    }),
  });
  const source = createServiceSource(
    { client, ...time, random: createSeededRandom(1) },
    { namespace: "ai", service: "vllm", port: undefined, family: "auto", traits: plainTraits },
  );
  onTestFinished(() => source.stop());
  await source.start(recorder);
  await time.advanceAsync(0);
  return { time, recorder, observers };
}

/** Sends the bytes in pieces of random lengths from one reused buffer, whose former content is gone by then. */
function sendInPieces(observer: HttpStreamObserver, bytes: Uint8Array, random: Random): void {
  const reused = Buffer.alloc(4_096);
  for (let at = 0; at < bytes.length; ) {
    const length = Math.min(bytes.length - at, 1 + random.integer(random.integer(4) === 0 ? 2_000 : 20));
    reused.fill(0x7b);
    reused.set(bytes.subarray(at, at + length));
    observer.onData(reused.subarray(0, length));
    at += length;
  }
}

interface Written {
  readonly text: string;
  /** The addresses of each slice that are ready, as whoever reads the events one by one would keep them. */
  readonly fold: ReadonlyMap<string, readonly string[]>;
}

/** Events in any order: slices that were never added are changed, and gone ones go again; some are told twice. */
function writeEvents(random: Random): Written {
  const fold = new Map<string, readonly string[]>();
  const lines: string[] = [];
  for (let count = random.integer(40), version = 2; count > 0; count--) {
    const name = `größe-${random.integer(5)}`;
    const addresses = Array.from({ length: random.integer(4) }, () => `10.0.0.${1 + random.integer(9)}`);
    const type = ["ADDED", "MODIFIED", "MODIFIED", "DELETED", "BOOKMARK"][random.integer(5)]!;
    const body = slice(name, addresses);
    const object = { ...body, metadata: { ...body.metadata, resourceVersion: String(version++) } };
    const line = JSON.stringify({ type, object: type === "BOOKMARK" ? { metadata: object.metadata } : object });
    for (let times = random.integer(5) === 0 ? 2 : 1; times > 0; times--) lines.push(line);
    if (random.integer(8) === 0) lines.push("");
    if (type === "DELETED") fold.delete(name);
    else if (type !== "BOOKMARK") fold.set(name, addresses);
  }
  return { text: lines.map((line) => `${line}\n`).join(""), fold };
}

const listOf = (fold: ReadonlyMap<string, readonly string[]>): string =>
  [...new Set([...fold.values()].flat())]
    .map((address) => `${address}:8000`)
    .sort()
    .join(" ");

test.each(seeds)("any events in any pieces come to the list of a naive fold (seed %i)", async (seed) => {
  const random = createSeededRandom(seed);
  const { recorder, observers, time } = await watchByHand();
  const { text, fold } = writeEvents(random);
  sendInPieces(observers[0]!, Buffer.from(text), random);
  await time.advanceAsync(0);
  expect(recorder.lists.at(-1)).toBe(listOf(fold));
  expect(recorder.errors).toEqual([]);
  expect(observers).toHaveLength(1);
  for (const [at, list] of recorder.lists.entries()) if (at > 0) expect(list).not.toBe(recorder.lists[at - 1]);
});

test.each(seeds)(
  "bytes that went wrong end the watch or change what they say, and nothing else (seed %i)",
  async (seed) => {
    const random = createSeededRandom(seed);
    const { recorder, observers, time } = await watchByHand();
    const bytes = Buffer.from(
      `${writeEvents(random).text}{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n`,
    );
    for (let count = 1 + random.integer(10); count > 0; count--)
      bytes[random.integer(bytes.length)] = random.integer(256);
    sendInPieces(observers[0]!, bytes, random);
    // Whatever stands unfinished is a line now.
    observers[0]?.onData(Buffer.from("\n"));
    await time.advanceAsync(1_000);
    const [, next = observers[0]!] = observers;
    const object = { ...slice("after", ["10.0.1.1"]) };
    const line = { type: "ADDED", object: { ...object, metadata: { ...object.metadata, resourceVersion: "99" } } };
    next.onData(Buffer.from(`${JSON.stringify(line)}\n`));
    await time.advanceAsync(0);
    expect(recorder.lists.at(-1)).toContain("10.0.1.1:8000");
  },
);

test("a line of 4 MiB is read, one byte more ends the watch", async () => {
  const body = slice("a", ["10.0.0.1"]);
  const lineOf = (length: number): Buffer => {
    const event = (padding: string) =>
      JSON.stringify({
        type: "ADDED",
        object: { ...body, metadata: { ...body.metadata, resourceVersion: "2" }, padding },
      });
    return Buffer.from(`${event("x".repeat(length - event("").length))}\n`);
  };
  for (const [more, expected] of [
    [0, "10.0.0.1:8000"],
    [1, ""],
  ] as const) {
    const { recorder, observers, time } = await watchByHand();
    observers[0]?.onData(lineOf(4 * 1024 * 1024 + more));
    await time.advanceAsync(1_000);
    expect(recorder.lists.at(-1)).toBe(expected);
    expect(observers).toHaveLength(1 + more);
  }
});

test("bytes that are not UTF-8 end the watch", async () => {
  const { observers, time } = await watchByHand();
  observers[0]?.onData(Buffer.from([0x7b, 0xff, 0x0a]));
  await time.advanceAsync(1_000);
  expect(observers).toHaveLength(2);
});
