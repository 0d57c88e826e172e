import { expect, test } from "vitest";
import { loadConfig } from "../../src/config/index.ts";

const idsOf = (...urls: readonly string[]): readonly string[] =>
  loadConfig({ file: { path: "espalier.yaml", text: JSON.stringify({ engines: urls }) } }).engines.map(({ id }) => id);

test("an id is host, port and path, as long as it has 128 characters at most", () => {
  const path = "p".repeat(128 - "engine:8000/".length);
  expect(idsOf("http://engine:8000", `http://engine:8000/${path}`)).toEqual(["engine:8000", `engine:8000/${path}`]);
});

// Symptom: every request to an engine with a long URL failed where routers share their loads. The id was the whole URL, and
// what routers tell each other has room for 255 bytes of a target's key.
test("one character more, and it ends in a checksum of the whole", () => {
  const long = `http://engine:8000/${"p".repeat(129 - "engine:8000/".length)}`;
  const [one, other] = idsOf(long, `${long}q`);
  expect(one).toMatch(/^engine:8000\/p{99}~[0-9a-f]{16}$/);
  expect([one!.length, other!.length]).toEqual([128, 128]);
  expect(other).not.toBe(one);
  expect(idsOf(long)).toEqual([one]);
});
