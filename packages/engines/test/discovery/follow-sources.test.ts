import { EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { createListSource, type EngineSource, mergeSources, type SourceObserver } from "../../src/discovery/index.ts";
import { createManualSource, createRecorder, engine, failingSource, parseIds } from "./helpers.ts";

const notFound = new EspalierError("discovery_failed", "nobody answers");

/** A source whose start ends when the test says so; `tell` gives it its observer. */
function createSlowSource(name: string, journal: string[] = []) {
  let observer: SourceObserver | undefined;
  let started = (): void => {};
  const source: EngineSource = {
    name,
    start(given) {
      journal.push(`start ${name}`);
      observer = given;
      given.onList([]);
      return new Promise((resolve) => {
        started = resolve;
      });
    },
    async stop() {
      journal.push(`stop ${name}`);
    },
  };
  const tell = (act: (observer: SourceObserver) => void): void => act(observer!);
  return { source, tell, finish: () => started(), give: (ids: string) => observer?.onList(parseIds(ids, name)) };
}

test("sources that are given again go on; what changes, changes at once, and the old ones are stopped after it", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const [kept, old, next] = ["kept", "old", "next"].map((name) => createManualSource(name, name, journal));
  const merged = mergeSources([kept!.source, old!.source], recorder);
  await merged.start();
  await merged.follow([next!.source, kept!.source]);
  expect(recorder.lists).toEqual(["kept old", "next kept"]);
  expect(journal).toEqual(["start kept", "start old", "start next", "stop old"]);
  expect(recorder.changes).toEqual(["+ kept", "+ old", "- old", "+ next"]);
  kept!.give("kept more");
  old!.give("late");
  old!.fail(notFound);
  next!.give("");
  expect(recorder.lists.slice(2)).toEqual(["next kept more", "kept more"]);
  expect(recorder.errors).toEqual([]);
  await merged.stop();
  expect(journal.slice(4)).toEqual(["stop next", "stop kept"]);
});

test("the same sources change nothing", async () => {
  const recorder = createRecorder();
  const { source } = createManualSource("only", "a");
  const merged = mergeSources([source], recorder);
  await merged.start();
  await merged.follow([source]);
  await merged.stop();
  expect(recorder.lists).toEqual(["a"]);
});

test("an engine that goes over from one source to another is never away", async () => {
  const recorder = createRecorder();
  const list = createListSource([engine("a"), engine("b")]);
  const merged = mergeSources([list], recorder);
  await merged.start();
  const slow = createSlowSource("dns");
  const moved = merged.follow([createListSource([engine("b")]), slow.source]);
  await Promise.resolve();
  slow.give("a");
  expect(recorder.lists).toEqual(["a b"]);
  slow.finish();
  await moved;
  await merged.follow([list]);
  await merged.stop();
  expect(recorder.lists).toEqual(["a b", "b a", "a b"]);
  expect(recorder.conflicts).toEqual([]);
});

test("the old sources count, and change, until the new ones have started", async () => {
  const recorder = createRecorder();
  const old = createManualSource("dns x", "a");
  const merged = mergeSources([old.source], recorder);
  await merged.start();
  const slow = createSlowSource("dns y");
  const moved = merged.follow([slow.source]);
  await Promise.resolve();
  old.give("a b");
  slow.tell((observer) => observer.onError(notFound));
  expect(recorder).toMatchObject({ lists: ["a", "a b"], errors: [] });
  slow.finish();
  await moved;
  await merged.stop();
  expect(recorder).toMatchObject({
    lists: ["a", "a b", ""],
    errors: [notFound],
    changes: ["+ dns x", "- dns x", "+ dns y"],
  });
});

test.each([
  ["it names engines", (observer: SourceObserver) => observer.onList([engine("c")]), "c"],
  ["it is well, and there are none", (observer: SourceObserver) => observer.onRecovered(), ""],
])("one that takes the place of another of its name, and fails, has its engines until %s", async (_, act, then) => {
  const recorder = createRecorder();
  const old = createManualSource("dns x", "a b");
  const merged = mergeSources([old.source], recorder);
  await merged.start();
  const [second, third] = [createSlowSource("dns x"), createSlowSource("dns x")];
  for (const one of [second, third]) {
    const moved = merged.follow([one.source]);
    await Promise.resolve();
    one.tell((observer) => observer.onError(notFound));
    one.finish();
    await moved;
    expect(recorder.lists.at(-1)).toBe("a b");
  }
  third.tell(act);
  expect(recorder.lists.at(-1)).toBe(then);
  third.give("");
  expect(recorder.lists.at(-1)).toBe("");
  expect(recorder.changes).toEqual(["+ dns x", "+ dns x", "+ dns x"]);
  await merged.stop();
});

test("one that cannot be started is told of, and the others are followed", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const merged = mergeSources([createManualSource("first", "a").source], recorder);
  await merged.start();
  await merged.follow([failingSource("broken", journal), createManualSource("second", "b").source]);
  expect(recorder.lists).toEqual(["a", "b"]);
  expect(recorder.errors.map(({ code }) => code)).toEqual(["config_unreadable"]);
  await merged.stop();
});

test("of changes that come while one is under way the last one counts, and the others never do", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const merged = mergeSources([createManualSource("first", "a", journal).source], recorder);
  await merged.start();
  const slow = createSlowSource("slow", journal);
  const [never, last] = ["never", "last"].map((name) => createManualSource(name, name, journal).source);
  const all = [merged.follow([slow.source])];
  await Promise.resolve();
  all.push(merged.follow([never!]), merged.follow([last!]));
  slow.finish();
  await Promise.all(all);
  expect(recorder.lists).toEqual(["a", "last"]);
  expect(journal).toEqual(["start first", "start slow", "stop slow", "start last", "stop first"]);
  expect(recorder.changes).toEqual(["+ first", "- first", "+ last"]);
  await merged.stop();
});

test("a change that is taken back while it is under way changes nothing", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const { source } = createManualSource("first", "a", journal);
  const merged = mergeSources([source], recorder);
  await merged.start();
  const slow = createSlowSource("slow", journal);
  const all = [merged.follow([source, slow.source])];
  await Promise.resolve();
  all.push(merged.follow([source]));
  slow.finish();
  await Promise.all(all);
  expect(recorder).toMatchObject({ lists: ["a"], changes: ["+ first"] });
  expect(journal).toEqual(["start first", "start slow", "stop slow"]);
  await merged.stop();
});

test("before the start it says what is started; while that is under way, it waits", async () => {
  const recorder = createRecorder();
  const slow = createSlowSource("slow");
  const merged = mergeSources([createManualSource("first", "a").source], recorder);
  await merged.follow([slow.source]);
  const started = merged.start();
  const changed = merged.follow([createManualSource("last", "z").source]);
  slow.give("s");
  slow.finish();
  await Promise.all([started, changed]);
  expect(recorder.lists).toEqual(["s", "z"]);
  await merged.stop();
});

test("a stop ends what is starting, too, and nothing is heard of it", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const merged = mergeSources([createManualSource("first", "a", journal).source], recorder);
  await merged.start();
  const slow = createSlowSource("slow", journal);
  const change = merged.follow([slow.source]);
  await Promise.resolve();
  await merged.stop();
  slow.give("s");
  slow.finish();
  await change;
  await merged.follow([createManualSource("late", "z", journal).source]);
  expect(recorder.lists).toEqual(["a"]);
  expect(journal).toEqual(["start first", "start slow", "stop first", "stop slow"]);
});
