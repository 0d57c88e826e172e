import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { asRouterId, silentMeter, systemClock, systemRandom, systemScheduler } from "@espalier/core";
import { createCountingMeter, createRecordingLogger, waitFor } from "@espalier/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { WebSocket } from "ws";
import { defaultLinkLimits, type Link, type LinkObserver } from "../../src/link/link.ts";
import { Links } from "../../src/link/links.ts";
import { createWsTransport } from "../../src/transport/ws-transport.ts";
import type { Channel } from "../../src/wire/link-frames.ts";

interface RealRouter {
  readonly links: Links;
  readonly events: string[];
  readonly observer: LinkObserver;
}

async function start(name: string, observed: Partial<LinkObserver> = {}, meter = silentMeter): Promise<RealRouter> {
  const events: string[] = [];
  const observer: LinkObserver = {
    up: ({ peer }) => events.push(`up ${peer.origin.router}`),
    down: ({ peer }, why) => events.push(`down ${peer.origin.router} ${why}`),
    frame: () => {},
    drained: () => {},
    dialFailed: (_, why) => events.push(`failed ${why.kind}`),
    ...observed,
  };
  const links: Links = new Links({
    transport: createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler }),
    identity: () => ({
      origin: { router: asRouterId(name), epoch: 1 },
      address: links.address,
      cluster: "test",
      fleetSeed: "seed",
      blockSizeTokens: 16,
      capabilities: [],
    }),
    security: { kind: "secret", secrets: ["a secret"] },
    clock: systemClock,
    scheduler: systemScheduler,
    random: systemRandom,
    logger: createRecordingLogger(),
    meter,
    observer,
    highestEpoch: () => 0,
    onEpochBehind: () => {},
  });
  await links.start();
  onTestFinished(() => links.stop());
  return { links, events, observer };
}

const linkOf = (router: RealRouter): Promise<Link> => waitFor(() => router.links.links()[0], { what: "a link" });

describe("links over websockets", () => {
  test("come up, carry, and end in good order", async () => {
    const frames: [Channel, number][] = [];
    const a = await start("a");
    const b = await start("b", { frame: (_, channel, frame) => frames.push([channel, frame.length]) });
    a.links.dial(b.links.address);
    b.links.dial(a.links.address);
    const link = await linkOf(a);
    await linkOf(b);
    link.send("load", new Uint8Array(100));
    link.send("bulk", new Uint8Array(500_000));
    await waitFor(() => frames.length === 2, { what: "both frames" });
    expect(frames).toEqual([
      ["load", 100],
      ["bulk", 500_000],
    ]);
    await a.links.stop();
    await waitFor(() => b.events.includes("down a goodbye"), { what: "the goodbye" });
    await waitFor(() => b.events.includes("failed refused"), { what: "the refusal" });
  });

  /** A dead router behind a sidecar was taken for one that is only unheard, and for dead after seconds instead of at once. */
  test.each([
    ["refused", "accepts and resets", (socket: Socket) => void socket.resetAndDestroy()],
    ["unreachable", "answers that it cannot", (socket: Socket) => void socket.end("HTTP/1.1 503 No\r\n\r\n")],
  ])("a dial is %s where what listens %s", async (kind, _, answer) => {
    const sidecar = createServer((socket) => answer(socket.on("error", () => {})));
    onTestFinished(() => void sidecar.close());
    await once(sidecar.listen(0, "127.0.0.1"), "listening");
    const a = await start("a");
    a.links.dial(`127.0.0.1:${(sidecar.address() as AddressInfo).port}`);
    await waitFor(() => a.events[0] !== undefined, { what: "the end of the dial" });
    expect(a.events[0]).toBe(`failed ${kind}`);
  });

  test("load passes while bulk fills the link as fast as the other end takes it", async () => {
    /** For each load frame, the bytes of bulk that came after it was sent and before it came. */
    const bytesAhead: number[] = [];
    let bulkBytes = 0;
    const a = await start("a", { drained: (link, channel) => fill(link, channel) });
    const b = await start("b", {
      frame(_, channel, frame) {
        if (channel === "bulk") bulkBytes += frame.length;
        else bytesAhead.push(bulkBytes - new DataView(frame.buffer, frame.byteOffset).getFloat64(0));
      },
    });
    const part = new Uint8Array(65_536);
    const fill = (link: Link, channel: Channel): void => {
      while (link.send(channel, part)) {}
    };
    a.links.dial(b.links.address);
    const link = await linkOf(a);
    fill(link, "bulk");
    await waitFor(
      () => {
        const stamp = new Uint8Array(8);
        new DataView(stamp.buffer).setFloat64(0, bulkBytes);
        link.send("load", stamp);
        return bytesAhead.length >= 50 && bulkBytes > 20_000_000;
      },
      { what: "bulk and load", deadlineMs: 15_000 },
    );
    // What may be in flight, of which the last frame may be in excess: nothing of what waits, which is four times as much.
    expect(Math.max(...bytesAhead)).toBeLessThanOrEqual(defaultLinkLimits.windowBytes.bulk + part.length);
  });

  test("strangers who send frames of a megabyte, text or nothing leave no trace but a count", async () => {
    const meter = createCountingMeter();
    const a = await start("a", {}, meter);
    const dial = async (first: Uint8Array | string): Promise<number> => {
      const client = new WebSocket(`ws://${a.links.address}/mesh`);
      client.on("error", () => {});
      await new Promise((resolve) => client.once("open", resolve));
      const closed = new Promise<number>((resolve) => client.once("close", resolve));
      client.send(first);
      return closed;
    };
    expect(await dial(new Uint8Array(1_000_000))).not.toBe(1000);
    expect(await dial("text")).toBe(1003);
    expect(await dial(Uint8Array.of(77))).toBe(4000);
    await waitFor(() => meter.value("espalier_mesh_rejects_total", "handshake-invalid") === 3, {
      what: "three counts",
    });
    expect(a.links.links()).toEqual([]);
  });
});
