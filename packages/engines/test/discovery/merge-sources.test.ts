import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { EspalierError } from "@espalier/core";
import { createVirtualTime, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createFileSource, createListSource, type EngineSource, mergeSources } from "../../src/discovery/index.ts";
import {
  createFolder,
  createManualSource,
  createRecorder,
  engine,
  failingSource,
  parseIds,
  rejectionOf,
  withoutPolling,
} from "./helpers.ts";

test("a static source gives its list as it is", async () => {
  const specs = [engine("a"), engine("b")];
  const given: unknown[] = [];
  const source = createListSource(specs);
  await source.start({ onList: (list) => given.push(list), onError: (error) => given.push(error), onRecovered() {} });
  await source.stop();
  expect(given).toEqual([specs]);
});

test("gives one list when all have started, in the order of the sources", async () => {
  const recorder = createRecorder();
  const merged = mergeSources(
    [createListSource([engine("c"), engine("a")]), createListSource([]), createListSource([engine("b")])],
    recorder,
  );
  await merged.start();
  await merged.stop();
  expect(recorder).toMatchObject({ lists: ["c a b"], errors: [] });
});

test("no sources at all give the empty list", async () => {
  const recorder = createRecorder();
  const merged = mergeSources([], recorder);
  await merged.start();
  await merged.stop();
  expect(recorder.lists).toEqual([""]);
});

test("each change of a source gives the whole union", async () => {
  const recorder = createRecorder();
  const first = createManualSource("first", "a");
  const second = createManualSource("second", "x");
  const merged = mergeSources([first.source, second.source], recorder);
  await merged.start();
  second.give("x y");
  first.give("");
  first.give("b");
  await merged.stop();
  expect(recorder.lists).toEqual(["a x", "a x y", "x y", "b x y"]);
});

test("the first source wins an id, and the conflict is reported once for as long as it lasts", async () => {
  const recorder = createRecorder();
  const urls: string[] = [];
  const second = createManualSource("second", "b a");
  const merged = mergeSources([createListSource([engine("a", "http://mine:1")]), second.source], {
    onList(specs) {
      recorder.onList(specs);
      urls.push(specs.find(({ id }) => id === "a")?.url ?? "none");
    },
    onError: recorder.onError,
    onConflict: recorder.onConflict,
    onRecovered: recorder.onRecovered,
    onFollowed() {},
    onLeft() {},
  });
  await merged.start();
  expect(recorder.lists).toEqual(["a b"]);
  expect(recorder.errors).toEqual([]);
  expect(recorder.conflicts.map(({ code, message }) => [code, message])).toEqual([
    ["config_invalid", "engine a of second ignored: duplicate id, kept from the configuration"],
  ]);

  second.give("a c");
  expect(recorder.conflicts).toHaveLength(1);
  second.give("c");
  second.give("a c");
  expect(recorder.conflicts).toHaveLength(2);
  await merged.stop();
  expect(recorder.lists).toEqual(["a b", "a c", "a c", "a c"]);
  expect(new Set(urls)).toEqual(new Set(["http://mine:1"]));
});

test("an id in three sources and twice in one of them is reported once", async () => {
  const recorder = createRecorder();
  const sources = ["a b", "a a", "a b"].map((ids, index) => createManualSource(`source ${index}`, ids).source);
  const merged = mergeSources(sources, recorder);
  await merged.start();
  await merged.stop();
  expect(recorder.lists).toEqual(["a b"]);
  expect(recorder.conflicts.map(({ message }) => message)).toEqual([
    "engine a of source 1 ignored: duplicate id, kept from source 0",
    "engine b of source 2 ignored: duplicate id, kept from source 0",
  ]);
});

test("errors of a source pass through and leave the list", async () => {
  const recorder = createRecorder();
  const { source, fail } = createManualSource("only", "a");
  const merged = mergeSources([source], recorder);
  await merged.start();
  const error = new EspalierError("config_unreadable");
  fail(error);
  await merged.stop();
  expect(recorder.errors).toEqual([error]);
  expect(recorder.lists).toEqual(["a"]);
});

test("what a source says of its failures and their end goes on with its name", async () => {
  const reported: string[] = [];
  const sources = ["one", "two"].map((name) => createManualSource(name, name));
  const merged = mergeSources(
    sources.map(({ source }) => source),
    {
      onList() {},
      onError: ({ code }, source) => reported.push(`${source}: ${code}`),
      onConflict() {},
      onRecovered: (source) => reported.push(`${source} is well`),
      onFollowed() {},
      onLeft() {},
    },
  );
  await merged.start();
  sources[1]?.fail(new EspalierError("discovery_failed"));
  sources[1]?.recover();
  await merged.stop();
  expect(reported).toEqual(["two: discovery_failed", "two is well"]);
});

test("sources start side by side: one that waits for others over the network holds up none", async () => {
  const journal: string[] = [];
  let answer = (): void => {};
  const slow: EngineSource = {
    name: "slow",
    start: () =>
      new Promise((resolve) => {
        answer = resolve;
      }),
    async stop() {},
  };
  const recorder = createRecorder();
  const merged = mergeSources([slow, createManualSource("quick", "a", journal).source], recorder);
  const started = merged.start();
  expect(journal).toEqual(["start quick"]);
  expect(recorder.lists).toEqual([]);
  answer();
  await started;
  expect(recorder.lists).toEqual(["a"]);
  await merged.stop();
});

test("when a source fails to start, the others are stopped and nothing is given", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const first = createManualSource("first", "a", journal);
  const last = createManualSource("last", "z", journal);
  const merged = mergeSources([first.source, failingSource("middle", journal), last.source], recorder);
  expect((await rejectionOf(merged.start())).message).toBe("middle cannot be read");
  await merged.stop();
  expect(journal).toEqual(["start first", "start last", "stop first", "stop last"]);
  first.give("a b");
  expect(recorder.lists).toEqual([]);
});

test("stop stops every source, and what one says afterwards is not passed on", async () => {
  const journal: string[] = [];
  const recorder = createRecorder();
  const sources = ["one", "two"].map((name) => createManualSource(name, name, journal));
  const merged = mergeSources(
    sources.map(({ source }) => source),
    recorder,
  );
  await merged.start();
  await merged.stop();
  expect(journal).toEqual(["start one", "start two", "stop one", "stop two"]);
  sources[0]?.give("late");
  expect(recorder.lists).toEqual(["one two"]);
});

test("a watched file joins the configured list and follows its changes until stop", async () => {
  const path = join(await createFolder(), "engines.yaml");
  await writeFile(path, "b c");
  const recorder = createRecorder();
  const file = createFileSource({ path, parse: parseIds, scheduler: withoutPolling, debounceMs: 10 });
  const merged = mergeSources([createListSource([engine("a"), engine("b")]), file], recorder);
  onTestFinished(() => merged.stop());
  await merged.start();
  expect(recorder.lists).toEqual(["a b c"]);
  await writeFile(`${path}.new`, "d");
  await rename(`${path}.new`, path);
  await waitFor(() => recorder.lists.length === 2, { what: "second list" });
  expect(recorder.lists).toEqual(["a b c", "a b d"]);
  expect(recorder.conflicts.map(({ message }) => message)).toEqual([
    `engine b of file ${path} ignored: duplicate id, kept from the configuration`,
  ]);
});

test("a file source that had started leaves no timer when a later source fails", async () => {
  const path = join(await createFolder(), "engines.yaml");
  await writeFile(path, "a");
  const time = createVirtualTime();
  const file = createFileSource({ path, parse: parseIds, scheduler: time.scheduler });
  const merged = mergeSources([file, failingSource("next", [])], createRecorder());
  await rejectionOf(merged.start());
  expect(time.pendingCount).toBe(0);
});
