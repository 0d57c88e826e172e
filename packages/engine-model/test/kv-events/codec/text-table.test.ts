import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { TextTable } from "../../../src/kv-events/codec/wire-names.ts";

const viewOf = (text: string, before = ""): { view: DataView; start: number; end: number } => {
  const bytes = new TextEncoder().encode(`${before}${text}`);
  const start = new TextEncoder().encode(before).length;
  return { view: new DataView(bytes.buffer, 0, bytes.length), start, end: bytes.length };
};

const find = (table: TextTable, text: string, before = ""): number => {
  const { view, start, end } = viewOf(text, before);
  return table.find(view, start, end);
};

const names = ["a", "ts", "GPU", "DISK", "lora_id", "medium", "token_ids", "kv_cache_spec_kind", "x".repeat(31)];

test.each(names.map((name, place) => ({ name, place })))(
  "$name is at $place, wherever its bytes lie",
  ({ name, place }) => {
    const table = new TextTable(names);
    expect(find(table, name)).toBe(place);
    expect(find(table, name, "some bytes before")).toBe(place);
  },
);

test("a name with any one byte changed, cut or added is not found", () => {
  const table = new TextTable(names);
  for (const name of names) {
    for (let at = 0; at < name.length; at++) {
      const changed = `${name.slice(0, at)}#${name.slice(at + 1)}`;
      expect(find(table, changed), changed).toBe(-1);
    }
    expect(find(table, name.slice(0, -1)), name).toBe(-1);
    expect(find(table, `${name}s`), name).toBe(-1);
  }
});

test("nothing, long texts and texts that are not ASCII are not found", () => {
  const table = new TextTable(names);
  for (const text of ["", "x".repeat(32), "x".repeat(5_000), "ä", "äö", "\u{1f600}", "GP\u00dc"]) {
    expect(find(table, text)).toBe(-1);
  }
});

test("a byte that shares its low seven bits with a first letter does not pass for it", () => {
  const table = new TextTable(["GPU", "DISK"]);
  const bytes = Uint8Array.of(0x47 | 0x80, 0x50, 0x55);
  expect(table.find(new DataView(bytes.buffer), 0, 3)).toBe(-1);
});

test("random names are told apart as a map tells them", () => {
  const random = createSeededRandom(51);
  const letters = "abcdefghijklmnopqrstuvwxyz_";
  const word = (length: number): string => Array.from({ length }, () => letters[random.integer(27)]).join("");
  for (let round = 0; round < 50; round++) {
    const chosen = new Map<string, string>();
    for (let index = 0; index < 40; index++) {
      const name = word(1 + random.integer(31));
      chosen.set(`${name.length}${name[0]}`, name);
    }
    const table = new TextTable([...chosen.values()]);
    const places = new Map([...chosen.values()].map((name, place) => [name, place]));
    for (const name of places.keys()) expect(find(table, name, word(3))).toBe(places.get(name));
    for (let index = 0; index < 100; index++) {
      const other = word(1 + random.integer(31));
      expect(find(table, other)).toBe(places.get(other) ?? -1);
    }
  }
});

test.each([[["same", "seam"]], [["a", "a"]], [[""]], [["x".repeat(32)]]])("%j makes no table", (wrong: string[]) => {
  expect(() => new TextTable(wrong)).toThrow(RangeError);
});
