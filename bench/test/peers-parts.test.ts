import { EventEmitter, once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { missingPackages, parseDependencies } from "../src/peers/debian-packages.ts";
import { installPeer } from "../src/peers/install-peer.ts";
import { haproxyConfiguration, nginxConfiguration } from "../src/peers/plain-proxies.ts";
import { products } from "../src/peers/products.ts";
import { type ForeignHost, runForeignProcess } from "../src/support/foreign-process.ts";
import { freePorts } from "../src/support/free-ports.ts";
import { readTreeUsage } from "../src/support/process-tree.ts";
import { runProgram } from "../src/support/run-program.ts";

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "peers-parts-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

test("dependencies are read, of alternatives the first, virtual and other relations not", () => {
  const text = `haproxy
  PreDepends: dpkg
  PreDepends: init-system-helpers
  Depends: libc6
 |Depends: liblua5.3-0
  Depends: liblua-other
  Depends: <virtual>
    really-there
  Depends: libstdc++6
  Suggests: vim-haproxy
  Depends: lsb-base
`;
  const names = ["dpkg", "init-system-helpers", "libc6", "liblua5.3-0", "libstdc++6", "lsb-base"];
  expect(parseDependencies(text)).toEqual(names);
});

test("libraries that are missing are followed, programs and installed ones are not", async () => {
  const graph: Record<string, readonly string[]> = {
    haproxy: ["libc6", "liblua", "adduser", "libwrap"],
    liblua: ["libc6", "libwrap"],
    libwrap: ["libdeep"],
  };
  const wanted = await missingPackages(
    "haproxy",
    async (name) => graph[name] ?? [],
    (name) => name === "libc6",
  );
  expect(wanted).toEqual(["haproxy", "liblua", "libwrap", "libdeep"]);
});

test.each([
  { libraries: 15, isRefused: false },
  { libraries: 16, isRefused: true },
])("a program with $libraries missing libraries is refused: $isRefused", async ({ libraries, isRefused }) => {
  const needed = Array.from({ length: libraries }, (_, at) => `lib${at}`);
  const packages = missingPackages(
    "big",
    async (name) => (name === "big" ? needed : []),
    () => false,
  );
  if (isRefused) await expect(packages).rejects.toThrow("big needs more than 16 packages");
  else await expect(packages).resolves.toHaveLength(16);
});

/** Writes what `/proc` says of one process with one thread. */
function writeProcess(root: string, pid: number, name: string, children: readonly number[]): void {
  const folder = join(root, String(pid));
  mkdirSync(join(folder, "task", String(pid)), { recursive: true });
  const before = Array.from({ length: 10 }, () => "0").join(" ");
  writeFileSync(join(folder, "stat"), `${pid} (${name}) S ${before} 150 50 99 99 20\n`);
  writeFileSync(join(folder, "status"), `Name:\t${name}\nVmRSS:\t    2048 kB\nThreads:\t1\n`);
  writeFileSync(join(folder, "task", String(pid), "children"), children.map((child) => `${child} `).join(""));
}

test("what a process and its descendants use is added up, whatever they are called", () => {
  const root = newFolder();
  writeProcess(root, 10, "master) S 1 (x", [11, 12]);
  writeProcess(root, 11, "worker", []);
  writeProcess(root, 12, "worker", [13]);
  writeProcess(root, 13, "helper process", []);
  const megabyte = 1_048_576;
  expect(readTreeUsage(10, root)).toEqual({ cpuSeconds: 8, residentBytes: 8 * megabyte });
  expect(readTreeUsage(11, root)).toEqual({ cpuSeconds: 2, residentBytes: 2 * megabyte });
  expect(() => readTreeUsage(14, root)).toThrow("ENOENT");
});

test.each([
  { descendants: 63, isRefused: false },
  { descendants: 64, isRefused: true },
])("a tree of $descendants descendants is refused: $isRefused", ({ descendants, isRefused }) => {
  const root = newFolder();
  const children = Array.from({ length: descendants }, (_, at) => at + 2);
  writeProcess(root, 1, "many", children);
  for (const child of children) writeProcess(root, child, "one", []);
  if (isRefused) expect(() => readTreeUsage(1, root)).toThrow("process 1 is a tree of more than 64 processes");
  else expect(readTreeUsage(1, root).cpuSeconds).toBe(128);
});

test("the present process uses time and memory", () => {
  const { cpuSeconds, residentBytes } = readTreeUsage(process.pid);
  expect(cpuSeconds).toBeGreaterThan(0);
  expect(residentBytes).toBeGreaterThan(10_000_000);
});

test("free ports differ and can be listened at", async () => {
  const ports = await freePorts(5);
  expect(new Set(ports).size).toBe(5);
  for (const port of ports) {
    const server = createServer().listen(port, "127.0.0.1");
    await once(server, "listening");
    server.close();
  }
});

test("a program's output is returned, its failure names it and its last words", async () => {
  expect(await runProgram("pwd", [], { folder: tmpdir() })).toContain(tmpdir());
  await expect(runProgram("sh", ["-c", "echo gone wrong >&2; exit 3"])).rejects.toThrow(
    "sh -c echo gone wrong >&2; exit 3 ended with 3: gone wrong",
  );
  await expect(runProgram("sleep", ["60"], { timeoutMs: 50 })).rejects.toThrow("sleep 60 ended with SIGTERM");
  await expect(runProgram("no-such-program-here", [])).rejects.toThrow("ENOENT");
});

interface FakeHost extends ForeignHost {
  readonly emitter: EventEmitter;
  readonly sent: { readonly pid: number }[];
  readonly exits: number[];
}

function fakeHost(): FakeHost {
  const emitter = new EventEmitter();
  const sent: { pid: number }[] = [];
  const exits: number[] = [];
  return {
    emitter,
    sent,
    exits,
    on: (event, listener) => emitter.on(event, listener),
    send: (message) => sent.push(message as { pid: number }),
    exit: (code) => void exits.push(code),
  };
}

const runs = (pid: number): boolean => existsSync(`/proc/${pid}`);

test.each(["disconnect", "SIGINT", "SIGTERM", "SIGHUP"])(
  "a peer ends at %s, and its folder is removed",
  async (event) => {
    const host = fakeHost();
    const folder = newFolder();
    runForeignProcess(JSON.stringify({ command: "sleep", arguments: ["60"], folder }), host);
    await waitFor(() => host.sent.length === 1, { what: "the process" });
    const { pid } = host.sent[0]!;
    expect(runs(pid)).toBe(true);
    host.emitter.emit(event);
    await waitFor(() => host.exits.length === 1, { what: "the end" });
    expect(host.exits).toEqual([1]);
    expect(runs(pid)).toBe(false);
    expect(existsSync(folder)).toBe(false);
  },
);

test("a peer's own end is passed on, with its code, and one that cannot be started ends with 1", async () => {
  const host = fakeHost();
  const start = (command: string, args: readonly string[]): void =>
    runForeignProcess(JSON.stringify({ command, arguments: args, folder: newFolder() }), host);
  start("sh", ["-c", "exit 7"]);
  await waitFor(() => host.exits.length === 1, { what: "the end" });
  start("no-such-program-here", []);
  await waitFor(() => host.exits.length === 2, { what: "the second end" });
  expect(host.exits).toEqual([7, 1]);
});

test("nginx and HAProxy get every engine, one process, and connections that stay", () => {
  const proxy = { port: 4_321, engineUrls: ["http://127.0.0.1:81", "http://127.0.0.1:82"] };
  const nginx = nginxConfiguration(proxy);
  expect(nginx).toContain("listen 127.0.0.1:4321;");
  expect(nginx.match(/server 127\.0\.0\.1:8[12] /g)).toHaveLength(2);
  expect(nginx).toContain("master_process off;");
  const haproxy = haproxyConfiguration(proxy);
  expect(haproxy).toContain("bind 127.0.0.1:4321");
  expect(haproxy.match(/server engine-\d 127\.0\.0\.1:8[12]$/gm)).toHaveLength(2);
  expect(haproxy).toContain("nbthread 1");
});

test("every product is told its port, its engines and its policy", () => {
  const start = {
    port: 4_321,
    metricsPort: 4_322,
    engineUrls: ["http://127.0.0.1:81"],
    policy: "round_robin",
    folder: "/own",
  };
  for (const { name, command } of products) {
    const { arguments: args, files = {} } = command(start);
    const text = [...args, ...Object.values(files)].join(" ");
    expect(text, name).toContain("4321");
    expect(text, name).toContain("127.0.0.1:81");
    expect(text, name).toMatch(/round_?robin|upstream/);
  }
});

test("what is installed is not installed again", async () => {
  const folder = newFolder();
  const product = products.find(({ name }) => name === "smg")!;
  const own = join(folder, "smg-1.13.0");
  mkdirSync(own);
  writeFileSync(join(own, "installed"), "");
  const lines: string[] = [];
  const installed = await installPeer(product, folder, (line) => lines.push(line));
  expect(installed).toEqual({ product, program: join(own, "bin", "smg"), version: "1.13.0" });
  expect(lines).toEqual([]);
});
