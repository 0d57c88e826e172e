import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type ErrorCode, EspalierError, errorCatalogue } from "@espalier/common";

/** What a child process says of the task that it was sent: how far it is, then one of the two ends. */
export type ChildMessage<Result> =
  | { readonly type: "progress"; readonly share: number }
  | { readonly type: "result"; readonly result: Result }
  | {
      readonly type: "failure";
      readonly message: string;
      /** Of the error catalogue, if it is one of its errors. */
      readonly code: string | undefined;
    };

export interface RunTasksOptions<Result> {
  /** Child processes, each of which has one task at a time. */
  readonly size: number;
  /** What a child runs: it answers each task that it is sent with `ChildMessage`s. */
  readonly program?: string;
  /** Ends all children at once; tasks that have not ended are dropped. */
  readonly signal: AbortSignal;
  /** @param share of the task that is done, 0 to 1 */
  onProgress(at: number, share: number): void;
  onResult(at: number, result: Result): void;
  /** One task's failure leaves the others alone. */
  onFailure(at: number, error: Error): void;
}

/** The same from the sources and from what is built of them: children run what is built. */
const childProgram = fileURLToPath(new URL("../../dist/simulate/child-main.js", import.meta.url));
const keptErrorBytes = 8_192;

/**
 * Runs tasks that do not depend on each other in child processes. When it resolves, however that comes about, every
 * child is gone. A child that ends over a task is replaced by another one for the next.
 */
export async function runTasks<Task extends object, Result>(
  tasks: readonly Task[],
  options: RunTasksOptions<Result>,
): Promise<void> {
  const { size, program = childProgram, signal, onProgress, onResult, onFailure } = options;
  const waiting = tasks.entries();
  const work = async (): Promise<void> => {
    let child: TaskChild<Task, Result> | undefined;
    try {
      for (const [at, task] of waiting) {
        if (signal.aborted) return;
        if (!child?.isAlive()) child = startTaskChild<Task, Result>(program, signal);
        const outcome = await child
          .run(task, (share) => onProgress(at, share))
          .then(
            (result) => ({ result }),
            (error: Error) => ({ error }),
          );
        if (signal.aborted) return;
        if ("error" in outcome) onFailure(at, outcome.error);
        else onResult(at, outcome.result);
      }
    } finally {
      await child?.end();
    }
  };
  await Promise.all(Array.from({ length: Math.min(size, tasks.length) }, work));
}

/** A child process that has one task at a time. */
interface TaskChild<Task, Result> {
  isAlive(): boolean;
  /** Rejects with the task's failure, or with the last words of a child that ended over it. */
  run(task: Task, onProgress: (share: number) => void): Promise<Result>;
  end(): Promise<void>;
}

function startTaskChild<Task extends object, Result>(program: string, signal: AbortSignal): TaskChild<Task, Result> {
  const child = fork(program, [], { stdio: ["ignore", "ignore", "pipe", "ipc"], serialization: "advanced" });
  const errorText = collectErrorText(child);
  let hasEnded = false;
  let onMessage: (message: ChildMessage<Result>) => void = () => {};
  let onEnd: (error: Error) => void = () => {};
  // It has nothing to put in order, and may be too busy to notice anything less.
  const kill = (): void => {
    child.kill("SIGKILL");
  };
  const ended = new Promise<void>((resolve) => {
    const end = (how: string): void => {
      hasEnded = true;
      signal.removeEventListener("abort", kill);
      onEnd(new Error(`the process of the run ${how}\n${errorText().trim()}`.trim()));
      resolve();
    };
    child.once("close", (code, name) => end(name === null ? `exited with code ${code}` : `was ended by ${name}`));
    child.once("error", (error) => end(`cannot be reached: ${error.message}`));
  });
  child.on("message", (message) => onMessage(message as ChildMessage<Result>));
  if (signal.aborted) kill();
  else signal.addEventListener("abort", kill);
  return {
    isAlive: () => !hasEnded,
    run: (task, onProgress) =>
      new Promise<Result>((resolve, reject) => {
        onEnd = reject;
        onMessage = (message) => {
          if (message.type === "progress") onProgress(message.share);
          else if (message.type === "result") resolve(message.result);
          else reject(asError(message.message, message.code));
        };
        if (child.connected) child.send(task);
      }),
    async end() {
      kill();
      await ended;
    },
  };
}

/** The last words that a child has written to its standard error. */
function collectErrorText(child: ChildProcess): () => string {
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (more: string) => {
    text = (text + more).slice(-keptErrorBytes);
  });
  return () => text;
}

function asError(message: string, code: string | undefined): Error {
  return code !== undefined && Object.hasOwn(errorCatalogue, code)
    ? new EspalierError(code as ErrorCode, message)
    : new Error(message);
}
