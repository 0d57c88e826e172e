import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createSeededRandom } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, waitFor } from "@espalier/testing";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import {
  createPoolThread,
  createTokenizerPool,
  type PieceBatch,
  type TokenizerPool,
} from "../../src/workers/tokenizer-pool.ts";
import { vocabularyOf } from "../support/models-made.ts";
import { buildWorkerProgram, type WorkerProgram } from "../support/worker-program.ts";

let folder: string;
let programs = 0;
const pools: TokenizerPool[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "espalier-pool-states-"));
});
afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.stop();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** A program of a thread that does with each request as the given text says. */
async function programOf(onRequest: string): Promise<URL> {
  const path = join(folder, `program-${programs++}.mjs`);
  const source = `import { parentPort } from "node:worker_threads";
    const answer = (request, ...ids) =>
      parentPort.postMessage({ id: request.id, tokens: Uint32Array.from(ids), counts: [ids.length] });
    parentPort.on("message", (request) => { ${onRequest} });`;
  await writeFile(path, source);
  return pathToFileURL(path);
}

interface Rig {
  readonly pool: TokenizerPool;
  readonly time: ReturnType<typeof createVirtualTime>;
  readonly logger: ReturnType<typeof createRecordingLogger>;
}

async function rig(
  program: URL,
  options: { readonly threads?: number; readonly maxBatchMs?: number } = {},
): Promise<Rig> {
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const random = createSeededRandom(1);
  const pool = createTokenizerPool({ threads: 1, scheduler: time.scheduler, random, logger, program, ...options });
  pools.push(pool);
  await pool.start();
  return { pool, time, logger };
}

const batch = (...texts: readonly string[]): PieceBatch => ({ folder, texts, startsPrompt: false });
const silent = "";
const obeying = `
  const [text] = request.texts;
  if (text === "die") throw new Error("as told");
  if (text === "exit") process.exit(4);
  if (text === "hang") return;
  if (text === "refuse") { parentPort.postMessage({ id: request.id, error: "refused" }); return; }
  answer(request, Number(text));`;

describe("batches", () => {
  test("of one thread are answered in the order in which they came", async () => {
    const { pool } = await rig(await programOf(obeying));
    const order: number[] = [];
    const promises = [3, 1, 2].map((id) => pool.encode(batch(String(id)))?.then(([row]) => order.push(row![0]!)));
    await Promise.all(promises);
    expect(order).toEqual([3, 1, 2]);
  });

  test("that a thread refuses fail alone: the thread stays, and nothing is logged", async () => {
    const { pool, logger } = await rig(await programOf(obeying));
    const refused = pool.encode(batch("refuse"));
    const next = pool.encode(batch("7"));
    await expect(refused).rejects.toThrow("refused");
    expect(await next).toEqual([Uint32Array.of(7)]);
    expect(logger.lines).toEqual([]);
  });

  test("go by a thread that is stuck to one that is not", async () => {
    const { pool, time } = await rig(await programOf(obeying), { threads: 2 });
    const stuck = pool.encode(batch("hang"));
    for (const id of [1, 2, 3]) expect(await pool.encode(batch(String(id)))).toEqual([Uint32Array.of(id)]);
    const failed = expect(stuck).rejects.toThrow("the tokenizer thread ended");
    time.advance(30_000);
    await failed;
  });

  test("have 30 s, and not a millisecond more", async () => {
    const { pool, time, logger } = await rig(await programOf(obeying));
    const settled: string[] = [];
    pool.encode(batch("hang"))?.catch((error: Error) => settled.push(error.message));
    await time.advanceAsync(29_999);
    expect([settled, logger.lines]).toEqual([[], []]);
    time.advance(1);
    await waitFor(() => settled.length === 1, { what: "failure of the batch" });
    expect(settled[0]).toMatch(/^the tokenizer thread ended: /);
  });

  test("answers to requests that nobody waits for are passed over", async () => {
    const stray = "parentPort.postMessage({ id: 99, error: 'stray' }); answer(request, 5);";
    const { pool } = await rig(await programOf(stray));
    expect(await pool.encode(batch("a"))).toEqual([Uint32Array.of(5)]);
    expect(await pool.encode(batch("b"))).toEqual([Uint32Array.of(5)]);
  });
});

describe("making threads ready", () => {
  // Each thread says by its own number that it has been asked, and on which model.
  const counting = `
    globalThis.asked ??= [];
    const { texts, folder } = request;
    if (folder === "broken") { parentPort.postMessage({ id: request.id, error: "no such model" }); return; }
    if (folder === "deadly") process.exit(4);
    if (texts[0] !== "how often") globalThis.asked.push(texts.join("").length);
    answer(request, ...globalThis.asked);`;

  test("every thread is given the same long texts, once for each model", async () => {
    const { pool } = await rig(await programOf(counting), { threads: 3 });
    await Promise.all([pool.warm("one"), pool.warm("another")]);
    const reported = await Promise.all([1, 2, 3].map(() => pool.encode(batch("how often"))));
    const lengths = reported.map((rows) => [...rows![0]!]);
    expect(lengths.map(({ length }) => length)).toEqual([2, 2, 2]);
    expect(new Set(lengths.flat()).size).toBe(1);
    expect(lengths[0]![0]).toBeGreaterThan(10_000);
  });

  test("goes before what waits, and lets it pass afterwards", async () => {
    const { pool } = await rig(await programOf(counting));
    const before = pool.encode(batch("how often"));
    const waiting = pool.encode(batch("how often"));
    await pool.warm("one");
    expect([(await before)?.[0]?.length, (await waiting)?.[0]?.length]).toEqual([0, 1]);
  });

  test.each([
    ["refuses the model", "broken", "no such model"],
    ["ends of it", "deadly", "the tokenizer thread ended: exit code 4"],
  ])("a thread that %s is its failure", async (_, model, message) => {
    const { pool, time } = await rig(await programOf(counting), { threads: 2 });
    await expect(pool.warm(model)).rejects.toThrow(message);
    await time.advanceAsync(60_000);
    await pool.warm("one");
    expect((await pool.encode(batch("how often")))?.[0]).toHaveLength(1);
  });

  test("of more models at once than a thread keeps is refused", async () => {
    const { pool } = await rig(await programOf(silent));
    // The first is under way, and no longer one of those that wait.
    const taken = Array.from({ length: 1 + 16 }, (_, at) => pool.warm(`model-${at}`));
    for (const one of taken) one.catch(() => undefined);
    await expect(pool.warm("one more")).rejects.toThrow("too many models are being loaded");
  });

  test("ends with the pool, and without one", async () => {
    const { pool } = await rig(await programOf(silent));
    const both = Promise.allSettled([pool.warm("one"), pool.warm("another")]);
    await pool.stop();
    expect((await both).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    await expect(pool.warm("one")).rejects.toThrow("the tokenizer pool is not running");
  });
});

describe("what waits", () => {
  const ignore = (promise: Promise<unknown> | undefined): boolean => {
    promise?.catch(() => undefined);
    return promise !== undefined;
  };

  test("is at most 256 batches by default, besides those under way", async () => {
    const { pool } = await rig(await programOf(silent), { threads: 2 });
    const taken = Array.from({ length: 2 + 256 }, () => ignore(pool.encode(batch("a"))));
    expect(taken).not.toContain(false);
    expect(pool.encode(batch("one more"))).toBeUndefined();
  });

  test("is at most 64 Mi characters by default", async () => {
    const { pool } = await rig(await programOf(silent));
    const all = 64 * 1024 * 1024;
    expect(pool.encode(batch("x".repeat(all + 1)))).toBeUndefined();
    ignore(pool.encode(batch("under way")));
    expect(ignore(pool.encode(batch("x".repeat(all - 5), "12345")))).toBe(true);
    expect(pool.encode(batch("y"))).toBeUndefined();
  });

  test("makes room for as much when it is taken", async () => {
    const { pool } = await rig(await programOf(obeying));
    const all = "1".padStart(32 * 1024 * 1024, "0");
    ignore(pool.encode(batch("1")));
    const first = pool.encode(batch(all));
    expect(ignore(pool.encode(batch(all)))).toBe(true);
    expect(pool.encode(batch("1"))).toBeUndefined();
    expect(await first).toEqual([Uint32Array.of(1)]);
    expect(ignore(pool.encode(batch(all)))).toBe(true);
  });

  test("is served by a thread that was started again", async () => {
    const { pool, time, logger } = await rig(await programOf(obeying));
    const dead = pool.encode(batch("exit"));
    const waiting = pool.encode(batch("8"));
    await expect(dead).rejects.toThrow("the tokenizer thread ended: exit code 4");
    expect(logger.lines).toMatchObject([{ level: "warn", fields: { reason: "exit code 4" } }]);
    time.advance(50);
    expect(await waiting).toEqual([Uint32Array.of(8)]);
  });
});

describe("a pool", () => {
  test("that is stopped while a thread's pause lasts starts none", async () => {
    const { pool, time } = await rig(await programOf(obeying));
    await expect(pool.encode(batch("die"))).rejects.toThrow("as told");
    expect(time.pendingCount).toBe(1);
    await pool.stop();
    expect(time.pendingCount).toBe(0);
  });

  test("can be stopped twice, and started again", async () => {
    const { pool, logger } = await rig(await programOf(obeying));
    await pool.stop();
    await pool.stop();
    expect(pool.encode(batch("1"))).toBeUndefined();
    await pool.start();
    expect(await pool.encode(batch("2"))).toEqual([Uint32Array.of(2)]);
    expect(logger.lines).toEqual([]);
  });

  test("says of what waited that it was stopped", async () => {
    const { pool } = await rig(await programOf(silent));
    const [underWay, waiting] = [pool.encode(batch("a")), pool.encode(batch("b"))];
    const failed = Promise.all([
      expect(underWay).rejects.toThrow("the tokenizer thread ended"),
      expect(waiting).rejects.toThrow("the tokenizer pool was stopped"),
    ]);
    await pool.stop();
    await failed;
  });

  test("that was stopped and started takes as much as before", async () => {
    const { pool } = await rig(await programOf(obeying));
    const all = "x".repeat(64 * 1024 * 1024);
    for (const text of ["hang", all]) pool.encode(batch(text))?.catch(() => undefined);
    await pool.stop();
    await pool.start();
    expect(await pool.encode(batch("3"))).toEqual([Uint32Array.of(3)]);
  });

  test("forgets a thread's failures after a batch that it answered", async () => {
    const { pool, time, logger } = await rig(await programOf(obeying));
    const dieAndRestart = async (): Promise<number> => {
      await expect(pool.encode(batch("die"))).rejects.toThrow("as told");
      const delayMs = Number(logger.lines.at(-1)?.fields.delay_ms);
      time.advance(60_000);
      return delayMs;
    };
    for (let ends = 0; ends < 3; ends++) {
      expect(await dieAndRestart()).toBeLessThanOrEqual(50);
      expect(await pool.encode(batch("1"))).toEqual([Uint32Array.of(1)]);
    }
    const delays = [await dieAndRestart(), await dieAndRestart(), await dieAndRestart()];
    expect(delays[2]).toBeGreaterThanOrEqual(100);
  });

  test("whose program is not there keeps trying, after ever longer pauses", async () => {
    const { time, logger } = await rig(pathToFileURL(join(folder, "nothing.mjs")));
    for (let ends = 1; ends <= 3; ends++) {
      await waitFor(() => logger.lines.length === ends, { what: `end ${ends} of the thread` });
      time.advance(60_000);
    }
    expect(logger.lines[0]?.fields.reason).toMatch(/Cannot find module/);
  });
});

test("a thread that has ended takes nothing any more, and tells its end once", async () => {
  const ends: string[] = [];
  const thread = createPoolThread(await programOf(obeying), (reason) => ends.push(reason));
  await expect(thread.run(batch("exit"))).rejects.toThrow("the tokenizer thread ended: exit code 4");
  await expect(thread.run(batch("1"))).rejects.toThrow("the tokenizer thread has ended");
  await thread.stop();
  expect(ends).toEqual(["exit code 4"]);
});

describe("the program of a thread", () => {
  let program: WorkerProgram;
  beforeAll(async () => {
    program = await buildWorkerProgram();
  });
  afterAll(() => program.remove());

  /** A model of three tokens, in a folder of its own. */
  async function modelIn(name: string): Promise<string> {
    const path = join(folder, name);
    await mkdir(path);
    await writeModel(path);
    return path;
  }
  const writeModel = (path: string): Promise<void> =>
    writeFile(
      join(path, "tokenizer.json"),
      JSON.stringify({ model: { type: "BPE", vocab: vocabularyOf(["a", "b", "ab"]), merges: ["a b"] } }),
    );
  const of = (path: string, ...texts: readonly string[]): PieceBatch => ({ folder: path, texts, startsPrompt: true });

  test("keeps the tokenizers of 16 models, and for one more forgets the oldest", async () => {
    const { pool } = await rig(program.url);
    const folders = await Promise.all(Array.from({ length: 17 }, (_, index) => modelIn(`model-${index}`)));
    for (const path of folders.slice(0, 16)) expect(await pool.encode(of(path, "ab"))).toEqual([Uint32Array.of(2)]);
    // What a thread still has it does not read again.
    for (const path of folders) await rm(join(path, "tokenizer.json"));
    for (const path of folders.slice(0, 16)) expect(await pool.encode(of(path, "b"))).toEqual([Uint32Array.of(1)]);
    await writeModel(folders[16]!);
    expect(await pool.encode(of(folders[16]!, "a"))).toEqual([Uint32Array.of(0)]);
    await expect(pool.encode(of(folders[0]!, "a"))).rejects.toThrow("does not exist");
    expect(await pool.encode(of(folders[15]!, "a"))).toEqual([Uint32Array.of(0)]);
  });

  test("reads files that could not be read when they are asked for again", async () => {
    const { pool } = await rig(program.url);
    const path = join(folder, "late");
    await mkdir(path);
    await expect(pool.encode(of(path, "a"))).rejects.toThrow("does not exist");
    await writeModel(path);
    expect(await pool.encode(of(path, "ab", "", "ba"))).toEqual([
      Uint32Array.of(2),
      new Uint32Array(0),
      Uint32Array.of(1, 0),
    ]);
    expect(await pool.encode(of(path))).toEqual([]);
  });
});
