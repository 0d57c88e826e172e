import { asRouterId } from "@espalier/core";
import { expect, test } from "vitest";
import { journalName, parseJournalName } from "../../src/documents/journal-log.ts";

test("the name of a journal is that of its pool, router and epoch, and remembered for the object that was asked for", () => {
  const origin = { router: asRouterId("a"), epoch: 7 };
  expect(journalName("default", origin)).toBe("journal/default/a/7");
  expect(journalName("default", origin)).toBe("journal/default/a/7");
  expect(journalName("default", { ...origin, epoch: 8 })).toBe("journal/default/a/8");
});

test("one object has a name in each pool, asked for in any order", () => {
  const origin = { router: asRouterId("a"), epoch: 7 };
  for (const pool of ["one", "other", "one", "other", "other", "one"]) {
    expect(journalName(pool, origin)).toBe(`journal/${pool}/a/7`);
    expect(parseJournalName(pool, journalName(pool, origin))).toEqual(origin);
  }
});
