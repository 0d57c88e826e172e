import { asRouterId, silentMeter, systemClock, systemRandom, systemScheduler } from "@espalier/core";
import { createRecordingLogger } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { Links } from "../../src/link/links.ts";
import { probePeer } from "../../src/link/probe.ts";
import { createWsTransport } from "../../src/transport/ws-transport.ts";

const identityOf = (name: string) => ({
  origin: { router: asRouterId(name), epoch: 1 },
  ...{ address: undefined, cluster: "test", fleetSeed: "seed", blockSizeTokens: 16, capabilities: [] },
});

/** A router that links, what it notes, and a transport that dials it. */
async function start() {
  const events: string[] = [];
  const logger = createRecordingLogger();
  const links = new Links({
    transport: createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler }),
    identity: () => identityOf("router-a"),
    security: { kind: "secret", secrets: ["a secret"] },
    ...{ clock: systemClock, scheduler: systemScheduler, random: systemRandom, logger, meter: silentMeter },
    observer: {
      up: () => events.push("up"),
      down: () => events.push("down"),
      frame: () => {},
      drained: () => {},
      dialFailed: () => {},
    },
    highestEpoch: () => 0,
    onEpochBehind: () => {},
  });
  await links.start();
  onTestFinished(() => links.stop());
  const transport = createWsTransport({ host: "127.0.0.1", port: 0, scheduler: systemScheduler });
  transport.onConnection(() => ({ frame() {}, drained() {}, closed() {} }));
  await transport.start();
  onTestFinished(() => transport.stop());
  const probe = (over: object = {}, secrets = ["a secret"], address = links.address) =>
    probePeer({
      ...{ address, transport, scheduler: systemScheduler, secrets },
      identity: { ...identityOf("doctor"), ...over },
    });
  return { probe, links, events, logger };
}

test("a router with the same secret, cluster, seed and block size agrees, and gets no link", async () => {
  const { probe, links, events, logger } = await start();
  expect(await probe()).toEqual({ kind: "agrees", router: "router-a" });
  expect(await probe({}, ["another one", "a secret"])).toMatchObject({ kind: "agrees" });
  expect([links.links(), events]).toEqual([[], []]);
  expect(logger.lines.filter(({ level }) => level === "warn" || level === "error")).toEqual([]);
});

test.each([
  ["secret", {}, ["another one"]],
  ["cluster-name", { cluster: "other" }, undefined],
  ["fleet-seed", { fleetSeed: "other" }, undefined],
  ["block-size", { blockSizeTokens: 32 }, undefined],
] as const)("what differs is named: %s", async (reason, over, secrets) => {
  const { probe } = await start();
  expect(await probe(over, secrets && [...secrets])).toMatchObject({ kind: "rejected", reason });
});

test("nobody there: refused", async () => {
  const { probe } = await start();
  expect(await probe({}, ["a secret"], "127.0.0.1:1")).toEqual({ kind: "refused" });
});
