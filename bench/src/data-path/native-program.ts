import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runProgram } from "../support/run-program.ts";

/**
 * Programs of `bench/native`. They are in C so that sending and answering take little of the machine from the measured
 * system.
 */
export type NativeProgram = "engine" | "load";

const sources = fileURLToPath(new URL("../../native/", import.meta.url));
const built = fileURLToPath(new URL("../../../.cache/native/", import.meta.url));
const compileTimeoutMs = 60_000;

/**
 * Compiles a program, once per version of its source.
 *
 * @returns its path
 * @throws Error without a C compiler, or outside Linux
 */
export async function compileNative(name: NativeProgram): Promise<string> {
  const source = join(sources, `${name}.c`);
  const hash = createHash("sha256");
  for (const file of [source, join(sources, "common.h")]) hash.update(readFileSync(file));
  const program = join(built, `${name}-${hash.digest("hex").slice(0, 16)}`);
  if (existsSync(program)) return program;
  mkdirSync(built, { recursive: true });
  const unfinished = `${program}-${process.pid}`;
  const args = ["-O2", "-o", unfinished, source, "-lm"];
  await runProgram("cc", args, { timeoutMs: compileTimeoutMs }).catch((thrown: unknown) => {
    const hint =
      "the engine and the load generator need Linux and a C compiler (Debian: apt-get install gcc libc6-dev)";
    throw new Error(`${hint}: ${(thrown as Error).message}`, { cause: thrown });
  });
  renameSync(unfinished, program);
  return program;
}

/** A running program, with its output so far. */
export interface RunningNative {
  readonly process: ChildProcess;
  /** The next line of its output. @throws Error with its last output when it ends first */
  line(): Promise<string>;
  /** The output after the lines already read, once it has ended. @throws Error when it failed */
  rest(): Promise<Buffer>;
}

const lineFeed = 0x0a;

export function startNative(name: NativeProgram, program: string, args: readonly string[]): RunningNative {
  const child = spawn(program, [...args], { stdio: ["pipe", "pipe", "inherit"] });
  const chunks: Buffer[] = [];
  let wake: () => void = () => {};
  let hasEnded = false;
  let failure: Error | undefined;
  child.stdin.on("error", () => {});
  child.stdout.on("data", (chunk: Buffer) => {
    chunks.push(chunk);
    wake();
  });
  child.once("error", (error) => {
    failure = error;
    hasEnded = true;
    wake();
  });
  child.once("close", (code, signal) => {
    if (code !== 0) failure ??= new Error(`the ${name} ended with ${code ?? signal}`);
    hasEnded = true;
    wake();
  });
  const more = (): Promise<void> =>
    new Promise((resolve) => {
      wake = resolve;
    });
  const reasonIn = (bytes: Buffer): Error | undefined => {
    const text = bytes.toString("latin1");
    return text.startsWith("failed ") ? new Error(text.slice("failed ".length).trim()) : failure;
  };
  return {
    process: child,
    async line() {
      for (;;) {
        const bytes = Buffer.concat(chunks.splice(0));
        const end = bytes.indexOf(lineFeed);
        const reason = end >= 0 || hasEnded ? reasonIn(bytes) : undefined;
        if (reason) throw reason;
        chunks.push(end < 0 ? bytes : bytes.subarray(end + 1));
        if (end >= 0) return bytes.toString("latin1", 0, end);
        if (hasEnded) throw new Error(`the ${name} ended early`);
        await more();
      }
    },
    async rest() {
      while (!hasEnded) await more();
      const bytes = Buffer.concat(chunks.splice(0));
      const reason = reasonIn(bytes);
      if (reason) throw reason;
      return bytes;
    },
  };
}
