import { expect, test, vi } from "vitest";
import { journalContent } from "./journal-content.ts";
import {
  claimOf,
  claimsOf,
  entriesOf,
  feedOf,
  originOf,
  record,
  recordingObserver,
  storeOf,
  sync,
} from "./journal-fixtures.ts";

const yjs = vi.hoisted(() => ({ isBroken: false }));

/** A Yjs that, while it is broken, takes an update without a word and does nothing with it. */
vi.mock("yjs", async (original) => {
  const real = await original<typeof import("yjs")>();
  return {
    ...real,
    applyUpdate: (...args: Parameters<typeof real.applyUpdate>) => yjs.isBroken || real.applyUpdate(...args),
  };
});

const alice = originOf("alice");

function setUp() {
  const { store: writer, updates } = storeOf("alice");
  const { store: reader } = storeOf("bob");
  const { reported, observer } = recordingObserver();
  const feed = writer.own.declareFeed(feedOf("engine"));
  writer.own.writeFact(record(feed, 1));
  writer.own.claim(claimOf("engine"));
  writer.own.commit();
  sync(writer, reader, writer.own.name);
  reader.observe(observer);
  return { writer, reader, updates, reported, feed };
}

/** The reader is told of something that its Yjs does not take. */
function breakOn({ reader, updates }: ReturnType<typeof setUp>): void {
  yjs.isBroken = true;
  try {
    expect(() => reader.apply(updates.at(-1)!)).toThrow("did not take an update as it was read");
  } finally {
    yjs.isBroken = false;
  }
}

test("a journal whose update Yjs takes otherwise than it was read is refused, forgotten, and fetched anew", () => {
  const rig = setUp();
  const { writer, reader, reported, feed } = rig;
  writer.own.writeFact(record(feed, 2));
  writer.own.commit();
  breakOn(rig);
  expect([reader.origins(), entriesOf(reader, alice), reader.state(writer.own.name)]).toEqual([[], [], undefined]);
  expect([...reader.stateVector(writer.own.name)]).toEqual([0]);
  expect(reported.splice(0)).toEqual(["alice dropped 1"]);
  sync(writer, reader, writer.own.name);
  expect(journalContent(reader, writer.own.name)).toEqual(journalContent(writer, writer.own.name));
  expect(reported).toEqual([
    "alice feed 1 engine",
    "alice facts record 1.1",
    "alice claim engine 1",
    "alice facts record 1.2",
  ]);
});

// Symptom: a claim that was withdrawn while its journal was being fetched anew held for ever. Mechanism: observers were
// not told that the journal was forgotten, and nothing in the one that came instead told of the end of the claim.
test("what ended before it was fetched anew does not outlast it", () => {
  const rig = setUp();
  const { writer, reader, reported } = rig;
  writer.own.unclaim("engine");
  writer.own.commit();
  breakOn(rig);
  sync(writer, reader, writer.own.name);
  expect(claimsOf(reader, alice).size).toBe(0);
  expect(reported).toEqual(["alice dropped 1", "alice feed 1 engine", "alice facts record 1.1"]);
});

test("a forgotten journal is not given up for good: what comes after it is a gap, and it counts as an epoch no more", () => {
  const rig = setUp();
  const { writer, reader, updates, feed } = rig;
  writer.own.writeFact(record(feed, 2));
  writer.own.commit();
  breakOn(rig);
  expect(reader.apply(updates.at(-1)!)).toBe("gap");
  expect(reader.highestEpoch("alice")).toBe(0);
  expect(reader.apply(updates[0]!)).toBe("applied");
});

test("a first update that is not taken leaves nothing behind, and nobody is told", () => {
  const { store: writer, updates } = storeOf("alice");
  const { store: reader } = storeOf("bob");
  const { reported, observer } = recordingObserver();
  reader.observe(observer);
  writer.own.claim(claimOf("engine"));
  writer.own.commit();
  yjs.isBroken = true;
  expect(() => reader.apply(updates[0]!)).toThrow("alice");
  yjs.isBroken = false;
  expect([reader.list().length, reported]).toEqual([1, []]);
  expect(reader.apply(updates[0]!)).toBe("applied");
});
