import { type ChildProcess, fork, spawn, spawnSync } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { eventDialects } from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { beforeAll, expect, onTestFinished, test, vi } from "vitest";

const app = join(dirname(fileURLToPath(import.meta.url)), "..");
const program = join(app, "bin", "engine-sim.mjs");

// A program takes a second to start on a busy machine.
vi.setConfig({ testTimeout: 20_000 });

beforeAll(() => {
  const compiler = fileURLToPath(import.meta.resolve("typescript/package.json"));
  const built = spawnSync(process.execPath, [join(dirname(compiler), "bin", "tsc"), "-b", app], { encoding: "utf8" });
  if (built.status !== 0) throw new Error(`the program does not build: ${built.stdout}`);
}, 60_000);

interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** Collects what a child prints until it ends, and sees to it that it ends with the test. */
function watch(child: ChildProcess): { readonly ended: Promise<Finished>; printed(): string } {
  onTestFinished(() => void child.kill("SIGKILL"));
  const text = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name]?.setEncoding("utf8").on("data", (piece: string) => {
      text[name] += piece;
    });
  }
  const ended = new Promise<Finished>((resolve) => child.on("close", (code) => resolve({ code, ...text })));
  return { ended, printed: () => text.stdout };
}

const run = (...args: string[]): Promise<Finished> => watch(spawn(process.execPath, [program, ...args])).ended;

const urls = (text: string): string[] => text.split("\n").filter((line) => line.startsWith("http"));

test("prints a URL for each engine, serves with its flags, and ends at once on SIGINT", async () => {
  const flags =
    "--engines 2 --model one --model two --preset h100-32b-tp2 --blocks 99 --block-size 32 --max-running 5 " +
    "--max-batched-tokens 512 --speed 100 --flavour sglang --seed 3 --natural-length-mean 9 --api-key k --lora three " +
    "--kv-events sglang-array --kv-events-replay off --kv-events-buffer 5 --kv-events-topic t";
  const child = spawn(process.execPath, [program, ...flags.split(" ")]);
  const { ended, printed } = watch(child);
  await waitFor(() => urls(printed()).length === 2, { what: "two URLs", deadlineMs: 10_000 });
  const [first] = urls(printed());
  const state = (await (await fetch(`${first}/sim/state`)).json()) as Record<string, unknown>;
  expect(state).toMatchObject({
    flavour: "sglang",
    models: ["one", "two"],
    parameters: { blockCount: 99, blockSize: 32, maxRunning: 5, maxBatchedTokens: 512, flavour: "sglang" },
    kvEvents: { dialect: "sglang-array", replayPort: null, bufferSteps: 5, topic: "t", nextSequence: 1 },
  });
  expect((await fetch(`${first}/v1/models`)).status).toBe(401);
  child.kill("SIGINT");
  expect((await ended).code).toBe(0);
});

test("publishes events of the shipped model's tokens, and a restart leaves the ports open", async () => {
  const flags = "--kv-events vllm-0.32 --tokenizer espalier-tiny --lora adapter-a --speed 1000".split(" ");
  const { printed } = watch(spawn(process.execPath, [program, ...flags]));
  await waitFor(() => urls(printed()).length === 1, { what: "a URL", deadlineMs: 10_000 });
  const [url] = urls(printed());
  const get = async (path: string) => (await (await fetch(url + path)).json()) as Record<string, unknown>;
  const post = (path: string, body: object) => fetch(url + path, { method: "POST", body: JSON.stringify(body) });
  const before = await get("/kv_event_sources");
  expect(before).toMatchObject({ "0": { publisher: "zmq", endpoint: expect.stringMatching(/^tcp:\/\/\*:\d+$/) } });
  const messages = [{ role: "user", content: "What is kept behind the archive door?" }];
  expect((await post("/v1/chat/completions", { messages, model: "adapter-a", max_tokens: 40 })).status).toBe(200);
  expect(((await get("/sim/kv-events")).nextSequence as number) > 0).toBe(true);
  expect((await post("/sim/reset", {})).status).toBe(200);
  expect(await get("/kv_event_sources")).toEqual(before);
  expect(await get("/sim/kv-events")).toMatchObject({ nextSequence: 0 });
});

test("ends on SIGTERM with requests open, with --json printed one object", async () => {
  const child = spawn(process.execPath, [program, "--json"]);
  const { ended, printed } = watch(child);
  await waitFor(() => printed().endsWith("\n"), { what: "a line", deadlineMs: 10_000 });
  const { engines } = JSON.parse(printed()) as { engines: { id: string; url: string }[] };
  expect(engines).toEqual([{ id: "engine-0", url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/) }]);
  const response = await fetch(`${engines[0]?.url}/v1/completions`, {
    method: "POST",
    body: JSON.stringify({ prompt: "a", max_tokens: 10_000, stream: true }),
  });
  expect(response.status).toBe(200);
  child.kill("SIGTERM");
  expect((await ended).code).toBe(0);
  await expect(response.text()).rejects.toThrow();
});

test("tells a parent where it listens, and does not outlive it", async () => {
  const child = fork(program, ["--engines", "3"], { execArgv: [], stdio: ["ignore", "pipe", "pipe", "ipc"] });
  watch(child);
  const exitCode = new Promise<number | null>((resolve) => child.once("exit", resolve));
  const message = await new Promise<unknown>((resolve) => child.once("message", resolve));
  expect(message).toEqual({
    type: "listening",
    engines: [0, 1, 2].map((index) => ({ id: `engine-${index}`, url: expect.stringMatching(/^http:/) })),
  });
  child.disconnect();
  expect(await exitCode).toBe(0);
});

test("with --exit-with-stdin it ends when its standard input does", async () => {
  const child = spawn(process.execPath, [program, "--exit-with-stdin"]);
  const { ended, printed } = watch(child);
  child.stdin.write("dropped");
  await waitFor(() => urls(printed()).length === 1, { what: "a URL", deadlineMs: 10_000 });
  child.stdin.end();
  expect((await ended).code).toBe(0);
});

test("stays up while its only port is closed for a time", async () => {
  const child = spawn(process.execPath, [program]);
  const { ended, printed } = watch(child);
  await waitFor(() => urls(printed()).length === 1, { what: "a URL", deadlineMs: 10_000 });
  const [url] = urls(printed());
  const reachable = () =>
    fetch(`${url}/health`).then(
      () => true,
      () => false,
    );
  await fetch(`${url}/sim/faults`, { method: "POST", body: JSON.stringify({ kind: "refuse", delayMs: 1_000 }) });
  await waitFor(async () => !(await reachable()), { what: "a closed port" });
  await waitFor(reachable, { what: "the port again" });
  child.kill("SIGINT");
  await ended;
});

test("--help names every flag and preset", async () => {
  const { code, stdout } = await run("--help");
  expect(code).toBe(0);
  const flags =
    "engines host port preset model blocks block-size max-running max-batched-tokens speed flavour seed " +
    "natural-length-mean api-key tokenizer media-tokens lora kv-events kv-events-port kv-events-replay kv-events-buffer kv-events-topic json help";
  for (const flag of flags.split(" ")) expect(stdout).toContain(`--${flag}`);
  for (const dialect of ["auto", ...eventDialects]) expect(stdout).toContain(dialect);
  for (const preset of ["a10g-7b", "h100-32b-tp2", "h100-70b-tp4"]) expect(stdout).toContain(preset);
  for (const line of stdout.split("\n")) expect(line.length, line).toBeLessThanOrEqual(110);
});

test.each([
  [["--nonsense"], "--nonsense"],
  [["positional"], "positional"],
  [["--engines", "many"], "--engines"],
  [["--engines", "0"], "engines"],
  [["--port", "70000"], "port"],
  [["--preset", "tpu"], "--preset"],
  [["--flavour", "trt"], "--flavour"],
  [["--speed", ""], "--speed"],
  [["--speed", "-1"], "speed"],
  [["--blocks", "0"], "blockCount"],
  [["--kv-events", "vllm"], "--kv-events"],
  [["--kv-events", "auto", "--kv-events-replay", "maybe"], "--kv-events-replay"],
  [["--kv-events", "auto", "--kv-events-port", "x"], "--kv-events-port"],
  [["--kv-events-topic", "t"], "--kv-events-topic"],
  [["--lora", ""], "lora"],
  [["--tokenizer", "/nonexistent"], "tokenizer"],
])("%j is one clear line and exit code 2", async (args, word) => {
  const { code, stdout, stderr } = await run(...args);
  expect(code).toBe(2);
  expect(stdout).toBe("");
  expect(stderr).toMatch(/^espalier-engine-sim: .+\n$/);
  expect(stderr).toContain(word);
});

test("an address that cannot be listened on is one clear line and exit code 1", async () => {
  const { code, stderr } = await run("--host", "203.0.113.1");
  expect(code).toBe(1);
  expect(stderr).toMatch(/^espalier-engine-sim: listen EADDRNOTAVAIL.*\n$/);
});
