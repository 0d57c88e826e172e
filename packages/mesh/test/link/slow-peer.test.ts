import {
  asRouterId,
  drainMarkBytes,
  silentLogger,
  silentMeter,
  systemClock,
  systemRandom,
  systemScheduler,
} from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { WebSocket } from "ws";
import { defaultLinkLimits, type Link } from "../../src/link/link.ts";
import { Links } from "../../src/link/links.ts";
import { createWsTransport } from "../../src/transport/ws-transport.ts";
import { type Channel, encodeProof } from "../../src/wire/link-frames.ts";
import { secret } from "./links-rig.ts";
import { acceptFrame, rawHello } from "./raw-peer.ts";

async function startRouter(up: (link: Link) => void, drained: (channel: Channel) => void): Promise<Links> {
  const links: Links = new Links({
    transport: createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler }),
    identity: () => ({
      origin: { router: asRouterId("a"), epoch: 1 },
      address: links.address,
      cluster: "test",
      fleetSeed: "seed",
      blockSizeTokens: 16,
      capabilities: [],
    }),
    security: { kind: "secret", secrets: [secret] },
    clock: systemClock,
    scheduler: systemScheduler,
    random: systemRandom,
    logger: silentLogger,
    meter: silentMeter,
    observer: { up, down: () => {}, frame: () => {}, drained: (_, channel) => drained(channel), dialFailed: () => {} },
    highestEpoch: () => 0,
    onEpochBehind: () => {},
  });
  await links.start();
  onTestFinished(() => links.stop());
  return links;
}

/** Does the handshake by hand over a real socket. */
async function linkByHand(address: string): Promise<WebSocket> {
  const client = new WebSocket(`ws://${address}/mesh`, { perMessageDeflate: false });
  onTestFinished(() => client.terminate());
  const frames: Uint8Array[] = [];
  client.on("error", () => {});
  client.on("message", (data: Buffer) => frames.push(data));
  await new Promise((resolve) => client.once("open", resolve));
  const dialerHello = rawHello();
  client.send(dialerHello);
  const acceptorHello = await waitFor(() => frames[0], { what: "a hello" });
  client.send(encodeProof([secret], "dialer", { dialerHello, acceptorHello, version: 1 }));
  await waitFor(() => frames.length === 3, { what: "a proof and an accept" });
  client.send(acceptFrame);
  return client;
}

test("a peer that reads nothing holds a bounded number of bytes, and load still has room", async () => {
  let up: Link | undefined;
  const links = await startRouter(
    (link) => {
      up = link;
    },
    () => {},
  );
  const client = await linkByHand(links.address);
  const link = await waitFor(() => up, { what: "a link" });
  client.pause();
  const { queueBytes, maxFrameBytes } = defaultLinkLimits;
  const frame = new Uint8Array(64 * 1_024);
  for (const channel of ["documents", "bulk", "load"] as const) {
    let sentBytes = 0;
    while (sentBytes < 100_000_000 && link.send(channel, frame)) sentBytes += frame.length;
    expect(sentBytes).toBeLessThan(100_000_000);
  }
  const boundBytes = queueBytes.documents + queueBytes.bulk + queueBytes.load + drainMarkBytes + maxFrameBytes;
  expect(link.bufferedBytes).toBeLessThanOrEqual(boundBytes);
  expect(link.send("membership", new Uint8Array(1_000))).toBe(true);
  expect(link.stats.droppedFrames).toBe(3);
});

test("a peer that reads again gets all that was taken, and the channels are told to be free", async () => {
  const drained: Channel[] = [];
  let up: Link | undefined;
  const links = await startRouter(
    (link) => {
      up = link;
    },
    (channel) => drained.push(channel),
  );
  const client = await linkByHand(links.address);
  const link = await waitFor(() => up, { what: "a link" });
  client.pause();
  let taken = 0;
  while (taken < 2_000 && link.send("load", new Uint8Array(64 * 1_024))) taken += 1;
  expect(taken).toBeLessThan(2_000);
  expect(drained).toEqual([]);
  let received = 0;
  client.on("message", () => {
    received += 1;
  });
  client.resume();
  await waitFor(() => received >= taken, { what: "all that was taken", deadlineMs: 10_000 });
  await waitFor(() => drained.length > 0, { what: "the word that there is room" });
  expect([drained, link.bufferedBytes, received]).toEqual([["load"], 0, taken]);
});
