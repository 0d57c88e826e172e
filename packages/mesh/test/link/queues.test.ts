import { createSeededRandom, EspalierError } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { defaultLinkLimits, type LinkObserver } from "../../src/link/link.ts";
import { creditBytes } from "../../src/link/peer-link.ts";
import { type Channel, channels, encodeCredit, encodeData } from "../../src/wire/link-frames.ts";
import { frameText, LinksRig, type TestRouter } from "./links-rig.ts";
import { dialRaw, listenRaw } from "./raw-peer.ts";

const headerBytes = 2;
const kib = 1_024;

/** A linked pair whose wire from a to b then carries so many bytes in a millisecond. */
async function slowPair(bytesPerMs: number, limits = {}) {
  const rig = new LinksRig();
  const [a, b] = await rig.pair({ limits });
  rig.network.setSpeed({ bytesPerMs }, { from: "a:1", to: "b:1" });
  return { rig, a, b, link: a.to("b") };
}

describe("the order of frames", () => {
  test("is kept within a channel, and load goes before membership, documents and bulk", async () => {
    const { rig, b, link } = await slowPair(1_000);
    // Fills the connection up to its mark, so that what follows waits.
    for (let index = 0; index < 5; index++) link.send("documents", new Uint8Array(16 * kib));
    for (const channel of [...channels].reverse()) {
      for (let index = 0; index < 3; index++) link.send(channel, Uint8Array.of(index));
    }
    rig.time.advance(1_000);
    const small = b.frames.filter((frame) => !frame.includes("bytes"));
    expect(small).toEqual(channels.flatMap((channel) => [0, 1, 2].map((index) => `${channel} ${index}`)));
  });

  test("lets load overtake all documents and bulk that have not reached the connection", async () => {
    const { rig, b, link } = await slowPair(10 * kib);
    const sentMs: number[] = [];
    const delaysMs: number[] = [];
    b.onFrame = (_, channel, frame) => {
      if (channel === "load") delaysMs.push(rig.time.clock.nowMs() - sentMs[frame[0]!]!);
    };
    for (let index = 0; index < 100; index++) {
      for (let more = 0; more < 4; more++) link.send("documents", new Uint8Array(60 * kib));
      link.send("bulk", new Uint8Array(60 * kib));
      sentMs[index] = rig.time.clock.nowMs();
      link.send("load", Uint8Array.of(index));
      rig.time.advance(10);
    }
    rig.time.advance(1_000);
    expect(delaysMs).toHaveLength(100);
    // The mark of the connection and one frame, at the speed of the wire, and the delay of the network.
    expect(Math.max(...delaysMs)).toBeLessThan((64 + 60) / 10 + 1 + 0.1);
    expect(link.stats.droppedFrames).toBeGreaterThan(0);
  });

  test("small frames go out in the call that sends them when the connection is free", async () => {
    const { rig, b, link } = await slowPair(Number.POSITIVE_INFINITY);
    for (let index = 0; index < 10; index++) link.send("load", Uint8Array.of(index));
    expect([link.bufferedBytes, link.stats.sentFrames]).toEqual([0, 10]);
    rig.time.advance(1);
    expect(b.frames).toHaveLength(10);
  });

  test("holds for random traffic on all channels, and nothing that was taken is lost", async () => {
    for (let seed = 0; seed < 20; seed++) {
      const random = createSeededRandom(seed);
      const { rig, b, link } = await slowPair(2_000 + random.integer(50_000));
      const sent: Record<Channel, string[]> = { load: [], membership: [], documents: [], bulk: [], notes: [] };
      for (let index = 0; index < 400; index++) {
        const channel = channels[random.integer(channels.length)]!;
        const frame = new Uint8Array(4 + random.integer(channel === "load" ? 300 : 20_000));
        new DataView(frame.buffer).setUint32(0, index);
        if (link.send(channel, frame)) sent[channel].push(frameText(channel, frame));
        if (random.float() < 0.3) rig.time.advance(random.integer(5));
      }
      rig.time.advance(5_000);
      for (const channel of channels) {
        expect(b.frames.filter((frame) => frame.startsWith(channel))).toEqual(sent[channel]);
      }
      expect(link.bufferedBytes).toBe(0);
    }
  });
});

describe("the bound of a channel", () => {
  test.each(channels)(
    "%s: what is over it is dropped and counted, and told when half of it has gone",
    async (channel) => {
      const { rig, a, b, link } = await slowPair(1_000);
      const frameBytes = 8 * kib - headerBytes;
      const frame = new Uint8Array(frameBytes);
      rig.network.cut({ from: "a:1", to: "b:1" });
      let taken = 0;
      while (link.send(channel, frame)) taken += 1;
      const boundBytes = defaultLinkLimits.queueBytes[channel];
      expect(link.waitingBytes(channel)).toBe(boundBytes);
      expect(taken * 8 * kib).toBe(boundBytes + 64 * kib);
      expect(link.bufferedBytes).toBe(boundBytes + 64 * kib);
      expect(link.send(channel, new Uint8Array())).toBe(false);
      expect(link.stats.droppedFrames).toBe(2);
      expect(a.meter.value("espalier_mesh_dropped_frames_total", channel)).toBe(2);
      const other = channel === "load" ? "membership" : "load";
      expect(link.send(other, Uint8Array.of(1))).toBe(true);
      expect(a.events).toEqual(["up b@1"]);
      let waitingAtDrain = 0;
      a.onDrained = () => {
        waitingAtDrain = link.waitingBytes(channel);
        expect(link.send(channel, frame)).toBe(true);
      };
      rig.network.mend({ from: "a:1", to: "b:1" });
      rig.time.advance(boundBytes / 1_000 + 500);
      expect(a.events).toEqual(["up b@1", `drained b ${channel}`]);
      expect(waitingAtDrain).toBeLessThanOrEqual(boundBytes / 2);
      expect(waitingAtDrain).toBeGreaterThan(boundBytes / 2 - 64 * kib - 8 * kib);
      expect(b.frames).toHaveLength(taken + 2);
    },
  );

  test("who sends again and again when told that there is room gets everything through", async () => {
    const { rig, a, b, link } = await slowPair(10_000, {
      queueBytes: { ...defaultLinkLimits.queueBytes, bulk: 20_000 },
    });
    let next = 0;
    const fill = (): void => {
      while (next < 500 && link.send("bulk", new Uint8Array(9_000).fill(next % 256))) next += 1;
    };
    a.onDrained = fill;
    fill();
    expect(next).toBeLessThan(500);
    rig.time.advance(2_000);
    expect(b.frames).toHaveLength(500);
  });

  test("an empty channel takes a frame larger than its bound; one above the largest is a mistake of the caller", async () => {
    const { rig, b, link } = await slowPair(10_000, { maxFrameBytes: 300 * kib });
    rig.network.cut({ from: "a:1", to: "b:1" });
    for (let index = 0; index < 3; index++) expect(link.send("load", new Uint8Array(300 * kib))).toBe(index < 2);
    expect(() => link.send("load", new Uint8Array(300 * kib + 1))).toThrow(RangeError);
    rig.network.heal();
    rig.time.advance(1_000);
    expect(b.frames).toHaveLength(2);
  });
});

describe("the window of documents and bulk", () => {
  test.each(["documents", "bulk"] as const)(
    "%s: so much is on its way and no more, until there is credit",
    async (channel) => {
      const rig = new LinksRig();
      const a = await rig.start("a");
      const { peers } = await listenRaw(rig, "b:1");
      a.links.dial("b:1");
      rig.time.advance(5);
      const peer = peers[0]!;
      peer.send(peer.hello());
      peer.send(peer.proof("acceptor"), Uint8Array.of(3));
      const link = a.to("raw");
      const framesBefore = peer.heard.frames.length;
      const windowBytes = defaultLinkLimits.windowBytes[channel];
      for (let index = 0; index < 100; index++) link.send(channel, new Uint8Array(8 * kib - headerBytes));
      rig.time.advance(1_000);
      const received = () => peer.heard.frames.length - framesBefore;
      expect(received()).toBe(windowBytes / (8 * kib));
      link.send("load", Uint8Array.of(1));
      rig.time.advance(2);
      expect(peer.heard.frames.at(-1)).toEqual(encodeData("load", Uint8Array.of(1)));
      const before = received();
      peer.send(encodeCredit({ channel, bytes: creditBytes }));
      expect(received() - before).toBe(creditBytes / (8 * kib));
      peer.send(encodeCredit({ channel, bytes: windowBytes + 1 }));
      expect(a.events.at(-1)).toBe("down raw@1 frame-invalid");
    },
  );

  test("credit is given for every 32 KiB, and none for load", async () => {
    const rig = new LinksRig();
    const b = await rig.start("b");
    const peer = await dialRaw(rig, "b:1");
    peer.link();
    const before = peer.heard.frames.length;
    const frame = encodeData("documents", new Uint8Array(8 * kib - headerBytes));
    peer.send(frame, frame, frame);
    expect(peer.heard.frames).toHaveLength(before);
    peer.send(frame);
    expect(peer.heard.frames.slice(before)).toEqual([encodeCredit({ channel: "documents", bytes: 32 * kib })]);
    for (let index = 0; index < 10; index++) peer.send(encodeData("load", new Uint8Array(32 * kib)));
    expect(peer.heard.frames).toHaveLength(before + 1);
    expect(b.to("raw").stats.receivedFrames).toBe(14);
  });
});

describe("what an observer throws", () => {
  test.each([
    ["update-refused", new EspalierError("mesh_update_refused")],
    ["frame-invalid", new EspalierError("mesh_frame_invalid")],
  ] as const)("says that the peer is at fault, and closes the link as %s", async (why, error) => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    b.onFrame = () => {
      throw error;
    };
    a.to("b").send("documents", Uint8Array.of(1));
    a.to("b").send("documents", Uint8Array.of(2));
    rig.time.advance(3);
    expect(b.events).toEqual(["up a@1", `down a@1 ${why}`]);
    expect(a.events).toEqual(["up b@1", `down b@1 ${why}`]);
    expect(b.frames).toEqual(["documents 1"]);
    rig.time.advance(2_000);
    expect(a.events.at(-1)).toBe("up b@1");
  });

  // Any exception of a listener was taken for a frame that cannot be read. Both ends dialed again, and the same frame came.
  test.each([
    new RangeError("unexpected end of bytes"),
    new TypeError("undefined is not a function"),
    new EspalierError("invalid_value", "no"),
  ])("is its own fault otherwise, and the link goes on: %s", async (error) => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair();
    b.onFrame = (_, __, [first]) => {
      if (first === 1) throw error;
    };
    for (let count = 0; count < 40; count++) a.to("b").send("documents", new Uint8Array(16 * kib).fill(1));
    rig.time.advance(1_000);
    a.to("b").send("documents", Uint8Array.of(2));
    rig.time.advance(10_000);
    expect(b.events).toEqual(["up a@1"]);
    expect(a.events).toEqual(["up b@1"]);
    // What was not handled was received all the same: the other end goes on sending.
    expect(b.frames.at(-1)).toBe("documents 2");
    expect(b.meter.value("espalier_mesh_handler_failures_total", "frame")).toBe(40);
  });
});

describe("what an observer throws when", () => {
  const quiet: LinkObserver = { up() {}, down() {}, frame() {}, drained() {}, dialFailed() {} };
  const throwing = (event: keyof LinkObserver): LinkObserver => ({
    ...quiet,
    [event]: () => {
      throw new Error("a defect");
    },
  });
  const failures = ({ meter }: TestRouter, event: keyof LinkObserver) =>
    meter.value("espalier_mesh_handler_failures_total", event);

  test("a link comes up does not end it", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair({}, { observer: throwing("up") });
    rig.time.advance(10_000);
    expect(a.events).toEqual(["up b@1"]);
    expect(failures(b, "up")).toBe(1);
  });

  test("a link ends does not keep the next one from coming up", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair({}, { observer: throwing("down") });
    a.to("b").close("reset");
    rig.time.advance(5_000);
    expect(a.events).toEqual(["up b@1", "down b@1 reset", "up b@1"]);
    expect(failures(b, "down")).toBe(1);
  });

  test("a channel has capacity again does not end it", async () => {
    const rig = new LinksRig();
    const [a, b] = await rig.pair({ observer: throwing("drained") });
    const { load } = defaultLinkLimits.queueBytes;
    rig.network.setSpeed({ bytesPerMs: 1_000 }, { from: "a:1", to: "b:1" });
    for (let bytes = 0; bytes < 4 * load; bytes += 16 * kib) a.to("b").send("load", new Uint8Array(16 * kib));
    rig.time.advance(10_000);
    expect(failures(a, "drained")).toBeGreaterThan(0);
    expect(b.events).toEqual(["up a@1"]);
  });

  test("an address cannot be dialed does not end the dialing", async () => {
    const rig = new LinksRig();
    const a = await rig.start("a", { observer: throwing("dialFailed") });
    a.links.dial("b:1");
    rig.time.advance(5_000);
    expect(failures(a, "dialFailed")).toBeGreaterThan(0);
    const b = await rig.start("b");
    rig.time.advance(5_000);
    expect(b.events).toEqual(["up a@1"]);
  });
});
