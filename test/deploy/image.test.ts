import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  closeSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { engines } from "../e2e/files.ts";
import { baseFolder, rootlessPodman } from "./containers.ts";
import { readText, root } from "./files.ts";

/** What the image has in /app: the lock file's libraries are installed before tests run. */
let image = "";
/** Some hundred files are copied. */
const hookMs = 120_000;
const podman = rootlessPodman("a container of the image");

beforeAll(() => {
  image = join(mkdtempSync(join(tmpdir(), "espalier-image-")), "app");
  mkdirSync(image);
  execFileSync(process.execPath, ["deploy/docker/build-image-steps.mjs", "build", "prune", image], { cwd: root });
}, hookMs);

afterAll(() => podman?.remove(), hookMs);
afterAll(() => rmSync(join(image, ".."), { recursive: true, force: true }), hookMs);

/** Starts a program of the image as its user would find it: nothing of this repository around it. */
function start(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const child = spawn(process.execPath, args, { cwd: tmpdir(), env, stdio: ["ignore", "pipe", "pipe"] });
  onTestFinished(() => {
    child.kill("SIGKILL");
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  const exited = new Promise<number | null>((resolve) => child.once("close", resolve));
  const until = (pattern: RegExp) =>
    waitFor(() => pattern.exec(output) ?? undefined, { what: String(pattern), deadlineMs: 60_000 });
  return { child, exited, until, output: () => output };
}

const espalier = (...args: readonly string[]): string[] => [join(image, "apps/router/bin/espalier.mjs"), ...args];

test("the pruned result starts, is ready before an engine, answers, and drains", async () => {
  const version = start(espalier("version"));
  const scenarios = start(espalier("simulate", "--list"));
  const migrate = start(espalier("migrate", "--from", "smg", "--", "--policy", "manual"));
  const [url = ""] = await engines({ engines: 1 });
  const router = start(
    espalier("serve", "--engine", url, "--listen-port", "0", "--admin-port", "0", "--drain-delay", "0ms"),
  );
  const [, dataUrl, adminUrl = ""] = await router.until(/serves at (\S+), metrics and admin at (\S+)/);
  await waitFor(async () => (await fetch(`${dataUrl}/readyz`)).status === 200, { what: "ready", deadlineMs: 20_000 });
  const answer = await fetch(`${dataUrl}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", prompt: "hello", max_tokens: 4 }),
  });
  expect([answer.status, answer.headers.get("x-espalier-engine")]).toEqual([200, new URL(url).host]);

  const metrics = await (await fetch(`${adminUrl}/metrics`)).text();
  for (const name of [
    "espalier_ready 1",
    "process_cpu_seconds_total ",
    "process_resident_memory_bytes ",
    "nodejs_eventloop_lag_p99_seconds ",
  ])
    expect(metrics).toContain(`\n${name}`);

  const healthy = start([join(image, "healthcheck.mjs")], { ESPALIER_ADMIN_URL: adminUrl });
  const unhealthy = start([join(image, "healthcheck.mjs")], { ESPALIER_ADMIN_PORT: "1" });
  expect(await Promise.all([healthy.exited, unhealthy.exited])).toEqual([0, 1]);

  router.child.kill("SIGTERM");
  expect(await router.exited).toBe(0);
  expect(await version.exited).toBe(0);
  expect([await migrate.exited, migrate.output()]).toEqual([0, expect.stringContaining("name: sticky")]);
  expect([await scenarios.exited, scenarios.output()]).toEqual([0, expect.stringContaining("engine-churn")]);
  expect(version.output()).toMatch(/^espalier \d+\.\d+\.\d+ \(Node /);
});

test("the simulated engines of compose start from it, with their tokenizer", async () => {
  const sim = start([
    join(image, "apps/engine-sim/bin/engine-sim.mjs"),
    ...["--engines", "2", "--tokenizer", "espalier-tiny", "--kv-events", "vllm-0.32", "--json"],
  ]);
  const [, url] = await sim.until(/"(http:\/\/[^"]+)"/);
  expect((await fetch(`${url}/health`)).status).toBe(200);
});

test("it has what runs, and neither sources, tests, tools nor native code of other systems", () => {
  const libraries = readdirSync(join(image, "node_modules"));
  for (const tool of ["typescript", "vitest", "@biomejs", "turbo", "playwright-core"])
    expect(libraries).not.toContain(tool);
  const files = readdirSync(image, { recursive: true, encoding: "utf8" });
  const own = files.filter((file) => !file.includes("node_modules"));
  expect(own.filter((file) => /\.ts$|\.map$|\/(?:src|test)\//.test(file))).toEqual([]);
  expect(own).toContain("LICENSE");
  const systems = files.filter((file) => /zeromq\/build\/(?:darwin|linux|win32)$/.test(file));
  expect(systems).toEqual([`node_modules/zeromq/build/${process.platform}`]);
  const bytes = execFileSync("du", ["-sm", image], { encoding: "utf8" });
  expect(Number.parseInt(bytes, 10)).toBeLessThan(25);
  expect(files.length).toBeLessThan(1_200);
});

test("a builder of any processor makes the image of another: its native code is of that one alone", () => {
  const folder = mkdtempSync(join(tmpdir(), "espalier-image-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const [platform, machine] = process.arch === "arm64" ? ["linux/amd64", 62] : ["linux/arm64", 183];
  const steps = ["deploy/docker/build-image-steps.mjs", "prune", folder, "--platform", platform];
  execFileSync(process.execPath, steps, { cwd: root });
  expect(elfMachines(folder)).toEqual([machine]);
});

/** @returns `e_machine` of each ELF file of a folder, program or library alike: 62 is x86-64, 183 is AArch64 */
function elfMachines(folder: string): number[] {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.flatMap(({ parentPath, name }) => {
    const header = Buffer.alloc(20);
    const file = openSync(join(parentPath, name), "r");
    readSync(file, header);
    closeSync(file);
    const isElf = header.subarray(0, 4).equals(Buffer.from("\x7fELF", "latin1"));
    return isElf ? [header.readUInt16LE(18)] : [];
  });
}

test("the licenses of the libraries whose code is in a bundle come with it", () => {
  const folders = ["apps/router/dist/bundle", "apps/engine-sim/dist/bundle"].map((folder) => join(image, folder));
  for (const folder of folders) {
    const licenses = readFileSync(join(folder, "LICENSES.txt"), "utf8");
    const programs = readdirSync(folder).filter((name) => name.endsWith(".js"));
    const code = programs.map((name) => readFileSync(join(folder, name), "utf8")).join("\n");
    // The bundler names each file that it has put in.
    const copied = code.matchAll(/^\s*\/\/ (?:.*\/)?node_modules\/((?:@[^/\n]+\/)?[^/\n]+)\//gm);
    const libraries = new Set([...copied].map(([, name = ""]) => name));
    expect(libraries.size).toBeGreaterThan(3);
    // Of some there is a README alone.
    const texts = licenses.split(/^-{100}\n\n/m).filter((text) => /copyright|license/i.test(text.replace(/^.*\n/, "")));
    const licensed = texts.map((text) => text.slice(0, text.indexOf(" ")));
    expect([...libraries].filter((name) => !licensed.includes(name))).toEqual([]);
  }
  const ofPage = readFileSync(join(image, "apps/dashboard/dist/page/LICENSES.txt"), "utf8");
  for (const name of ["uplot", "yjs", "lib0"]) expect(ofPage).toMatch(new RegExp(`^${name} \\d`, "m"));
});

test("every own package of it is the one of this repository, and the rest of them is in bundles", () => {
  const links = readdirSync(join(image, "node_modules/@espalier"));
  for (const name of links) {
    const manifest = JSON.parse(readFileSync(join(image, "node_modules/@espalier", name, "package.json"), "utf8"));
    expect(manifest.name).toBe(`@espalier/${name}`);
  }
  expect(links.toSorted()).toEqual(["dashboard", "engine-sim", "simulator", "tokenizer"]);
});

test("a wrong call says how to call it, and a folder that is taken is left alone", () => {
  const steps = ["deploy/docker/build-image-steps.mjs"];
  for (const [args, said] of [
    [["prun"], /^usage: /],
    [["prune"], /^usage: /],
    [["prune", join(image, "new"), "--platform"], /^usage: /],
    [["prune", join(image, "new"), "--platform", "linux/s390x"], /^no native code for linux\/s390x/],
    [["prune", image], /is not empty/],
  ] as const) {
    const outcome = () =>
      execFileSync(process.execPath, [...steps, ...args], { cwd: root, encoding: "utf8", stdio: "pipe" });
    expect(outcome).toThrow(expect.objectContaining({ status: 1, stderr: expect.stringMatching(said) }));
  }
});

test("the Dockerfile runs these steps on a slim glibc base of Node 26, as a user without rights, with the health check", () => {
  const lines = readText("deploy/docker/Dockerfile").split("\n");
  expect(lines.filter((line) => line.startsWith("FROM"))).toEqual([
    "FROM --platform=$BUILDPLATFORM node:26-bookworm-slim AS build",
    "FROM node:26-bookworm-slim",
  ]);
  const steps = "RUN node deploy/docker/build-image-steps.mjs";
  // What comes before TARGETPLATFORM is built once for all; the last stage, of the image's platform, only copies.
  expect(lines.filter((line) => /^(?:RUN|ARG)/.test(line))).toEqual([
    `${steps} install build`,
    "ARG TARGETPLATFORM",
    `${steps} prune /out --platform "$TARGETPLATFORM"`,
  ]);
  expect(lines).toContain("ENV NODE_ENV=production PATH=/app/bin:$PATH");
  expect(lines).toContain("USER 1000:1000");
  expect(lines.find((line) => line.startsWith("HEALTHCHECK"))).toContain('CMD ["node", "/app/healthcheck.mjs"]');
  for (const [path] of lines.join("\n").matchAll(/(?<=\/app\/)[\w/.-]+\.mjs/g))
    expect(readdirSync(image, { recursive: true, encoding: "utf8" })).toContain(path);
  const ignored = readText("deploy/docker/Dockerfile.dockerignore").split("\n");
  for (const needed of ["packages", "apps", "scripts", "package-lock.json", "deploy/docker"])
    expect(ignored).not.toContain(needed);
});

async function freePort(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  await new Promise((closed) => server.close(closed));
  return String(port);
}

if (podman)
  test("a container of it, built and run by Podman without root, answers, is healthy, and drains", async () => {
    const { run, folder } = podman;
    const dockerfile = readText("deploy/docker/Dockerfile")
      .split(/^(?=FROM )/m)
      .at(-1)!;
    baseFolder(join(folder, "base"));
    cpSync(image, join(folder, "out"), { recursive: true, verbatimSymlinks: true });
    writeFileSync(join(folder, "Base"), "FROM scratch\nCOPY base /\n");
    // The first stage is what `prune` has done above.
    writeFileSync(
      join(folder, "Last"),
      dockerfile.replace(/^FROM .*/, "FROM base").replace("--from=build /out", "out"),
    );
    execFileSync("chmod", ["-R", "a+rX", folder]);
    for (const name of ["base", "last"]) {
      const file = join(folder, name === "base" ? "Base" : "Last");
      run("build", "--pull=never", "--layers=false", "--format", "docker", "--tag", name, "--file", file, folder);
    }
    const [url = ""] = await engines({ engines: 1 });
    const adminPort = await freePort();
    const flags = ["--engine", url, "--listen-port", "0", "--admin-port", adminPort, "--drain-delay", "0ms"];
    // What Kubernetes' profile `restricted` asks of a pod, and a file system that cannot be written, /tmp included.
    const restricted = ["--cap-drop=all", "--security-opt=no-new-privileges", "--read-only", "--read-only-tmpfs=false"];
    const options = [
      "--network=host",
      ...restricted,
      "--health-interval=disable",
      "--env",
      `ESPALIER_ADMIN_PORT=${adminPort}`,
    ];
    run("run", "--detach", "--name=router", ...options, "last", "serve", ...flags);
    const [, dataUrl] = await waitFor(
      () => /serves at (\S+), metrics and admin at (\S+)/.exec(run("logs", "router")) ?? undefined,
      { what: "the container serves", deadlineMs: 60_000 },
    );
    await waitFor(async () => (await fetch(`${dataUrl}/health`)).status === 200, {
      what: "healthy",
      deadlineMs: 60_000,
    });
    expect(run("exec", "router", "id", "-u")).toBe("1000");
    const status = run("exec", "router", "node", "-p", "fs.readFileSync('/proc/1/status', 'utf8')");
    // Seccomp 2 is a filter: the default one.
    for (const line of ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"])
      expect(status).toContain(line);
    run("healthcheck", "run", "router");
    expect(run("exec", "router", "/app/epp", "--version")).toMatch(/^\d+\.\d+\.\d+$/);
    run("stop", "--time=30", "router");
    expect(run("inspect", "--format={{.State.ExitCode}}", "router")).toBe("0");
  });
