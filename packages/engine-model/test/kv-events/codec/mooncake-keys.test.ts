import { maxKeyPrefixes, mooncakeKey, readMooncakeKeys } from "@espalier/engine-model/kv-events";
import { expect, test } from "vitest";

const hash = (last: string): string => last.padStart(64, "0a");
const key = (last: string, { model = "tiny", tp = 0, group = 0 } = {}): string =>
  `${model}@tp_rank:${tp}@pcp0@dcp0@pp_rank:0@group:${group}@${hash(last)}`;

async function read(lines: readonly string[], keyPrefix = "") {
  const keys: string[] = [];
  const onKey = (low: number, high: number): void => void keys.push(`${high >>> 0} ${low >>> 0}`);
  let pauses = 0;
  const pause = (): undefined => {
    pauses++;
    return undefined;
  };
  const listed = await readMooncakeKeys(lines.join("\n"), keyPrefix, onKey, pause);
  return { ...listed, keys, pauses };
}

test("a key is the last 64 bits of the engine's hash, as in its events", async () => {
  const { keys, perBlock, unusable } = await read([key("000000010000000f"), key("ffffffff80000000"), ""]);
  expect(keys).toEqual(["1 15", `${0xffff_ffff} ${0x8000_0000}`]);
  expect([perBlock, unusable]).toEqual([1, undefined]);
});

test("a key that is written is read", async () => {
  const { keys, unusable } = await read([mooncakeKey("tiny", 5n), mooncakeKey("tiny", -1n)]);
  expect([keys, unusable]).toEqual([["0 5", `${0xffff_ffff} ${0xffff_ffff}`], undefined]);
});

test("a block has a key of each rank and cache group that the list has", async () => {
  const { keys, perBlock } = await read([
    key("1", { tp: 0 }),
    key("1", { tp: 1 }),
    key("2", { tp: 1 }),
    key("1", { group: 1 }),
  ]);
  expect([keys.length, perBlock]).toEqual([4, 3]);
});

test("a name of a model may have any characters; a namespace before it is part of it", async () => {
  const odd = "team@org--model@v1@store_tp:4";
  expect(await read([key("1", { model: odd })])).toMatchObject({ keys: ["168430090 168430081"], unusable: undefined });
});

test("keys of other forms are skipped: SGLang's, numbers, short hashes, no hexadecimal digits", async () => {
  const others = [
    `${hash("1")}_0_k`,
    "9223372036854775813",
    "tiny@tp_rank:0@group:0@12",
    "tiny@tp_rank:0@pp_rank:0@" + "g".repeat(64),
    `@tp_rank:0@${hash("1")}`,
    `plain@${hash("1")}`,
    "",
    "@",
  ];
  expect(await read([...others, key("5")])).toMatchObject({ keys: ["168430090 168430085"], unusable: undefined });
});

test("keys of several models cannot be told apart by their hashes, unless a prefix chooses", async () => {
  const lines = [key("1", { model: "a" }), key("1", { model: "b" })];
  expect((await read(lines)).unusable).toBe("keys of several models (a, b): set key-prefix");
  const { keys, perBlock, unusable } = await read(lines, "b@");
  expect([keys.length, perBlock, unusable]).toEqual([1, 1, undefined]);
});

test("a list with too many ranks is refused, one with as many as may be is read", async () => {
  const lines = Array.from({ length: maxKeyPrefixes }, (_, tp) => key("1", { tp }));
  expect(await read(lines)).toMatchObject({ perBlock: maxKeyPrefixes, unusable: undefined });
  const { unusable } = await read([...lines, key("1", { tp: maxKeyPrefixes })]);
  expect(unusable).toBe(`keys of more than ${maxKeyPrefixes} ranks`);
  expect(await read(lines)).toMatchObject({ unusable: undefined });
});

test("the event loop gets a turn in long lists", async () => {
  expect((await read(Array.from({ length: 10_000 }, (_, at) => key(at.toString(16))))).pauses).toBe(2);
});
