import { spawnSync } from "node:child_process";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runProgram } from "./run-program.ts";

export interface PythonVenv {
  /** Made if it is not there. */
  readonly folder: string;
  /** @returns the Python of which it is made; asked only if it is not there */
  python(): string;
  /** What pip installs: requirements, or flags that name them. */
  readonly requirements: readonly string[];
  /** What they are, for messages. */
  readonly name: string;
  /** The command that they bring. */
  readonly program: string;
  readonly timeoutMs: number;
}

const pipFlags = ["--quiet", "--disable-pip-version-check", "--retries", "2", "--timeout", "20"];

/**
 * Installs packages into a virtual environment of their own, once.
 *
 * @returns path of the program
 * @throws Error when Python or pip fails, or when the packages have no such program; the next call starts anew
 */
export async function installVenv(
  { folder, python, requirements, name, program, timeoutMs }: PythonVenv,
  note: (line: string) => void,
): Promise<string> {
  const done = join(folder, "installed");
  const path = join(folder, "bin", program);
  if (existsSync(done)) return path;
  note(`installing ${name} from the Python package index`);
  await runProgram(python(), ["-m", "venv", folder], { timeoutMs });
  const pip = ["-m", "pip", "install", ...pipFlags, ...requirements];
  await runProgram(join(folder, "bin", "python"), pip, { timeoutMs });
  if (!existsSync(path)) throw new Error(`${name} has no program ${program}`);
  writeFileSync(done, "");
  return path;
}

/** A minor release of Python 3, such as 12. */
export interface PythonRange {
  readonly oldest: number;
  readonly newest: number;
}

/**
 * Finds a Python on the PATH: `python3`, or one with its release in its name, newest first.
 *
 * @throws Error naming what was found and what is needed
 */
export function findPython({ oldest, newest }: PythonRange): string {
  const named = Array.from({ length: newest - oldest + 1 }, (_, at) => `python3.${newest - at}`);
  const found: string[] = [];
  for (const command of ["python3", ...named]) {
    const release = releaseOf(command);
    if (release === undefined) continue;
    if (release >= oldest && release <= newest) return command;
    found.push(`${command} is 3.${release}`);
  }
  const needed = oldest === newest ? `Python 3.${oldest}` : `Python 3.${oldest} to 3.${newest}`;
  throw new Error(
    `${needed} is needed as ${["python3", ...named].join(" or ")} on the PATH (${found.join(", ") || "there is none"})`,
  );
}

/** @returns undefined when it is absent or does not run */
function releaseOf(command: string): number | undefined {
  const { status, stdout } = spawnSync(command, ["-c", "import sys; print(sys.version_info.minor)"], {
    encoding: "utf8",
  });
  return status === 0 ? Number(stdout) : undefined;
}
