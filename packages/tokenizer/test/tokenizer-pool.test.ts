import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createSeededRandom, systemScheduler } from "@espalier/core";
import { createRecordingLogger, createVirtualTime, waitFor } from "@espalier/testing";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createTextTokenizer } from "../src/text/text-tokenizer.ts";
import { createTokenizerPool, type TokenizerPool, type TokenizerPoolOptions } from "../src/workers/tokenizer-pool.ts";
import { modelFolders, readModel } from "./support/models.ts";
import { buildWorkerProgram, type WorkerProgram } from "./support/worker-program.ts";

let program: WorkerProgram;
let folder: string;
const pools: TokenizerPool[] = [];

beforeAll(async () => {
  program = await buildWorkerProgram();
  folder = await mkdtemp(join(tmpdir(), "espalier-pool-"));
});

afterEach(async () => {
  for (const pool of pools.splice(0)) await pool.stop();
});

afterAll(async () => {
  await program.remove();
  await rm(folder, { recursive: true, force: true });
});

async function startPool(options: Partial<TokenizerPoolOptions> = {}): Promise<TokenizerPool> {
  const pool = createTokenizerPool({
    threads: 1,
    scheduler: systemScheduler,
    random: createSeededRandom(1),
    logger: createRecordingLogger(),
    program: program.url,
    ...options,
  });
  pools.push(pool);
  await pool.start();
  return pool;
}

/** A program of a thread that does as the given text says. */
async function programOf(source: string): Promise<URL> {
  const path = join(folder, `${pools.length}-${source.length}.mjs`);
  await writeFile(path, `import { parentPort } from "node:worker_threads";\n${source}`);
  return pathToFileURL(path);
}

const espalier = modelFolders["espalier-tiny"]!;
const batch = (...texts: string[]) => ({ folder: espalier, texts, startsPrompt: false });

test("threads make the tokens that the tokenizer makes, of several models and batches at once", async () => {
  const pool = await startPool({ threads: 2 });
  const models = ["espalier-tiny", "spm-bpe"];
  const texts = ["Hello there", "", "<|im_start|>user\nHi<|im_end|>", "ein zweiter Satz, größer", "🙂".repeat(50)];
  const results = await Promise.all(
    models.flatMap((name) =>
      [true, false].map((startsPrompt) => pool.encode({ folder: modelFolders[name]!, texts, startsPrompt })),
    ),
  );
  const expected = models.flatMap((name) => {
    const tokenizer = createTextTokenizer({ tokenizer: readModel(name), config: {} });
    return [true, false].map((startsPrompt) =>
      texts.map((text, index) => tokenizer.encodePiece(text, startsPrompt && index === 0)),
    );
  });
  expect(results).toEqual(expected);
});

test("threads are made ready for every model, and for one that cannot be read it is said why", async () => {
  const pool = await startPool({ threads: 2 });
  await Promise.all(Object.values(modelFolders).map((model) => pool.warm(model)));
  await expect(pool.warm(join(folder, "nothing"))).rejects.toThrow(/does not exist/);
  expect(await pool.encode(batch("a"))).toHaveLength(1);
});

test("a model whose files cannot be read fails its batch, and the thread goes on", async () => {
  const pool = await startPool();
  await expect(pool.encode({ ...batch("a"), folder: join(folder, "nothing") })).rejects.toThrow(/does not exist/);
  expect(await pool.encode(batch("a"))).toHaveLength(1);
});

test("what waits is bounded in batches and in characters; one past the bound is turned away", async () => {
  const silent = await programOf("parentPort.on('message', () => {});");
  const pool = await startPool({ program: silent, maxWaiting: 2, maxWaitingLength: 10 });
  const waiting = [pool.encode(batch("busy")), pool.encode(batch("12345")), pool.encode(batch("12345"))];
  for (const promise of waiting) promise?.catch(() => undefined);
  expect(waiting.every((promise) => promise !== undefined)).toBe(true);
  expect(pool.encode(batch(""))).toBeUndefined();

  const other = await startPool({ program: silent, maxWaiting: 100, maxWaitingLength: 10 });
  for (const text of ["busy", "1234567890"]) other.encode(batch(text))?.catch(() => undefined);
  expect(other.encode(batch("1"))).toBeUndefined();
  const nothing = other.encode(batch(""));
  expect(nothing).toBeInstanceOf(Promise);
  nothing?.catch(() => undefined);
});

test("a pool that does not run turns everything away", async () => {
  const pool = await startPool();
  await pool.stop();
  expect(pool.encode(batch("a"))).toBeUndefined();
  expect((await startPool({ threads: 0 })).encode(batch("a"))).toBeUndefined();
});

test("stopping fails what is under way and what waits", async () => {
  const pool = await startPool({ program: await programOf("parentPort.on('message', () => {});") });
  const promises = ["under way", "waits"].map((text) => pool.encode(batch(text)));
  const settled = Promise.allSettled(promises);
  await pool.stop();
  expect((await settled).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});

test("a thread that ends fails its batch only, is started again, and takes what waits", async () => {
  const dies = await programOf(`
    parentPort.on("message", ({ id, texts }) => {
      if (texts[0] === "die") throw new Error("as told");
      parentPort.postMessage({ id, tokens: Uint32Array.of(7), counts: [1] });
    });`);
  const logger = createRecordingLogger();
  const pool = await startPool({ program: dies, logger });
  const [first, second] = [pool.encode(batch("die")), pool.encode(batch("live"))];
  await expect(first).rejects.toThrow(/ended: as told/);
  expect(await second).toEqual([Uint32Array.of(7)]);
  expect(logger.lines).toMatchObject([{ level: "warn", fields: { reason: "as told" } }]);
});

test("threads that keep ending are started again after ever longer pauses", async () => {
  const logger = createRecordingLogger();
  const time = createVirtualTime();
  const pool = await startPool({ program: await programOf("process.exit(3);"), logger, scheduler: time.scheduler });
  for (let ends = 1; ends <= 5; ends++) {
    await waitFor(() => logger.lines.length === ends, { what: `end ${ends} of the thread` });
    time.advance(60_000);
  }
  await pool.stop();
  const delays = logger.lines.map(({ fields }) => Number(fields.delay_ms)).slice(0, 5);
  for (const [index, delay] of delays.entries()) {
    expect(delay).toBeGreaterThanOrEqual(25 * 2 ** index);
    expect(delay).toBeLessThanOrEqual(50 * 2 ** index);
  }
});

test("a batch that takes too long has its thread ended", async () => {
  const time = createVirtualTime();
  const endless = await programOf("parentPort.on('message', () => { for (;;) {} });");
  const pool = await startPool({ program: endless, scheduler: time.scheduler, maxBatchMs: 1_000 });
  const promise = pool.encode(batch("a"));
  const failed = expect(promise).rejects.toThrow(/thread ended/);
  time.advance(1_001);
  await failed;
});

test("a stopped pool leaves no thread and no timer behind", async () => {
  const time = createVirtualTime();
  const pool = await startPool({ threads: 2, scheduler: time.scheduler });
  await pool.encode(batch("a"));
  await pool.stop();
  expect(time.pendingCount).toBe(0);
  expect(process.getActiveResourcesInfo().filter((name) => name === "MessagePort")).toEqual([]);
});
