import { Worker } from "node:worker_threads";

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
