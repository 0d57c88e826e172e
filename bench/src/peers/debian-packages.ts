import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runProgram } from "../support/run-program.ts";

/** Maximum packages fetched for one program, including its own. */
const maxPackages = 16;
const aptTimeoutMs = 120_000;

/**
 * Unpacks a package, and the shared libraries it needs that this machine lacks, into `FOLDER/root`. Needs no root
 * access and installs nothing. Package scripts do not run.
 *
 * @returns the folders of its libraries, for `LD_LIBRARY_PATH`
 * @throws Error without `apt-get`, or when a package is not available
 */
export async function installDebianPackage(
  name: string,
  folder: string,
  note: (line: string) => void,
): Promise<string> {
  const root = join(folder, "root");
  const done = join(folder, "installed");
  if (!existsSync(done)) {
    note(`fetching ${name} from the packages of the distribution`);
    mkdirSync(root, { recursive: true });
    const packages = await missingPackages(name, dependenciesOf, isInstalled);
    await runProgram("apt-get", ["download", ...packages], { folder, timeoutMs: aptTimeoutMs }).catch((thrown) => {
      throw new Error(`${(thrown as Error).message} (apt-get update may help)`, { cause: thrown });
    });
    for (const file of readdirSync(folder).filter((each) => each.endsWith(".deb"))) {
      await runProgram("dpkg", ["-x", join(folder, file), root], { timeoutMs: aptTimeoutMs });
    }
    writeFileSync(done, "");
  }
  return libraryFolders(root).join(":");
}

/**
 * The package and all missing libraries that it needs, directly or indirectly.
 *
 * @throws Error when there are more than 16
 */
export async function missingPackages(
  name: string,
  dependencies: (name: string) => Promise<readonly string[]>,
  installed: (name: string) => boolean,
): Promise<readonly string[]> {
  const wanted = [name];
  for (const each of wanted) {
    for (const needed of await dependencies(each)) {
      if (!/^lib/.test(needed) || wanted.includes(needed) || installed(needed)) continue;
      wanted.push(needed);
      if (wanted.length > maxPackages) throw new Error(`${name} needs more than ${maxPackages} packages`);
    }
  }
  return wanted;
}

/** Reads the output of `apt-cache depends`: the first of alternatives, without virtual packages (in angle brackets). */
export function parseDependencies(text: string): readonly string[] {
  const names: string[] = [];
  let isAlternative = false;
  for (const line of text.split("\n")) {
    const match = /^ ([ |])(?:Pre)?Depends: ([\w.+-]+)/.exec(line);
    if (match && !isAlternative) names.push(match[2]!);
    if (/^ [ |]\w+:/.test(line)) isAlternative = line[1] === "|";
  }
  return names;
}

async function dependenciesOf(name: string): Promise<readonly string[]> {
  return parseDependencies(await runProgram("apt-cache", ["depends", name], { timeoutMs: aptTimeoutMs }));
}

function isInstalled(name: string): boolean {
  const { stdout } = spawnSync("dpkg-query", ["-W", "-f", `\${Status}`, name], { encoding: "utf8" });
  return stdout?.startsWith("install ok installed") ?? false;
}

/** Debian keeps libraries in `lib` and `usr/lib`, each with a folder for the architecture. */
function libraryFolders(root: string): readonly string[] {
  return ["lib", "usr/lib"].flatMap((name) => {
    const folder = join(root, name);
    if (!existsSync(folder)) return [];
    const entries = readdirSync(folder, { withFileTypes: true });
    return [folder, ...entries.filter((entry) => entry.isDirectory()).map((entry) => join(folder, entry.name))];
  });
}
