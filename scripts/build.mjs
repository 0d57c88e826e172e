// `npm run build`: what packages and the image have in place of sources: JavaScript, declarations, and bundles. Nothing in a clone
// reads it, except benchmarks, which measure the bundled command.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { root, setUp } from "./set-up.mjs";

/** Bundles of the page and of the command. */
const bundlers = ["dashboard", "engine-sim", "router"].map((app) => `apps/${app}/bin/bundle.mjs`);

/** Has the number of the process that builds. */
const lock = join(root, ".cache", "build.lock");
const lookEveryMs = 200;

/**
 * Builds what is older than its sources. Of two builds at once, one waits: what a build has half written is not to be copied.
 * Exits the process with code 1 when it fails.
 */
export function build() {
  while (!takeLock()) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, lookEveryMs);
  const release = () => rmSync(lock, { force: true });
  process.once("exit", release);
  run(join(root, "node_modules", "typescript", "bin", "tsc"), "-b");
  for (const bundler of bundlers) run(join(root, bundler));
  process.off("exit", release);
  release();
}

function takeLock() {
  mkdirSync(dirname(lock), { recursive: true });
  try {
    writeFileSync(lock, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    if (!isRunning(holder())) rmSync(lock, { force: true });
    return false;
  }
}

/** 0 while its number is not written yet, or if it has just finished. */
function holder() {
  try {
    return Number(readFileSync(lock, "utf8"));
  } catch {
    return 0;
  }
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error.code === "EPERM";
  }
}

function run(...command) {
  if (spawnSync(process.execPath, command, { cwd: root, stdio: "inherit" }).status !== 0) process.exit(1);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await setUp();
  build();
}
