// Makes a bare clone usable, where only Node and npm are installed: brings the release of Node that it needs, and its dependencies.
import { spawn, spawnSync } from "node:child_process";
import { rmSync, statSync, utimesSync } from "node:fs";
import module from "node:module";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { installNode } from "./node-release.mjs";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** Older releases run no TypeScript. */
const oldestRelease = 24;
/** Where Node keeps what V8 makes of the sources. */
const compiled = join(root, ".cache", "compiled");
/** What an older one is replaced by. */
const usedRelease = "26";

/**
 * Goes on only in a release of Node that runs this project: in an older one, the whole program is run again by a newer one,
 * which npm brings once, and this process ends as that does. Then installs the dependencies if the lock file has changed.
 * Says on standard error what takes time. Exits the process with code 1 when a step fails.
 *
 * `ESPALIER_SKIP_BUILD=1` leaves the dependencies as they are, for programs that start many processes.
 */
export async function setUp() {
  const [release] = process.versions.node.split(".").map(Number);
  if (release < oldestRelease) await runAgain();
  if (process.env.ESPALIER_SKIP_BUILD !== "1") installDependencies();
  keepCompiled();
}

/** Each later start takes half the time. Child processes do so too. */
function keepCompiled() {
  process.env.NODE_COMPILE_CACHE ??= compiled;
  module.enableCompileCache(process.env.NODE_COMPILE_CACHE);
}

function installDependencies() {
  const lock = join(root, "package-lock.json");
  const installed = join(root, "node_modules", ".package-lock.json");
  if (modifiedMs(installed) >= modifiedMs(lock)) return;
  tell("installing dependencies (once, about a minute) ...");
  // Node never deletes what it kept of sources that have changed since.
  rmSync(compiled, { recursive: true, force: true });
  const { status, stdout, stderr } = spawnSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: root,
    encoding: "utf8",
    shell: process.platform === "win32",
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (status !== 0) fail(`npm ci failed\n${stdout ?? ""}${stderr ?? ""}`);
  // A lock file that was checked out while npm worked is no newer.
  utimesSync(installed, new Date(), new Date());
}

/** Never returns. */
function runAgain() {
  const { program, bin } = newerNode();
  const child = spawn(program, [...process.execArgv, ...process.argv.slice(1)], {
    // Through the channel the program learns when this process is killed.
    stdio: ["inherit", "inherit", "inherit", "ipc"],
    env: { ...process.env, PATH: `${bin}${delimiter}${process.env.PATH}` },
  });
  child.on("message", (message) => process.send?.(message));
  passSignals(child);
  return new Promise(() => {
    child.on("exit", (code, signal) => {
      if (signal === null) process.exit(code);
      process.removeAllListeners(signal);
      process.kill(process.pid, signal);
    });
  });
}

/** Passes on what would end this process to the child that works in its place. */
export function passSignals(child) {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to both.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
}

function newerNode() {
  try {
    return installNode(usedRelease, () =>
      tell(`Node ${process.versions.node} is too old; installing Node ${usedRelease} into .cache (once) ...`),
    );
  } catch (error) {
    return fail(`${error.message}\nInstall Node ${oldestRelease} or newer: https://nodejs.org`);
  }
}

function tell(text) {
  process.stderr.write(`espalier: ${text}\n`);
}

function fail(text) {
  tell(text);
  process.exit(1);
}

function modifiedMs(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await setUp();
