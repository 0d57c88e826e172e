import { Worker } from "node:worker_threads";
import type { PieceBatch } from "./tokenizer-pool.ts";
import type { TokenizeRequest, TokenizeResponse } from "./worker-messages.ts";

/** One thread. It keeps the process alive only while it works. */
export interface PoolThread {
  /** One batch at a time. Rejected when the batch cannot be tokenised or the thread ends. */
  run(batch: PieceBatch): Promise<readonly Uint32Array[]>;
  /** Ends it in the midst of its work, as a failure of its own would. */
  kill(): void;
  stop(): Promise<void>;
}

interface Job {
  readonly id: number;
  readonly resolve: (tokens: readonly Uint32Array[]) => void;
  readonly reject: (error: Error) => void;
}

/** @param onEnd called once when the thread ends without having been stopped */
export function createPoolThread(program: URL, onEnd: (reason: string) => void): PoolThread {
  // A thread that tokenises needs little besides its vocabularies; without the bound one text could take the machine.
  const worker = new Worker(program, {
    // Flags of the process (conditions of imports, inspectors) are not meant for it.
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: 4_096 },
  });
  let job: Job | undefined;
  let nextId = 0;
  let isStopped = false;
  let hasEnded = false;
  worker.unref();
  const settle = (): Job | undefined => {
    const settled = job;
    job = undefined;
    worker.unref();
    return settled;
  };
  const end = (reason: string): void => {
    if (hasEnded) return;
    hasEnded = true;
    settle()?.reject(new Error(`the tokenizer thread ended: ${reason}`));
    if (!isStopped) onEnd(reason);
  };
  worker.on("error", (error) => end(error.message));
  worker.on("exit", (code) => end(`exit code ${code}`));
  worker.on("message", (response: TokenizeResponse) => {
    if (response.id !== job?.id) return;
    const settled = settle();
    if ("error" in response) settled?.reject(new Error(response.error));
    else settled?.resolve(rowsOf(response.tokens, response.counts));
  });
  return {
    run(batch) {
      if (hasEnded) return Promise.reject(new Error("the tokenizer thread has ended"));
      return new Promise((resolve, reject) => {
        job = { id: nextId++, resolve, reject };
        worker.ref();
        worker.postMessage({ id: job.id, ...batch } satisfies TokenizeRequest);
      });
    },
    kill: () => void worker.terminate(),
    async stop() {
      isStopped = true;
      await worker.terminate();
    },
  };
}

function rowsOf(tokens: Uint32Array, counts: readonly number[]): readonly Uint32Array[] {
  let at = 0;
  return counts.map((count) => {
    const row = tokens.slice(at, at + count);
    at += count;
    return row;
  });
}
