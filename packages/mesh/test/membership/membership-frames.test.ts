import { asRouterId, EspalierError } from "@espalier/core";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { MemberRecord } from "../../src/membership/member-table.ts";
import {
  decodeMembership,
  encodeMembership,
  fitUnreachable,
  frameBounds,
  type MembershipMessage,
} from "../../src/membership/membership-frames.ts";
import { maxEpoch } from "../../src/origin.ts";

const record: MemberRecord = {
  origin: { router: asRouterId("router-a"), epoch: 1_700_000_000_000 },
  incarnation: 7,
  hasLeft: false,
  isDraining: true,
  address: "10.0.0.1:7000",
  unreachable: ["engine/0"],
  links: ["router-b", "router-c"],
};

const origin = fc.record({
  router: fc.string({ minLength: 1, maxLength: 32 }).map(asRouterId),
  epoch: fc.integer({ min: 0, max: maxEpoch }),
});
const incarnation = fc.integer({ min: 1, max: 2 ** 40 });
const anyRecord: fc.Arbitrary<MemberRecord> = fc.record({
  origin,
  incarnation,
  hasLeft: fc.boolean(),
  isDraining: fc.boolean(),
  address: fc.string({ maxLength: 40 }),
  unreachable: fc.array(fc.string({ maxLength: 20 }), { maxLength: 20 }),
  links: fc.array(fc.string({ minLength: 1, maxLength: 20 }), { maxLength: 64 }),
  region: fc.option(fc.string({ minLength: 1, maxLength: 20 }), { nil: undefined }),
});
const message: fc.Arbitrary<MembershipMessage> = fc.oneof(
  fc.record({ kind: fc.constant("ping" as const), number: fc.nat(), digest: fc.integer({ min: 0, max: 0xffffffff }) }),
  fc.record({ kind: fc.constant("ack" as const), number: fc.nat() }),
  fc.record({ kind: fc.constantFrom("probe" as const, "heard" as const), origin }),
  fc.record({ kind: fc.constant("records" as const), records: fc.array(anyRecord, { minLength: 1, maxLength: 4 }) }),
  fc.record({
    kind: fc.constant("claims" as const),
    claims: fc.array(fc.record({ origin, incarnation, state: fc.constantFrom("suspect" as const, "down" as const) }), {
      minLength: 1,
      maxLength: 4,
    }),
  }),
);

test("what is written is read", () => {
  fc.assert(
    fc.property(message, (written) => {
      const frames = encodeMembership(written);
      expect(frames).toHaveLength(1);
      expect(decodeMembership(frames[0]!)).toEqual(written);
    }),
    { numRuns: randomRuns(200) },
  );
});

test("a record without a region is the bytes that earlier versions read, and one with the longest region is read", () => {
  const [frame] = encodeMembership({ kind: "records", records: [record] });
  // The flags come after the origin, a text and a varint of six bytes, and the incarnation.
  const flagsAt = 2 + 1 + "router-a".length + 6 + 1;
  expect(frame![flagsAt]).toBe(2);
  const placed = (region: string) => encodeMembership({ kind: "records", records: [{ ...record, region }] })[0]!;
  expect(placed("eu")[flagsAt]).toBe(6);
  const longest = "r".repeat(frameBounds.regionBytes);
  expect(decodeMembership(placed(longest))).toMatchObject({ records: [{ region: longest }] });
  expect(() => decodeMembership(placed(`${longest}r`))).toThrow(
    expect.objectContaining({ code: "mesh_frame_invalid" }),
  );
  const nameless = placed("r").slice(0, -1);
  nameless[nameless.length - 1] = 0;
  expect(() => decodeMembership(nameless)).toThrow(/empty/);
});

test("arbitrary bytes, and frames with one byte altered or cut off, are read or refused with a code", () => {
  const decode = (bytes: Uint8Array): void => {
    try {
      decodeMembership(bytes);
    } catch (error) {
      expect(error).toBeInstanceOf(EspalierError);
      expect((error as EspalierError).code).toBe("mesh_frame_invalid");
    }
  };
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), decode), { numRuns: randomRuns(1_000) });
  fc.assert(
    fc.property(message, fc.nat(), fc.nat({ max: 255 }), (written, at, byte) => {
      const [frame] = encodeMembership(written) as [Uint8Array];
      frame[at % frame.length] = byte;
      decode(frame);
      decode(frame.subarray(0, at % frame.length));
    }),
    { numRuns: randomRuns(1_000) },
  );
});

test("many records are split into frames of bounded size that together say the same", () => {
  const records = Array.from({ length: 700 }, (_, index) => ({ ...record, incarnation: index + 1 }));
  const frames = encodeMembership({ kind: "records", records });
  expect(frames.length).toBeGreaterThan(2);
  for (const frame of frames) expect(frame.length).toBeLessThan(frameBounds.fullAtBytes + 1_000);
  const read = frames.flatMap((frame) => {
    const decoded = decodeMembership(frame);
    return decoded.kind === "records" ? decoded.records : [];
  });
  expect(read).toEqual(records);
  expect(encodeMembership({ kind: "records", records: [] })).toEqual([]);
});

test.each<[string, Partial<MemberRecord>]>([
  ["an id", { origin: { router: asRouterId("x".repeat(frameBounds.idBytes + 1)), epoch: 1 } }],
  // Such a router could be refused by no frame that its refusal fits into.
  ["an epoch that no router has", { origin: { router: asRouterId("x"), epoch: maxEpoch + 1 } }],
  ["no id", { origin: { router: asRouterId(""), epoch: 1 } }],
  ["an address", { address: "x".repeat(frameBounds.addressBytes + 1) }],
  ["a target", { unreachable: ["x".repeat(frameBounds.targetBytes + 1)] }],
  ["targets", { unreachable: Array.from({ length: frameBounds.unreachable + 1 }, (_, index) => `${index}`) }],
  ["bytes of targets", { unreachable: Array.from({ length: 17 }, () => "x".repeat(500)) }],
  ["links", { links: Array.from({ length: frameBounds.links + 1 }, (_, index) => `${index}`) }],
  ["no incarnation", { incarnation: 0 }],
])("a record one past the bound is refused: %s", (_, part) => {
  const [frame] = encodeMembership({ kind: "records", records: [{ ...record, ...part }] });
  expect(() => decodeMembership(frame!)).toThrow(/cannot be read/);
});

test.each(["records", "claims"] as const)("an incarnation in %s may be 2^48, and not one more", (kind) => {
  const read = (incarnation: number) => {
    const message: MembershipMessage =
      kind === "records"
        ? { kind, records: [{ ...record, incarnation }] }
        : { kind, claims: [{ origin: record.origin, incarnation, state: "down" }] };
    return () => decodeMembership(encodeMembership(message)[0]!);
  };
  expect(read(2 ** 48)).not.toThrow();
  expect(read(2 ** 48 + 1)).toThrow(/cannot be read: 281474976710657, maximum 281474976710656/);
});

test("a claim of an unknown state is refused", () => {
  const [frame] = encodeMembership({ kind: "claims", claims: [{ ...record, state: "down" }] }) as [Uint8Array];
  frame[frame.length - 1] = 2;
  expect(() => decodeMembership(frame)).toThrow(/2 where there are suspect, down/);
});

test("more items than a frame may hold are refused", () => {
  const head = new Uint8Array([4, 0x81, 0x02]);
  expect(() => decodeMembership(head)).toThrow(/257, maximum 256/);
});

test("as many unreachable targets as fit are told, in order, each once", () => {
  expect(fitUnreachable(["b", "a", "b"])).toEqual(["a", "b"]);
  expect(fitUnreachable(["x".repeat(frameBounds.targetBytes + 1), "a"])).toEqual(["a"]);
  const many = fitUnreachable(Array.from({ length: 500 }, (_, index) => `${index}`.padStart(100, "t")));
  const [frame] = encodeMembership({ kind: "records", records: [{ ...record, unreachable: many }] });
  expect(decodeMembership(frame!)).toMatchObject({ records: [{ unreachable: many }] });
  expect(many.length).toBeGreaterThan(70);
  expect(fitUnreachable(Array.from({ length: 257 }, (_, index) => `${index}`))).toHaveLength(256);
});
