import { spawn } from "node:child_process";

const keptErrorCharacters = 4_096;

export interface RunProgramOptions {
  /** Its working folder; the current one when absent. */
  readonly folder?: string;
  /** The program is killed after this time. */
  readonly timeoutMs?: number;
}

/**
 * Runs a program to its end.
 *
 * @returns what it wrote to standard output
 * @throws Error with the last of its standard error when it cannot be started or does not end with 0
 */
export function runProgram(
  command: string,
  args: readonly string[],
  { folder, timeoutMs }: RunProgramOptions = {},
): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, [...args], {
      stdio: ["ignore", "pipe", "pipe"],
      ...(folder === undefined ? {} : { cwd: folder }),
      ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
    });
    let output = "";
    let errors = "";
    child.stdout.on("data", (chunk) => {
      output += chunk;
    });
    child.stderr.on("data", (chunk) => {
      errors = (errors + chunk).slice(-keptErrorCharacters);
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      if (code === 0) resolve(output);
      else reject(new Error(`${command} ${args.slice(0, 3).join(" ")} ended with ${code ?? signal}: ${errors.trim()}`));
    });
  });
}
