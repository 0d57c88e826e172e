import fc from "fast-check";
import { expect, test } from "vitest";
import { LiveCounts } from "../src/live-counts.ts";

test("an entry counts once, until it is removed or expires", () => {
  const counts = new LiveCounts();
  const [one, other] = [
    { value: "e0", expiresMs: 10 },
    { value: "e0", expiresMs: 20 },
  ];
  for (const entry of [one, one, other]) counts.add(entry);
  expect([counts.of("e0", 0), counts.of("e1", 0)]).toEqual([2, 0]);
  expect([counts.of("e0", 9), counts.of("e0", 10)]).toEqual([2, 1]);
  counts.remove(one);
  expect(counts.of("e0", 10)).toBe(1);
  counts.remove(other);
  counts.remove(other);
  expect(counts.of("e0", 10)).toBe(0);
  counts.add(one);
  expect(counts.of("e0", 10)).toBe(0);
});

test("whatever is added and removed, the counts are those of a walk over all entries", () => {
  const action = fc.record({ kind: fc.constantFrom("add", "remove", "wait"), entry: fc.nat(19) });
  fc.assert(
    fc.property(fc.array(action, { maxLength: 400 }), (actions) => {
      const entries = Array.from({ length: 20 }, (_, at) => ({ value: `e${at % 3}`, expiresMs: (at * 37) % 90 }));
      const counts = new LiveCounts();
      const live = new Set<(typeof entries)[number]>();
      let nowMs = 0;
      for (const { kind, entry: at } of actions) {
        const entry = entries[at]!;
        if (kind === "add") {
          counts.add(entry);
          live.add(entry);
        } else if (kind === "remove") {
          counts.remove(entry);
          live.delete(entry);
        } else nowMs += 1;
        for (const value of ["e0", "e1", "e2"]) {
          const walked = [...live].filter((one) => one.value === value && one.expiresMs > nowMs).length;
          expect(counts.of(value, nowMs)).toBe(walked);
        }
      }
    }),
  );
});
