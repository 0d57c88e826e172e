import { type ChildProcess, fork } from "node:child_process";
import { get } from "node:http";
import { systemClock, systemScheduler } from "@espalier/core";
import type { RouterStatus } from "@espalier/server";

/** A program of this project that runs as a child process and has reported that it listens. */
export interface Child<Listening> {
  readonly listening: Listening;
  readonly process: ChildProcess;
  /** Resolves with the exit code (null after a signal) once the process has ended. */
  readonly exited: Promise<number | null>;
  /** Ends it at once by closing its channel; kills it if it does not react. */
  stop(): Promise<void>;
}

/** How to run a program, if not by default. */
export interface ProgramOptions {
  /** Another path of the program, such as that of its bundle. */
  readonly program?: string;
  /** Another Node release's executable; this process's own when absent. */
  readonly nodeProgram?: string;
  /** Flags for Node itself, such as `--trace-gc`. */
  readonly nodeFlags?: readonly string[];
  /** An open file for its standard output, which is dropped by default. */
  readonly output?: number;
}

export interface ChildOptions extends ProgramOptions {
  /** For messages: "router", "engines". */
  readonly name: string;
  readonly program: string;
  readonly arguments: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly startTimeoutMs?: number;
}

const killAfterMs = 1_500;
/** Latest error output of a child process that an error quotes. */
const keptErrorBytes = 8_192;

/**
 * Forks a program and waits until it sends `{type: "listening", ...}`. The child watches the channel and exits when
 * this process has ended for any reason.
 *
 * @throws Error with the last lines of the child's standard error when it exits first or stays silent
 */
export async function startChild<Listening>(options: ChildOptions): Promise<Child<Listening>> {
  const child = fork(options.program, [...options.arguments], {
    stdio: ["ignore", options.output ?? "ignore", "pipe", "ipc"],
    ...(options.nodeProgram === undefined ? {} : { execPath: options.nodeProgram }),
    ...(options.nodeFlags === undefined ? {} : { execArgv: [...options.nodeFlags] }),
    env: { ...surroundings(), ESPALIER_CONFIG: "", ...options.environment, ESPALIER_SKIP_BUILD: "1" },
  });
  const errorText = collectErrorText(child);
  const exited = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  const failure = (what: string): Error => new Error(`${options.name} ${what}\n${errorText().trim()}`);

  const stop = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    if (child.connected) child.disconnect();
    const cancel = systemScheduler.after(killAfterMs, () => child.kill("SIGKILL"));
    await exited;
    cancel();
  };
  const listening = await new Promise<Listening>((resolve, reject) => {
    const timeoutMs = options.startTimeoutMs ?? 20_000;
    const cancel = systemScheduler.after(timeoutMs, () => reject(failure(`did not listen within ${timeoutMs} ms`)));
    child.on("message", (message: unknown) => {
      if (!isListening(message)) return;
      cancel();
      resolve(message as Listening);
    });
    void exited.then((code) => {
      cancel();
      reject(failure(code === null ? `was ended by ${child.signalCode}` : `exited with code ${code}`));
    });
  }).catch(async (error: unknown) => {
    await stop();
    throw error;
  });
  return { listening, process: child, exited, stop };
}

/** The child's last output to its standard error. */
export function collectErrorText(child: ChildProcess): () => string {
  let text = "";
  child.stderr?.setEncoding("utf8").on("data", (more: string) => {
    text = (text + more).slice(-keptErrorBytes);
  });
  return () => text;
}

/** The environment without variables that configure a router, so that only the command determines a local fleet. */
function surroundings(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("ESPALIER_")));
}

function isListening(message: unknown): boolean {
  return typeof message === "object" && message !== null && "type" in message && message.type === "listening";
}

export interface RouterListening {
  readonly url: string;
  readonly adminUrl: string;
  /** Its mesh address; null when it shares nothing, or uses Redis. */
  readonly meshAddress: string | null;
  /** Where gateways reach it as their endpoint picker; null when it is none. */
  readonly picker: RouterStatus["picker"];
}

/** The part of a local router's report that its starter needs. */
type LocalStatus = Pick<RouterStatus, "usableEngines" | "models">;

const readyTimeoutMs = 10_000;
const askEveryMs = 20;

/**
 * Waits until a router can use this many engines, so that the first requests find the whole fleet.
 *
 * @param signal aborts the wait
 * @throws Error with the number found when there are fewer after 10 s, or when aborted
 */
export async function untilReady(
  { url, adminUrl }: RouterListening,
  engines: number,
  signal?: AbortSignal,
): Promise<LocalStatus> {
  const deadlineMs = systemClock.nowMs() + readyTimeoutMs;
  for (;;) {
    const answer = await getText(`${adminUrl}/admin/status`);
    const status = answer === undefined ? undefined : (JSON.parse(answer) as LocalStatus);
    if (status && status.usableEngines >= engines) return status;
    if (systemClock.nowMs() > deadlineMs || signal?.aborted) {
      throw new Error(`the router at ${url} can use ${status?.usableEngines ?? 0} of ${engines} engines`);
    }
    await new Promise<void>((resolve) => systemScheduler.after(askEveryMs, resolve));
  }
}

/** @returns the body of an answer 200; undefined for any other, and if there is none */
export function getText(url: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const request = get(url, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece: string) => {
        text += piece;
      });
      response.on("end", () => resolve(response.statusCode === 200 ? text : undefined));
      response.on("error", () => resolve(undefined));
    });
    request.on("error", () => resolve(undefined));
  });
}
