import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** The user that Podman runs as where the tests run as root. `.ci/run` makes it. */
const builder = "espalier-build";

/** Podman with a storage of its own, run by a user without rights. */
export interface Podman {
  /** Where contexts of builds go. */
  readonly folder: string;
  /** @returns what it prints on both outputs, without the last line break */
  run(...args: readonly string[]): string;
  /** Removes everything that it has stored. */
  remove(): void;
}

/**
 * Finds Podman.
 *
 * @param what is not run without it, for the line that says so
 */
export function rootlessPodman(what: string): Podman | undefined {
  const isRoot = process.getuid?.() === 0;
  const folder = mkdtempSync(join(tmpdir(), "espalier-podman-"));
  const home = join(folder, "home");
  // It would have the user's own home otherwise, whatever is in the environment.
  const prefix = isRoot ? ["runuser", "-u", builder, "--", "env", `HOME=${home}`] : [];
  const call = (args: readonly string[]): string => {
    const [program = "", ...rest] = [...prefix, ...args];
    const env = { PATH: process.env.PATH, HOME: home, XDG_RUNTIME_DIR: home, TMPDIR: home };
    return execFileSync(program, rest, { encoding: "utf8", cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  };
  const storage = ["--storage-driver=vfs", `--root=${home}/root`, `--runroot=${home}/run`, "--cgroup-manager=cgroupfs"];
  const run = (...args: readonly string[]): string =>
    call([
      "sh",
      "-c",
      'exec podman "$@" 2>&1',
      "podman",
      "--log-level=error",
      "--runtime=runc",
      ...storage,
      ...args,
    ]).trimEnd();
  try {
    mkdirSync(home);
    execFileSync("chmod", ["a+rx", folder]);
    if (isRoot) execFileSync("chown", [builder, home], { stdio: "pipe" });
    run("info");
  } catch {
    rmSync(folder, { recursive: true, force: true });
    const needed = isRoot ? `, and as root a user ${builder} (useradd --create-home ${builder})` : "";
    process.stderr.write(`NOT RUN: ${what}; needs podman, runc and uidmap${needed}\n`);
    return undefined;
  }
  return {
    folder,
    run,
    remove() {
      run("rm", "--all", "--force");
      // Files of the containers' users are removed only in their namespace. Podman keeps it by a process, until `migrate`.
      call(["podman", "unshare", "rm", "-rf", `${home}/root`, `${home}/run`]);
      call(["podman", ...storage, "system", "migrate"]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** What the image's base has, as far as it is used: Node.js, a shell, and their libraries, of this machine. */
export function baseFolder(folder: string): void {
  const place = (from: string, to: string) => {
    mkdirSync(dirname(join(folder, to)), { recursive: true });
    copyFileSync(from, join(folder, to));
  };
  const programs = [
    [process.execPath, "/usr/local/bin/node"],
    ...["sh", "id"].map((name) => [`/bin/${name}`, `/bin/${name}`] as const),
    ["/usr/bin/env", "/usr/bin/env"],
  ] as const;
  for (const [from, to] of programs) {
    place(from, to);
    const listed = execFileSync("ldd", [from], { encoding: "utf8" });
    for (const [library] of listed.matchAll(/(?<=^|\s)\/\S+/g)) place(library, library);
  }
  mkdirSync(join(folder, "tmp"));
  mkdirSync(join(folder, "etc"));
  writeFileSync(join(folder, "etc/passwd"), "node:x:1000:1000::/tmp:/bin/sh\n");
}
