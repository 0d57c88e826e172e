import { readFileSync } from "node:fs";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { type Child, startChild, untilReady } from "../src/processes/start-child.ts";
import { temporaryFile, temporaryServer } from "./temporary.ts";

interface Listening {
  readonly environment: Record<string, string>;
  readonly arguments: readonly string[];
}

const tell = `process.send({ type: "listening", environment: { ...process.env }, arguments: process.argv.slice(2) });`;
const stay = "setInterval(() => {}, 60_000);";

async function start(program: string, options: object = {}): Promise<Child<Listening>> {
  const child = await startChild<Listening>({
    name: "the program",
    program: temporaryFile("program.mjs", program),
    arguments: ["--flag", "a b"],
    ...options,
  });
  onTestFinished(() => child.stop());
  return child;
}

function isRunning(pid: number | undefined): boolean {
  try {
    return process.kill(pid!, 0);
  } catch {
    return false;
  }
}

test("a child is started once it says that it listens, and ends when its channel closes", async () => {
  const child = await start(`process.on("disconnect", () => process.exit(7)); ${tell}`);
  expect(child.listening.arguments).toEqual(["--flag", "a b"]);
  await child.stop();
  expect(await child.exited).toBe(7);
  await child.stop();
});

// Two SIGTERM in a row are one when the first is still pending, and the child then drained for as long as it liked.
test("a child that has begun to stop on a signal still ends at once", async () => {
  const child = await start(`
    process.on("SIGTERM", () => process.send({ type: "stopping" }));
    process.once("disconnect", () => process.exit(0));
    ${tell} ${stay}`);
  const stopping = new Promise((resolve) => child.process.on("message", resolve));
  child.process.kill("SIGTERM");
  expect(await stopping).toEqual({ type: "stopping" });
  await child.stop();
  expect(await child.exited).toBe(0);
});

test("a child that does not notice is killed", async () => {
  const child = await start(`process.on("SIGTERM", () => {}); ${tell} ${stay}`);
  await child.stop();
  expect(await child.exited).toBeNull();
  expect(isRunning(child.process.pid)).toBe(false);
});

test("a child that exits before it listens is an error with its last words", async () => {
  const program = `console.error("the port is taken"); process.exit(3);`;
  await expect(start(program)).rejects.toThrow("the program exited with code 3\nthe port is taken");
});

test("only the last 8 KiB of what it said are kept", async () => {
  const program = `process.stderr.write("first" + "x".repeat(20_000) + "last", () => process.exit(1));`;
  const error = await start(program).then(
    () => undefined,
    (thrown: Error) => thrown,
  );
  expect(error?.message).toMatch(/x+last$/);
  expect(error?.message.length).toBeLessThan(8_192 + 100);
});

test("a child that stays silent is an error, and is not left behind", async () => {
  const pidFile = temporaryFile("pid", "");
  const program = `
    import { writeFileSync } from "node:fs";
    writeFileSync(${JSON.stringify(pidFile)}, String(process.pid));
    process.send({ type: "something else" });
    ${stay} process.on("disconnect", () => process.exit(0));`;
  await expect(start(program, { startTimeoutMs: 400 })).rejects.toThrow("the program did not listen within 400 ms");
  const pid = Number(readFileSync(pidFile, "utf8"));
  await waitFor(() => pid === 0 || !isRunning(pid), { what: "end of the child" });
});

// A variable such as ESPALIER_LISTEN_PORT would silently have made every fleet of a replay another one.
test("what configures a router in the environment does not reach a child, all else does", async () => {
  vi.stubEnv("ESPALIER_LOG_LEVEL", "debug");
  vi.stubEnv("OF_THE_TEST", "here");
  onTestFinished(() => {
    vi.unstubAllEnvs();
  });
  const child = await start(`process.on("disconnect", () => process.exit(0)); ${tell}`, {
    environment: { ESPALIER_ADMIN_PORT: "1" },
  });
  const settings = Object.entries(child.listening.environment).filter(([name]) => name.startsWith("ESPALIER_"));
  // An empty path: the child reads no configuration file of the folder that it is started in.
  expect(Object.fromEntries(settings)).toEqual({
    ESPALIER_ADMIN_PORT: "1",
    ESPALIER_CONFIG: "",
    ESPALIER_SKIP_BUILD: "1",
  });
  expect(child.listening.environment.OF_THE_TEST).toBe("here");
});

// "Ready" used to mean one usable engine: the first requests of a replay then found a part of its fleet.
test("a router is ready when it can use all of its engines", async () => {
  let usableEngines = 0;
  const adminUrl = await temporaryServer(({ path, response }) => {
    response.writeHead(path === "/admin/status" ? 200 : 404, { "content-type": "application/json" });
    response.end(JSON.stringify({ usableEngines: usableEngines++, models: ["tiny"], ready: true }));
  });
  expect(await untilReady({ url: "http://router", adminUrl, meshAddress: null, picker: null }, 3)).toMatchObject({
    usableEngines: 3,
    models: ["tiny"],
  });
  expect(usableEngines).toBe(4);
});

test("waiting for engines can be given up, whether or not the router answers", async () => {
  const abort = new AbortController();
  const adminUrl = await temporaryServer(({ response }) => response.end('{"usableEngines":1}'));
  const waiting = untilReady({ url: "http://router", adminUrl, meshAddress: null, picker: null }, 2, abort.signal);
  const nobody = untilReady(
    { url: "http://gone", adminUrl: "http://127.0.0.1:1", meshAddress: null, picker: null },
    2,
    abort.signal,
  );
  abort.abort();
  const messages = (await Promise.allSettled([waiting, nobody])).map((end) => end.status === "rejected" && end.reason);
  expect(messages).toEqual([
    new Error("the router at http://router can use 1 of 2 engines"),
    new Error("the router at http://gone can use 0 of 2 engines"),
  ]);
});
