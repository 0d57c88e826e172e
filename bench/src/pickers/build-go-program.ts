import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { runProgram } from "../support/run-program.ts";

/** A program of another project that is built from its sources, as its authors build it. */
export interface GoSource {
  /** Also the name of its folder. */
  readonly name: string;
  /** Git repository, by URL or path. */
  readonly repository: string;
  /** Full hash of the commit. */
  readonly commit: string;
  /** Package of the program inside the repository. */
  readonly package: string;
  /** For the linker, such as `-s -w`. */
  readonly linkerFlags: string;
}

export interface BuildOptions {
  /** Where programs are kept, one folder for each commit. */
  readonly folder: string;
  /** The Go command. */
  readonly go?: string;
  readonly note: (line: string) => void;
}

const fetchTimeoutMs = 300_000;
/** On one core, with every module to compile. */
const buildTimeoutMs = 1_800_000;
const shownCommitLength = 12;

/**
 * Builds the program once. Git fetches the commit alone, and Go the modules that its `go.sum` names; no C compiler is
 * needed. The sources are removed afterwards.
 *
 * @returns path of the program
 * @throws Error when Git or Go is missing or fails, or when the repository gives another commit
 */
export async function buildGoProgram(source: GoSource, { folder, note, ...options }: BuildOptions): Promise<string> {
  const { repository } = source;
  const { go = "go" } = options;
  const own = resolve(folder, `${source.name}-${source.commit.slice(0, shownCommitLength)}`);
  const program = join(own, source.name);
  if (existsSync(program)) return program;
  const sources = join(own, "source");
  rmSync(sources, { recursive: true, force: true });
  mkdirSync(sources, { recursive: true });
  note(`fetching ${source.name} at ${source.commit} from ${repository}`);
  const git = (...args: readonly string[]) =>
    runProgram("git", ["-C", sources, ...args], { timeoutMs: fetchTimeoutMs });
  await git("init", "--quiet");
  await git("fetch", "--quiet", "--depth", "1", repository, source.commit);
  await git("-c", "advice.detachedHead=false", "checkout", "--quiet", "FETCH_HEAD");
  const commit = (await git("rev-parse", "HEAD")).trim();
  if (commit !== source.commit) throw new Error(`${repository} gives ${commit}, not ${source.commit}`);
  note(`building ${source.name} (minutes, once)`);
  const building = `${program}.new`;
  const build = ["build", "-ldflags", source.linkerFlags, "-o", building, source.package];
  await runProgram("env", ["CGO_ENABLED=0", "nice", go, ...build], { folder: sources, timeoutMs: buildTimeoutMs });
  await runProgram("mv", [building, program]);
  rmSync(sources, { recursive: true, force: true });
  return program;
}
