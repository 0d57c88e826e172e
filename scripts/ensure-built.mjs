// Makes a bare clone usable: installs the dependencies and builds what is missing or older than its sources.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = dirname(dirname(fileURLToPath(import.meta.url)));
const stamp = join(root, "node_modules", ".cache", "espalier-built");

/** The lock file names native packages of Linux only; elsewhere npm has to find its own. */
const ofPlatform = process.platform === "linux" ? [] : ["--no-package-lock"];

/**
 * Installs and builds when needed; says so on standard error. Exits the process with code 1 when a step fails.
 * `ESPALIER_SKIP_BUILD=1` turns it off, for callers that have just built.
 */
export function ensureBuilt() {
  if (process.env.ESPALIER_SKIP_BUILD === "1") return;
  requireNode();
  const lock = join(root, "package-lock.json");
  const installed = join(root, "node_modules", ".package-lock.json");
  if (modifiedMs(installed) < modifiedMs(lock)) {
    run("installing dependencies (once, about a minute)", "npm", [
      "install",
      "--no-save",
      "--loglevel=error",
      ...ofPlatform,
    ]);
    utimesSync(installed, new Date(), new Date());
  }
  if (modifiedMs(stamp) < newestSourceMs()) {
    run("building", "npm", ["run", "build", "--silent"]);
    mkdirSync(dirname(stamp), { recursive: true });
    writeFileSync(stamp, "");
  }
}

function requireNode() {
  const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
  if (major > 20 || (major === 20 && minor >= 19)) return;
  process.stderr.write(`Espalier needs Node 20.19 or newer; this is ${process.versions.node}.\n`);
  process.exit(1);
}

function run(what, command, args) {
  process.stderr.write(`espalier: ${what} ...\n`);
  const result = spawnSync(command, args, { cwd: root, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  if (result.status === 0) return;
  process.stderr.write(`${result.stdout ?? ""}${result.stderr ?? ""}\nespalier: ${command} ${args.join(" ")} failed\n`);
  process.exit(1);
}

function newestSourceMs() {
  const groups = ["packages", "apps"].map((group) => join(root, group));
  const folders = groups.flatMap((group) => readdirSync(group).map((name) => join(group, name)));
  let newestMs = Math.max(modifiedMs(join(root, "package-lock.json")), modifiedMs(join(root, "tsconfig.base.json")));
  for (const folder of [...folders, join(root, "bench")]) {
    if (!existsSync(join(folder, "dist", "index.js"))) return Number.POSITIVE_INFINITY;
    newestMs = Math.max(newestMs, modifiedMs(join(folder, "tsconfig.json")), newestInMs(join(folder, "src")));
  }
  return newestMs;
}

function newestInMs(folder) {
  let newestMs = 0;
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    newestMs = Math.max(newestMs, entry.isDirectory() ? newestInMs(path) : modifiedMs(path));
  }
  return newestMs;
}

function modifiedMs(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) ensureBuilt();
