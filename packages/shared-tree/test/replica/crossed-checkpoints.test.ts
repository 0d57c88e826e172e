import type { DocumentUpdate } from "@espalier/mesh";
import { tier } from "@espalier/prefix-index";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import type { FeedReader } from "../../src/feeds/feed-reader.ts";
import { chainOf, createNode, join, type Node } from "./replica-pair.ts";

const target = "engine";
const nobodyToAsk = (): void => {};

function read(reader: FeedReader, sequence: number, blocks: number, isComplete: boolean): void {
  const chain = chainOf(sequence, blocks);
  reader.sink.stored(tier.gpu, chain, 0, blocks);
  reader.batch({ sequence, timestampUs: 1_000_000 + sequence, checksum: sequence + 7 }, isComplete);
}

function openFeed(node: Node): FeedReader {
  const reader = node.replica.openFeed(target, nobodyToAsk);
  reader.setQuality("partial", "partial", "incomplete", null);
  reader.setRole("owner");
  return reader;
}

/**
 * Symptom: nobody used an engine's facts for 20 s after a partition, and each router said that they were loading. One
 * side had read every message up to some point, and then lacked one; the other had lacked one earlier, and checkpointed
 * a later message. The checkpoint was later than what the first side had, and the first side's was complete where the
 * other's was not: each gave its state up for the other's, and had none to give when it was asked.
 */
test.each(["whole first", "lacking first"])(
  "two routers that each gave their state up for the other's do not wait for each other: %s",
  async (order) => {
    const time = createVirtualTime();
    const [one, other] = [createNode("one", time), createNode("other", time)];
    const whole = openFeed(one);
    for (let sequence = 0; sequence <= 6; sequence++) read(whole, sequence, 3, true);
    time.advance(20);
    read(whole, 7, 3, false);
    const lacking = openFeed(other);
    for (let sequence = 0; sequence <= 7; sequence++) read(lacking, sequence, 2, sequence < 5);
    time.advance(20);

    const written = new Map([one, other].map((node) => [node, allUpdates(node)]));
    join([one, other]);
    for (const node of [one, other]) await node.replica.start();
    const takes = (node: Node, from: Node): void => {
      for (const update of written.get(from) ?? []) node.replica.ports.documents.apply(update);
    };
    // Who gives its own up first also asks first.
    if (order === "whole first") takes(one, other);
    takes(other, one);
    time.advance(10);
    if (order === "lacking first") takes(one, other);
    const states = (): unknown[] => [one, other].map(({ replica }) => replica.fold.state(target)?.progress);
    expect(states()).toEqual(["loading", "loading"]);

    time.advance(200);
    expect(states()).toEqual(["current", "current"]);
    expect(one.replica.fold.statement(target)).toEqual(other.replica.fold.statement(target));
    // What one of them knows to be complete outlives what the other one lacks.
    for (let sequence = 0; sequence <= 7; sequence++) expect(other.heldBlocks(target, chainOf(sequence, 3))).toBe(3);
    for (const node of [one, other]) await node.replica.stop();
  },
);

function allUpdates({ replica }: Node): readonly DocumentUpdate[] {
  const { documents } = replica.ports;
  return documents.list().flatMap(({ name }) => [...documents.diff(name, new Uint8Array([0]), 65_536)]);
}
