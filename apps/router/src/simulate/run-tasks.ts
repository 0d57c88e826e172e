import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type ErrorCode, EspalierError, errorCatalogue, programUrl } from "@espalier/core";
import { collectErrorText } from "../processes/start-child.ts";

/** A child process's message about its task: progress, then one of the two ends. */
export type ChildMessage<Result> =
  | { readonly type: "progress"; readonly share: number }
  | { readonly type: "result"; readonly result: Result }
  | {
      readonly type: "failure";
      readonly message: string;
      /** The code from the error catalogue, if the error has one. */
      readonly code: string | undefined;
    };

export interface RunTasksOptions<Result> {
  /** Child processes that each run one task at a time. */
  readonly size: number;
  /** The child's program: it answers each task with `ChildMessage`s. */
  readonly program?: string;
  /** Ends all children at once, and drops unfinished tasks. */
  readonly signal: AbortSignal;
  /** @param share completed share of the task, 0 to 1 */
  onProgress(at: number, share: number): void;
  onResult(at: number, result: Result): void;
  /** A failed task does not affect the others. */
  onFailure(at: number, error: Error): void;
}

const childProgram = fileURLToPath(programUrl("./child-main", import.meta.url));

/**
 * Runs independent tasks in child processes. When it resolves or rejects, every child has ended. A child that dies
 * during a task is replaced for the next one.
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

/** A child process that runs one task at a time. */
interface TaskChild<Task, Result> {
  isAlive(): boolean;
  /** Rejects with the task's failure, or with the last output of a child that died during it. */
  run(task: Task, onProgress: (share: number) => void): Promise<Result>;
  end(): Promise<void>;
}

function startTaskChild<Task extends object, Result>(program: string, signal: AbortSignal): TaskChild<Task, Result> {
  const child = fork(program, [], { stdio: ["ignore", "ignore", "pipe", "ipc"], serialization: "advanced" });
  const errorText = collectErrorText(child);
  let hasEnded = false;
  let onMessage: (message: ChildMessage<Result>) => void = () => {};
  let onEnd: (error: Error) => void = () => {};
  // It has nothing to clean up, and may be too busy to notice anything weaker.
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

function asError(message: string, code: string | undefined): Error {
  return code !== undefined && Object.hasOwn(errorCatalogue, code)
    ? new EspalierError(code as ErrorCode, message)
    : new Error(message);
}
