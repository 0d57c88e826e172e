import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds } from "@espalier/testing";
import { describe, expect, it } from "vitest";
import { decodeBulkMessage } from "../../src/exchange/bulk-transfer.ts";
import { decodeDocumentMessage } from "../../src/exchange/document-frames.ts";
import { sharedName } from "../log-replica.ts";
import { ExchangeNet } from "./exchange-net.ts";

const creditBytes = 20_000;
const limits = {
  bulkCreditBytes: creditBytes,
  bulkFrameBytes: 3_000,
  maxLiveUpdateBytes: 4_000,
  maxFetchesPerLink: 2,
  maxAnswersPerLink: 2,
  maxHeldBytesPerDocument: 2_000,
  maxHeldBytes: 5_000,
};

const names = ["a", "b", "c", "d", "e", "f"];

/** One step of what links can do to an exchange; `restore` undoes it all. */
function disturb(net: ExchangeNet, random: Random): void {
  const one = names[random.integer(names.length)]!;
  const other = names[random.integer(names.length)]!;
  if (one === other) return;
  const link = net.node(one).links.get(other);
  const dice = random.integer(10);
  if (link === undefined) {
    if (dice < 5) net.connect(one, other);
  } else if (dice < 2) net.disconnect(one, other);
  else if (dice < 4) link.isClogged = true;
  else if (dice < 5) link.full.add("documents");
  else if (dice < 6) link.full.add("bulk");
  else if (dice < 7) link.capacityFrames = 1 + random.integer(5);
  else restore(net, one, other);
}

function restore(net: ExchangeNet, one: string, other: string): void {
  const link = net.link(one, other);
  link.capacityFrames = Number.POSITIVE_INFINITY;
  link.full.clear();
  // Something has to move for a link to tell that it has room again.
  link.unclog();
  link.send("membership", Uint8Array.of(0));
}

function write(net: ExchangeNet, random: Random): void {
  const { replica } = net.node(names[random.integer(names.length)]!);
  const bytes = random.integer(20) === 0 ? 10_000 : random.integer(600);
  const item = new Uint8Array(bytes).fill(random.integer(200));
  if (random.integer(4) === 0) replica.write(item, sharedName);
  else replica.write(item);
  replica.setLoad(random.integer(1_000));
}

/** Bytes of answers on each link that no credit has come back for, over all that was sent. */
function mostUnderWay(net: ExchangeNet): number {
  let most = 0;
  const underWay = new Map<string, number>();
  for (const { from, to, channel, bytes } of net.sent) {
    if (channel !== "bulk") continue;
    const message = decodeBulkMessage(bytes);
    const key = message.kind === "credit" ? `${to}>${from}` : `${from}>${to}`;
    const before = underWay.get(key) ?? 0;
    if (message.kind === "part") underWay.set(key, before + message.bytes.length);
    if (message.kind === "credit") underWay.set(key, before - message.bytes);
    most = Math.max(most, underWay.get(key) ?? 0);
  }
  return most;
}

describe("an exchange under any order of deliveries, stalls, drops and broken links", () => {
  const seeds = fixedSeeds(25, 1);
  it.each(seeds)("ends with equal documents and gauges everywhere, seed %i", (seed) => {
    const random = createSeededRandom(seed * 7_919);
    const net = new ExchangeNet(limits);
    for (const name of names) net.add(name);
    net.delayMs = 1 + random.integer(10);
    for (let step = 0; step < 300; step++) {
      disturb(net, random);
      for (let writes = random.integer(3); writes > 0; writes--) write(net, random);
      net.time.advance(random.integer(40));
    }
    // What is left at the end is a connected graph, not always a full mesh.
    names.forEach((name, index) => {
      net.connect(name, names[(index + 1) % names.length]!);
    });
    for (const { links } of net.nodes.values()) {
      for (const [other, link] of links) restore(net, link.from, other);
    }
    let waitedMs = 0;
    while (net.digests().size > 1 && waitedMs < 20_000) {
      net.time.advance(50);
      waitedMs += 50;
    }
    expect(net.digests().size).toBe(1);
    expect(waitedMs).toBeLessThanOrEqual(10_000);
    expect(net.invalid).toEqual([]);
    for (const { replica } of net.nodes.values()) replica.setLoad(1_000 + seed);
    net.time.advance(200);
    for (const { replica } of net.nodes.values()) {
      const values = [...replica.gauges.values()].map(({ value }) => value);
      expect(values).toEqual(names.map(() => 1_000 + seed));
    }
  });

  it.each([101, 102, 103])("keeps to the credit while nothing breaks, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const net = new ExchangeNet(limits);
    for (const name of names.slice(0, 3)) net.add(name);
    const a = net.node("a").replica;
    for (let index = 0; index < 200; index++) a.write(new Uint8Array(random.integer(3_000)));
    net.connectAll();
    net.time.advance(3_000);
    expect(net.digests().size).toBe(1);
    expect(mostUnderWay(net)).toBeLessThanOrEqual(creditBytes);
    expect(mostUnderWay(net)).toBeGreaterThan(creditBytes / 2);
  });

  it.each([201, 202, 203])("sends no change twice over a link, nor back, while nothing breaks, seed %i", (seed) => {
    const random = createSeededRandom(seed);
    const net = new ExchangeNet();
    for (const name of names) net.add(name);
    names.forEach((name, index) => {
      if (index > 0) net.connect(names[random.integer(index)]!, name);
    });
    net.time.advance(5_000);
    net.sent.length = 0;
    for (let step = 0; step < 200; step++) {
      const { replica } = net.node(names[random.integer(names.length)]!);
      replica.write(new Uint8Array(random.integer(100)), random.integer(3) === 0 ? sharedName : undefined);
      net.time.advance(random.integer(30));
    }
    net.time.advance(5_000);
    expect(net.digests().size).toBe(1);
    const crossed = new Set<string>();
    let updates = 0;
    for (const { from, to, channel, bytes } of net.sent) {
      if (channel !== "documents") continue;
      const message = decodeDocumentMessage(bytes);
      expect(message.kind).not.toBe("want");
      if (message.kind !== "update") continue;
      updates += 1;
      // A shared document's changes have no clock: their bytes tell them apart.
      crossed.add(`${[from, to].sort().join("-")} ${message.from} ${message.to} ${message.bytes}`);
    }
    const links = names.length - 1;
    expect(updates).toBe(200 * links);
    for (const { replica } of net.nodes.values()) expect(replica.duplicates).toBe(0);
    expect(crossed.size).toBeGreaterThan(0);
  });
});
