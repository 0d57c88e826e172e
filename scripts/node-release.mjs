// Brings a release of Node from the npm registry, where it is a package for each platform. As a command it prints where it is.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** At the root, since `npm ci` deletes `node_modules`. */
const cache = join(dirname(dirname(fileURLToPath(import.meta.url))), ".cache");

/**
 * Installs the newest version of a release once; later calls ask no registry.
 *
 * @param release such as `24`, or one version such as `24.21.0`
 * @param onInstall called before the registry is asked
 * @returns the program, and the folder that it is in
 */
export function installNode(release, onInstall = () => {}) {
  if (!/^\d+(\.\d+){0,2}$/.test(release)) throw new Error(`${JSON.stringify(release)} is not a Node release`);
  const folder = join(cache, `node-${release}`);
  const isWindows = process.platform === "win32";
  const name = `node-${isWindows ? "win" : process.platform}-${process.arch}`;
  const bin = join(folder, "node_modules", name, "bin");
  const program = join(bin, isWindows ? "node.exe" : "node");
  if (!existsSync(program)) {
    onInstall();
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
    const flags = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"];
    const { status, stderr } = spawnSync("npm", ["install", ...flags, `${name}@${release}`], {
      cwd: folder,
      encoding: "utf8",
      shell: isWindows,
    });
    if (status !== 0 || !existsSync(program))
      throw new Error(`npm has no ${name}@${release}: ${(stderr ?? "").trim()}`);
  }
  return { program, bin };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    console.log(installNode(process.argv[2] ?? "").program);
  } catch (error) {
    console.error(`error: ${error.message}`);
    process.exit(1);
  }
}
