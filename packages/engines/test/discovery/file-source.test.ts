import { mkdir, rename, rm, symlink, unlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { EngineSpec } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createFileSource, type FileSourceOptions } from "../../src/discovery/index.ts";
import { createFolder, createRecorder, parseIds, rejectionOf, withoutPolling } from "./helpers.ts";

type Overrides = Partial<FileSourceOptions<EngineSpec>>;

/** A source that only its watcher drives, unless the test brings a scheduler. */
async function startSource(path: string, overrides: Overrides = {}, recorder = createRecorder()) {
  const source = createFileSource({ path, parse: parseIds, scheduler: withoutPolling, debounceMs: 10, ...overrides });
  onTestFinished(() => source.stop());
  await source.start(recorder);
  return { source, ...recorder };
}

async function createFile(text: string): Promise<string> {
  const path = join(await createFolder(), "engines.yaml");
  await writeFile(path, text);
  return path;
}

const latest = (lists: readonly string[], ids: string): Promise<unknown> =>
  waitFor(() => lists.at(-1) === ids, { what: `list "${ids}"` });

test("gives the first list before start resolves and names the file", async () => {
  const path = await createFile("a b");
  const { source, lists, errors } = await startSource(path);
  expect(lists).toEqual(["a b"]);
  expect(errors).toEqual([]);
  expect(source.name).toBe(`file ${path}`);
});

test("sees a file rewritten in place", async () => {
  const path = await createFile("a b");
  const { lists, errors } = await startSource(path);
  await writeFile(path, "a b c");
  await latest(lists, "a b c");
  await writeFile(path, "c");
  await latest(lists, "c");
  expect(errors).toEqual([]);
});

/**
 * Every engine was removed when its file was truncated, as by `cp` and `>` before they write: a blank file was a list of no
 * engines.
 */
test("a file that becomes blank is refused, and followed again once it says something", async () => {
  const parse = (text: string) => (text === "[]" ? [] : parseIds(text, "file"));
  const path = await createFile("a b");
  const { lists, errors } = await startSource(path, { parse });
  for (const blank of ["", " \n", "# engines\n---\n"]) {
    await writeFile(path, blank);
    await waitFor(() => errors.length === 1, { what: "a refusal" });
    expect(errors.pop()?.message).toContain("the file became empty");
    expect(lists.at(-1)).not.toBe("");
    await writeFile(path, `a ${blank.length}`);
    await latest(lists, `a ${blank.length}`);
  }
  await writeFile(path, "[]");
  await latest(lists, "");
  await writeFile(path, "c");
  await latest(lists, "c");
});

test("a file that is blank at first is an empty list, and one of no engines may become blank", async () => {
  const path = await createFile("");
  const { lists, errors } = await startSource(path);
  await writeFile(path, "\n");
  await writeFile(path, "a");
  await latest(lists, "a");
  expect(lists[0]).toBe("");
  expect(errors).toEqual([]);
});

test("sees each of several atomic renames over the file", async () => {
  const path = await createFile("a");
  const { lists, errors } = await startSource(path);
  for (const ids of ["a b", "b", "b c d"]) {
    await writeFile(`${path}.new`, ids);
    await rename(`${path}.new`, path);
    await latest(lists, ids);
  }
  expect(lists).toEqual(["a", "a b", "b", "b c d"]);
  expect(errors).toEqual([]);
});

test("sees Kubernetes swap the ..data link of a mounted ConfigMap", async () => {
  const folder = await createFolder();
  // The kubelet's AtomicWriter: a folder per version, `..data` renamed over, then the folder before is removed.
  const publish = async (version: string, ids: string): Promise<void> => {
    await mkdir(join(folder, version));
    await writeFile(join(folder, version, "engines.yaml"), ids);
    await symlink(version, join(folder, "..data_tmp"));
    await rename(join(folder, "..data_tmp"), join(folder, "..data"));
  };
  await publish("..2024_01", "a");
  await symlink(join("..data", "engines.yaml"), join(folder, "engines.yaml"));
  const { lists, errors } = await startSource(join(folder, "engines.yaml"));

  await publish("..2024_02", "a b");
  await rm(join(folder, "..2024_01"), { recursive: true });
  await latest(lists, "a b");
  await publish("..2024_03", "c");
  await rm(join(folder, "..2024_02"), { recursive: true });
  await latest(lists, "c");
  expect(lists).toEqual(["a", "a b", "c"]);
  expect(errors).toEqual([]);
});

test("keeps the list through broken content and takes the repaired one", async () => {
  const path = await createFile("a b");
  const { lists, errors } = await startSource(path);
  await writeFile(`${path}.new`, "a ?");
  await rename(`${path}.new`, path);
  await waitFor(() => errors.length > 0, { what: "report" });
  expect(errors.map(({ code, message }) => [code, message])).toEqual([["config_invalid", `${path}: question mark`]]);
  expect(lists).toEqual(["a b"]);

  await writeFile(`${path}.new`, "a c");
  await rename(`${path}.new`, path);
  await latest(lists, "a c");
  expect(lists).toEqual(["a b", "a c"]);
  expect(errors).toHaveLength(1);
});

test("keeps the list while the file is gone and goes on when it is back", async () => {
  const path = await createFile("a");
  const { lists, errors } = await startSource(path);
  await unlink(path);
  await waitFor(() => errors.length > 0, { what: "report" });
  expect(errors.map(({ code, message }) => [code, message])).toEqual([
    ["config_unreadable", `${path} cannot be read: ENOENT`],
  ]);
  expect(lists).toEqual(["a"]);
  await writeFile(`${path}.new`, "a b");
  await rename(`${path}.new`, path);
  await latest(lists, "a b");
  expect(lists).toEqual(["a", "a b"]);
  expect(errors).toHaveLength(1);
});

test("a burst of writes is read once, when the folder has been quiet for the debounce time", async () => {
  const path = await createFile("a");
  const time = createVirtualTime();
  const texts: string[] = [];
  const parse = (text: string, from: string) => {
    texts.push(text);
    return parseIds(text, from);
  };
  const { lists } = await startSource(path, { parse, scheduler: time.scheduler, debounceMs: 50 });
  const idleCount = time.pendingCount;
  for (const ids of ["b", "c", "d"]) await writeFile(path, ids);
  await waitFor(() => time.pendingCount > idleCount, { what: "pending read" });
  await time.advanceAsync(49);
  await writeFile(path, "e");
  expect(texts).toEqual(["a"]);
  await waitFor(
    async () => {
      await time.advanceAsync(50);
      return lists.at(-1) === "e";
    },
    { what: "list" },
  );
  expect(texts).toEqual(["a", "e"]);
});

test("content that is equal again is neither parsed nor given", async () => {
  const path = await createFile("a");
  const time = createVirtualTime();
  let parseCount = 0;
  const parse = (text: string, from: string) => {
    parseCount++;
    return parseIds(text, from);
  };
  const { lists, errors } = await startSource(path, { parse, scheduler: time.scheduler });
  const idleCount = time.pendingCount;
  await writeFile(`${path}.new`, "a");
  await rename(`${path}.new`, path);
  await waitFor(() => time.pendingCount > idleCount, { what: "pending read" });
  await time.advanceAsync(10);
  await writeFile(`${path}.new`, "b");
  await rename(`${path}.new`, path);
  await waitFor(() => time.advanceAsync(10).then(() => lists.at(-1) === "b"), { what: "list b" });
  expect(lists).toEqual(["a", "b"]);
  expect(parseCount).toBe(2);
  expect(errors).toEqual([]);
});

test("good content restored after a failure is not given again, and a new failure is reported again", async () => {
  const path = await createFile("a");
  const recorder = createRecorder();
  const { lists, errors } = await startSource(path, {}, recorder);
  const reported = (count: number) => waitFor(() => errors.length === count, { what: `report ${count}` });
  const replace = async (text: string): Promise<void> => {
    await writeFile(`${path}.new`, text);
    await rename(`${path}.new`, path);
  };
  await replace("?");
  await reported(1);
  await unlink(path);
  await reported(2);
  await replace("?");
  await reported(3);
  await replace("a");
  await replace("a b");
  await latest(lists, "a b");
  await replace("?");
  await reported(4);
  expect(lists).toEqual(["a", "a b"]);
  expect(errors.map(({ code }) => code)).toEqual([
    "config_invalid",
    "config_unreadable",
    "config_invalid",
    "config_invalid",
  ]);
  expect(recorder.recoveries).toBe(1);
});

/** A file whose watched folder sees nothing of its changes: the link stays, its target lies elsewhere. */
async function createUnwatchable(text: string): Promise<{ path: string; target: string }> {
  const target = await createFile(text);
  const path = join(await createFolder(), "engines.yaml");
  await symlink(target, path);
  return { path, target };
}

test("polls every five seconds for changes that no watcher sees", async () => {
  const { path, target } = await createUnwatchable("a");
  const time = createVirtualTime();
  const { lists } = await startSource(path, { scheduler: time.scheduler });
  await writeFile(target, "a b");
  expect(time.pendingCount).toBe(1);
  await time.advanceAsync(4_999);
  expect(time.pendingCount).toBe(1);
  expect(lists).toEqual(["a"]);
  await time.advanceAsync(1);
  await latest(lists, "a b");
});

test("a failure that lasts is reported and parsed once, however often the file is polled", async () => {
  const { path, target } = await createUnwatchable("a");
  const time = createVirtualTime();
  const texts: string[] = [];
  const parse = (text: string, from: string) => {
    texts.push(text);
    return parseIds(text, from);
  };
  const { lists, errors } = await startSource(path, { parse, scheduler: time.scheduler });
  const poll = async (until: () => boolean): Promise<void> => {
    await time.advanceAsync(5_000);
    await waitFor(until, { what: "effect of the poll" });
  };
  await writeFile(target, "?");
  await poll(() => errors.length === 1);
  for (let round = 0; round < 5; round++) await time.advanceAsync(5_000);
  await unlink(target);
  await poll(() => errors.length === 2);
  for (let round = 0; round < 5; round++) await time.advanceAsync(5_000);
  await writeFile(`${target}.new`, "b");
  await rename(`${target}.new`, target);
  await poll(() => lists.length === 2);
  expect(texts).toEqual(["a", "?", "b"]);
  expect(errors.map(({ code }) => code)).toEqual(["config_invalid", "config_unreadable"]);
});

test("polling goes on when the folder itself is removed and made again", async () => {
  const folder = join(await createFolder(), "mount");
  const path = join(folder, "engines.yaml");
  await mkdir(folder);
  await writeFile(path, "a");
  const time = createVirtualTime();
  const { lists } = await startSource(path, { scheduler: time.scheduler });
  await rm(folder, { recursive: true });
  await mkdir(folder);
  await writeFile(path, "b");
  await waitFor(() => time.advanceAsync(5_000).then(() => lists.at(-1) === "b"), { what: "list b" });
  expect(lists).toEqual(["a", "b"]);
});

test.each([
  ["no file", async () => {}, "config_unreadable", "cannot be read: ENOENT"],
  ["a folder", (path: string) => mkdir(path), "config_unreadable", "is not a regular file"],
  ["broken content", (path: string) => writeFile(path, "a ?"), "config_invalid", "question mark"],
  ["bytes that are not UTF-8", (path: string) => writeFile(path, Buffer.of(0x61, 0xff)), "config_invalid", "utf-8"],
])("start rejects on %s and leaves nothing behind", async (_name, prepare, code, part) => {
  const path = join(await createFolder(), "engines.yaml");
  await prepare(path);
  const time = createVirtualTime();
  const recorder = createRecorder();
  const source = createFileSource({ path, parse: parseIds, scheduler: time.scheduler });
  const error = await rejectionOf(source.start(recorder));
  expect(error.code).toBe(code);
  expect(error.message).toContain(path);
  expect(error.message).toContain(part);
  expect(time.pendingCount).toBe(0);
  expect(recorder).toMatchObject({ lists: [], errors: [] });
  await source.stop();
});

test("start rejects when the folder is absent too, and says that it is not watched", async () => {
  const path = join(await createFolder(), "absent", "engines.yaml");
  const logger = createRecordingLogger();
  const source = createFileSource({ path, parse: parseIds, logger });
  expect((await rejectionOf(source.start(createRecorder()))).code).toBe("config_unreadable");
  expect(logger.lines).toMatchObject([{ level: "warn", fields: { path: join(path, "..") } }]);
  await source.stop();
});

test("a parser that throws anything else becomes config_invalid with its cause", async () => {
  const path = await createFile("{");
  const parse = (text: string) => JSON.parse(text);
  const error = await rejectionOf(createFileSource({ path, parse }).start(createRecorder()));
  expect(error.code).toBe("config_invalid");
  expect(error.message.startsWith(`${path}: `)).toBe(true);
  expect(error.cause).toBeInstanceOf(SyntaxError);
});

test("a byte order mark is not part of the text", async () => {
  const { lists } = await startSource(await createFile("\ufeffa"));
  expect(lists).toEqual(["a"]);
});

const maxFileBytes = 16 * 1024 * 1024;

test("a file of 16 MiB is read and one byte more is refused at start", async () => {
  const path = await createFile("a".padEnd(maxFileBytes, "\n"));
  const { lists } = await startSource(path);
  expect(lists).toEqual(["a"]);

  await writeFile(path, "a".padEnd(maxFileBytes + 1, "\n"));
  const error = await rejectionOf(createFileSource({ path, parse: parseIds }).start(createRecorder()));
  expect([error.code, error.message]).toEqual(["config_unreadable", `${path} is larger than ${maxFileBytes} bytes`]);
});

test("a file that grows past 16 MiB is reported once and keeps the list", async () => {
  const path = await createFile("a");
  const { lists, errors } = await startSource(path);
  await writeFile(`${path}.new`, "b".padEnd(maxFileBytes + 1, "\n"));
  await rename(`${path}.new`, path);
  await waitFor(() => errors.length > 0, { what: "report" });
  expect(errors.map(({ code }) => code)).toEqual(["config_unreadable"]);
  expect(lists).toEqual(["a"]);
});

test("after stop no timer is left and nothing more is heard", async () => {
  const path = await createFile("a");
  const time = createVirtualTime();
  const stopped = await startSource(path, { scheduler: time.scheduler });
  const idleCount = time.pendingCount;
  await writeFile(path, "b");
  await waitFor(() => time.pendingCount > idleCount, { what: "pending read" });
  await stopped.source.stop();
  expect(time.pendingCount).toBe(0);

  // A second source proves that the change could be seen at all before the first one is judged.
  const witness = await startSource(path);
  await writeFile(path, "c");
  await latest(witness.lists, "c");
  await time.advanceAsync(60_000);
  expect(time.pendingCount).toBe(0);
  expect(stopped.lists).toEqual(["a"]);
  expect(stopped.errors).toEqual([]);
});

test("stop waits for a read under way and silences it", async () => {
  const { path, target } = await createUnwatchable("a");
  const time = createVirtualTime();
  const { source, lists } = await startSource(path, { scheduler: time.scheduler });
  await writeFile(target, "b");
  time.advance(5_000);
  await source.stop();
  expect(lists).toEqual(["a"]);
});
