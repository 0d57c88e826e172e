import { asRouterId, createSeededRandom } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { Dialer, type DialTarget, selfRedialMs } from "../../src/link/dialer.ts";

function makeDialer({ maxAddresses = 256, redialMs = 1_000 } = {}) {
  const time = createVirtualTime();
  const opened: { readonly address: string; readonly atMs: number; readonly target: DialTarget }[] = [];
  const covered = new Set<string>();
  const dialer = new Dialer({
    clock: time.clock,
    scheduler: time.scheduler,
    random: createSeededRandom(2),
    limits: { maxAddresses, redialMs },
    isCovered: ({ address, router }) => covered.has(address) || (router !== undefined && covered.has(router)),
    open: (target) => opened.push({ address: target.address, atMs: time.clock.nowMs(), target }),
  });
  const failAll = (from = 0): void => {
    for (const { target } of opened.slice(from)) dialer.ended(target);
  };
  return { time, dialer, opened, covered, failAll };
}

describe("an address", () => {
  test("is dialed at once, and again a second and up to a quarter after each beginning", () => {
    const { time, dialer, opened } = makeDialer();
    dialer.add("b:1");
    time.advance(0);
    expect(opened.map(({ atMs }) => atMs)).toEqual([0]);
    for (let round = 0; round < 200; round++) {
      dialer.ended(opened.at(-1)!.target);
      while (opened.length === round + 1) time.advance(1);
    }
    const gaps = opened.slice(1).map(({ atMs }, index) => atMs - opened[index]!.atMs);
    expect(gaps).toHaveLength(200);
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(1_000);
    expect(Math.max(...gaps)).toBeLessThanOrEqual(1_250);
    expect(new Set(gaps.map(Math.round)).size).toBeGreaterThan(100);
  });

  test("is not dialed again before the attempt has ended, however long that takes", () => {
    const { time, dialer, opened, failAll } = makeDialer();
    dialer.add("b:1");
    time.advance(30_000);
    expect(opened).toHaveLength(1);
    dialer.reconsider();
    dialer.add("b:1");
    time.advance(30_000);
    expect(opened).toHaveLength(1);
    failAll();
    time.advance(0);
    expect(opened).toHaveLength(2);
  });

  test("with a link is not dialed until the link is gone, and then at once", () => {
    const { time, dialer, opened, covered } = makeDialer();
    covered.add("b:1");
    dialer.add("b:1");
    time.advance(10_000);
    expect(opened).toEqual([]);
    covered.clear();
    dialer.reconsider();
    time.advance(0);
    expect(opened).toHaveLength(1);
  });

  test("is covered by a link to whoever answered there last", () => {
    const { time, dialer, opened, covered } = makeDialer();
    dialer.add("name:1");
    time.advance(0);
    opened[0]!.target.router = asRouterId("b");
    covered.add("b");
    dialer.ended(opened[0]!.target);
    time.advance(10_000);
    expect(opened).toHaveLength(1);
    covered.delete("b");
    dialer.reconsider();
    time.advance(0);
    expect(opened).toHaveLength(2);
  });

  test("that came to be linked while its dial was due is left alone", () => {
    const { time, dialer, opened, covered, failAll } = makeDialer();
    dialer.add("b:1");
    time.advance(0);
    failAll();
    covered.add("b:1");
    time.advance(5_000);
    expect(opened).toHaveLength(1);
    covered.clear();
    dialer.reconsider();
    time.advance(0);
    expect(opened).toHaveLength(2);
  });

  test("of the router itself is dialed every half minute only", () => {
    const { time, dialer, opened } = makeDialer();
    dialer.add("me:1");
    time.advance(0);
    dialer.ended(opened[0]!.target, true);
    time.advance(selfRedialMs - 1);
    expect(opened).toHaveLength(1);
    time.advance(selfRedialMs / 4 + 1);
    expect(opened).toHaveLength(2);
  });

  test("that is forgotten is dialed no more, and its late end changes nothing for one that came back", () => {
    const { time, dialer, opened } = makeDialer();
    dialer.add("b:1");
    time.advance(0);
    dialer.forget("b:1");
    expect(opened[0]!.target.isForgotten).toBe(true);
    dialer.add("b:1");
    time.advance(0);
    expect(opened).toHaveLength(2);
    dialer.ended(opened[0]!.target);
    time.advance(10_000);
    expect(opened).toHaveLength(2);
    dialer.ended(opened[1]!.target);
    time.advance(0);
    expect(opened).toHaveLength(3);
  });
});

test("256 addresses are dialed, one more is not, until one is forgotten", () => {
  const { time, dialer, opened } = makeDialer();
  for (let index = 0; index < 256; index++) expect(dialer.add(`host-${index}:1`)).toBe(true);
  expect(dialer.add("one-more:1")).toBe(false);
  expect(dialer.add("host-0:1")).toBe(true);
  dialer.forget("host-0:1");
  expect(dialer.add("one-more:1")).toBe(true);
  time.advance(0);
  expect(opened).toHaveLength(256);
});

test("after the stop nothing is dialed or waited for", () => {
  const { time, dialer, opened, failAll } = makeDialer();
  for (const address of ["a:1", "b:1", "c:1"]) dialer.add(address);
  time.advance(0);
  failAll(1);
  dialer.stop();
  failAll();
  expect(dialer.add("d:1")).toBe(false);
  time.advance(10_000);
  expect([opened.length, time.pendingCount]).toEqual([3, 0]);
});
