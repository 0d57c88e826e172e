import { Worker } from "node:worker_threads";
import {
  backoffDelayMs,
  createSeededRandom,
  type Logger,
  programUrl,
  type Random,
  type Scheduler,
  type Startable,
} from "@espalier/core";
import type { TokenizeResult } from "./tokenizer-worker.ts";

export interface TokenizerPoolOptions {
  /** Number of threads; each loads the tokenizers of all models. */
  readonly threads: number;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly logger: Logger;
  /** Most requests that wait for a thread (256). */
  readonly maxWaiting?: number;
  /** Most characters that wait for a thread (64 Mi). */
  readonly maxWaitingLength?: number;
  /** Most time for a batch, after which its thread is killed (30 s). */
  readonly maxBatchMs?: number;
  /** A thread's program, unless it is the one next to this module. */
  readonly program?: URL;
}

/** Batches that wait for a thread. */
const defaultMaxWaiting = 256;
/** UTF-16 units of all texts that wait for a thread. */
const defaultMaxWaitingLength = 64 * 1024 * 1024;
/** Longest time of a batch. A thread that takes longer is ended. */
const defaultMaxBatchMs = 30_000;
/** Most models that a thread may still have to load: as many as it keeps. */
const maxOwn = 16;
const restart = { firstDelayMs: 50, maxDelayMs: 30_000 };

export interface PieceBatch {
  /** The folder of the model's files. */
  readonly folder: string;
  readonly texts: readonly string[];
  /** Whether the first of the texts starts a prompt. */
  readonly startsPrompt: boolean;
}

/** Tokenizes in separate threads. */
export interface TokenizerPool extends Startable {
  /**
   * The tokens of each text; undefined when too much is waiting or the pool is not running. Rejects when the thread
   * fails or the pool is stopped first.
   */
  encode(batch: PieceBatch): Promise<readonly Uint32Array[]> | undefined;
  /**
   * Makes every thread load a model and tokenize until it is fast: a request waits only a few milliseconds for its
   * tokens, which a new thread exceeds. Rejects like `encode`, with the first failure; a failing thread does not stop
   * the others.
   *
   * @param folder with the model's files
   */
  warm(folder: string): Promise<void>;
}

interface Waiting {
  readonly batch: PieceBatch;
  readonly length: number;
  readonly resolve: (tokens: readonly Uint32Array[]) => void;
  readonly reject: (error: Error) => void;
}

/**
 * Creates a pool, not yet started. A thread takes one batch at a time. A thread that ends by itself fails its batch and
 * is restarted, after a pause that doubles each time this repeats.
 */
export function createTokenizerPool(options: TokenizerPoolOptions): TokenizerPool {
  const { maxWaiting = defaultMaxWaiting, maxWaitingLength = defaultMaxWaitingLength, scheduler } = options;
  const { maxBatchMs = defaultMaxBatchMs } = options;
  const slots: Slot[] = [];
  const waiting: Waiting[] = [];
  let waitingLength = 0;
  let running = false;

  const takeWaiting = (): Waiting | undefined => {
    const next = waiting.shift();
    waitingLength -= next?.length ?? 0;
    return next;
  };
  const dispatch = (): void => {
    for (const slot of slots) {
      if (!slot.thread || slot.busy) continue;
      const next = slot.own.shift() ?? takeWaiting();
      if (next) void work(slot, slot.thread, next);
    }
  };
  const work = async (slot: Slot, thread: TokenizerThread, { batch, resolve, reject }: Waiting): Promise<void> => {
    slot.busy = true;
    const cancel = scheduler.after(maxBatchMs, () => thread.kill());
    try {
      resolve(rowsOf(await thread.run(batch)));
      slot.failures = 0;
    } catch (error) {
      reject(error as Error);
    } finally {
      cancel();
      slot.busy = false;
      dispatch();
    }
  };
  const launch = createLauncher(options, () => running, dispatch);

  return {
    async start() {
      running = true;
      for (let index = 0; index < options.threads; index++) {
        const slot: Slot = { thread: undefined, busy: false, own: [], failures: 0, cancel: undefined };
        slots.push(slot);
        launch(slot);
      }
    },
    async stop() {
      running = false;
      const left = [...waiting.splice(0), ...slots.flatMap(({ own }) => own.splice(0))];
      for (const { reject } of left) reject(new Error("the tokenizer pool was stopped"));
      waitingLength = 0;
      const ended = slots.splice(0).map(async ({ thread, cancel }) => {
        cancel?.();
        await thread?.stop();
      });
      await Promise.all(ended);
    },
    encode(batch) {
      const length = batch.texts.reduce((sum, text) => sum + text.length, 0);
      if (!running || slots.length === 0) return undefined;
      if (waiting.length >= maxWaiting || waitingLength + length > maxWaitingLength) return undefined;
      return new Promise((resolve, reject) => {
        waiting.push({ batch, length, resolve, reject });
        waitingLength += length;
        dispatch();
      });
    },
    warm: (folder) => warmEach(running ? slots : undefined, folder, dispatch),
  };
}

/** Makes every slot load the model before it takes waiting batches, and waits for all of them. */
async function warmEach(slots: readonly Slot[] | undefined, folder: string, dispatch: () => void): Promise<void> {
  if (!slots) throw new Error("the tokenizer pool is not running");
  const batch = { folder, texts: warmUpTexts(), startsPrompt: true };
  const done = slots.map(({ own }) => {
    if (own.length >= maxOwn) return Promise.reject(new Error("too many models are being loaded"));
    return new Promise((resolve, reject) => own.push({ batch, length: 0, resolve, reject }));
  });
  dispatch();
  const failed = (await Promise.allSettled(done)).find((one) => one.status === "rejected");
  if (failed) throw failed.reason;
}

/** Starts a slot's thread, and restarts it whenever it ends by itself while the pool runs. */
function createLauncher(
  { logger, scheduler, random, program = programUrl("./tokenizer-worker", import.meta.url) }: TokenizerPoolOptions,
  isRunning: () => boolean,
  onReady: () => void,
): (slot: Slot) => void {
  const launch = (slot: Slot): void => {
    slot.thread = createPoolThread(program, (reason) => {
      slot.thread = undefined;
      if (!isRunning()) return;
      const delayMs = backoffDelayMs(slot.failures++, restart, random);
      logger.warn("tokenizer thread ended; restarting", { reason, delay_ms: Math.round(delayMs) });
      slot.cancel = scheduler.after(delayMs, () => {
        launch(slot);
        onReady();
      });
    });
  };
  return launch;
}

type TokenizerThread = PoolThread<PieceBatch, TokenizeResult>;

interface Slot {
  thread: TokenizerThread | undefined;
  busy: boolean;
  /** Batches only for this thread, which go first. */
  readonly own: Waiting[];
  /** Consecutive ends without a batch in between. */
  failures: number;
  cancel: (() => void) | undefined;
}

function rowsOf({ tokens, counts }: TokenizeResult): readonly Uint32Array[] {
  let at = 0;
  return counts.map((count) => {
    const row = tokens.slice(at, at + count);
    at += count;
    return row;
  });
}

const textCount = 2;
/** About 15,000 characters, which take a thread a tenth of a second; more text speeds it up little. */
const wordsInText = 2_000;
const letters = "etaoinshrdlucmfwypvbgkjqxz";
const separators = [" ", " ", " ", " ", ", ", ". ", "\n", "\n\n", " (", ") ", ": ", " 42 ", " é", " 🙂 "];

/**
 * Texts to warm up a thread: random words, so that no cache has them, with the separators of real texts. The same each
 * time.
 */
function warmUpTexts(): readonly string[] {
  const random = createSeededRandom(1);
  const word = (): string => {
    let made = "";
    for (let length = 2 + random.integer(8); length > 0; length--) {
      // The lower of two draws: letters at the front are the frequent ones.
      made += letters[Math.min(random.integer(letters.length), random.integer(letters.length))];
    }
    return made + separators[random.integer(separators.length)];
  };
  return Array.from({ length: textCount }, () => Array.from({ length: wordsInText }, word).join(""));
}

/** One thread. It keeps the process alive only while it works. */
export interface PoolThread<Task, Result> {
  /**
   * Runs one task at a time. The thread receives it with an `id` and sends the `id` back with the result or an `error`.
   * Rejects with that error, or when the thread ends.
   */
  run(task: Task): Promise<Result>;
  /** Ends the thread while it works, as if it had failed. */
  kill(): void;
  stop(): Promise<void>;
}

interface Job<Result> {
  readonly id: number;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: Error) => void;
}

/**
 * @param onEnd called once when the thread ends without having been stopped
 * @param name its name in errors
 */
export function createPoolThread<Task extends object, Result extends object>(
  program: URL,
  onEnd: (reason: string) => void,
  name = "tokenizer",
): PoolThread<Task, Result> {
  // A tokenizing thread needs little more than its vocabularies; without the bound one text could take all memory.
  const worker = new Worker(program, {
    // Flags of the process (conditions of imports, inspectors) are not meant for the thread.
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: 4_096 },
  });
  let job: Job<Result> | undefined;
  let nextId = 0;
  let isStopped = false;
  let hasEnded = false;
  worker.unref();
  const settle = (): Job<Result> | undefined => {
    const settled = job;
    job = undefined;
    worker.unref();
    return settled;
  };
  const end = (reason: string): void => {
    if (hasEnded) return;
    hasEnded = true;
    settle()?.reject(new Error(`the ${name} thread ended: ${reason}`));
    if (!isStopped) onEnd(reason);
  };
  worker.on("error", (error) => end(error.message));
  worker.on("exit", (code) => end(`exit code ${code}`));
  worker.on("message", (response: { readonly id: number } & (Result | { readonly error: string })) => {
    if (response.id !== job?.id) return;
    const settled = settle();
    if ("error" in response) settled?.reject(new Error(response.error));
    else settled?.resolve(response);
  });
  return {
    run(task) {
      if (hasEnded) return Promise.reject(new Error(`the ${name} thread has ended`));
      return new Promise((resolve, reject) => {
        job = { id: nextId++, resolve, reject };
        worker.ref();
        worker.postMessage({ ...task, id: job.id });
      });
    },
    kill: () => void worker.terminate(),
    async stop() {
      isStopped = true;
      await worker.terminate();
    },
  };
}
