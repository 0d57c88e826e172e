/** Engines are killed while they answer: no stream is cut, and none loses or repeats a character. */
import { type ChildProcess, spawn } from "node:child_process";
import { createSeededRandom, type Random } from "@espalier/core";
import { fixedSeeds, freePort, waitFor } from "@espalier/testing";
import { afterAll, expect, test } from "vitest";
import { openPost, post } from "../integration/client.ts";
import { createRig, type Rig, type RunningRouter } from "../integration/rig.ts";
import { tellChaos } from "./chaos-report.ts";

const rig = createRig();
afterAll(() => rig.close());

const engineCount = 4;
const [rounds, streamsPerRound] = [10, 50];
const maxTokens = 80;

interface EngineProcess {
  readonly url: string;
  /** Kills it as a crash would. */
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** A simulated engine in a process of its own, at the same address after each start. */
async function engineProcess(owner: Rig): Promise<EngineProcess> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const flags = ["--port", String(port), "--model", "tiny", "--speed", "4"];
  let child: ChildProcess | undefined;
  const kill = async (): Promise<void> => {
    const running = child;
    child = undefined;
    if (!running) return;
    const exited = new Promise((resolve) => running.once("exit", resolve));
    running.kill("SIGKILL");
    await exited;
  };
  const start = async (): Promise<void> => {
    const program = "apps/engine-sim/bin/engine-sim.mjs";
    child = spawn(process.execPath, [program, ...flags], {
      stdio: "ignore",
      env: { ...process.env, NODE_OPTIONS: "" },
    });
    const isUp = () =>
      fetch(`${url}/health`).then(
        ({ ok }) => ok,
        () => false,
      );
    await waitFor(isUp, { what: "start of an engine", deadlineMs: 60_000 });
  };
  owner.own(kill);
  await start();
  return { url, kill, start };
}

const chats = "/v1/chat/completions";
const completions = "/v1/completions";

/** A request, with a prompt of whole tokens of the simulated engines: four bytes each. */
function requestOf(index: number): { readonly path: string; readonly body: Readonly<Record<string, unknown>> } {
  const common = { model: "tiny", stream: true, max_tokens: maxTokens };
  const prompt = `Stream ${String(index).padStart(5, "0")} of the engines`;
  if (index % 3 === 0) return { path: chats, body: { ...common, messages: [{ role: "user", content: prompt }] } };
  if (index % 3 === 1) return { path: completions, body: { ...common, prompt: prompt.padEnd(28) } };
  return { path: completions, body: { ...common, prompt, return_token_ids: true } };
}

interface Chunk {
  readonly choices: readonly { readonly text?: string; readonly delta?: { readonly content?: string } }[];
}

const textOf = (bytes: string): string =>
  bytes
    .split("\n\n")
    .filter((event) => event.startsWith("data: {"))
    .map((event) => JSON.parse(event.slice("data: ".length)) as Partial<Chunk>)
    .map(({ choices }) => choices?.[0]?.text ?? choices?.[0]?.delta?.content ?? "")
    .join("");

async function untilUsable(router: RunningRouter): Promise<void> {
  const isUsable = async (): Promise<boolean> =>
    (await router.engines()).every(({ state, breaker }) => state === "up" && breaker.state !== "open");
  await waitFor(isUsable, { what: "all engines to be used again", deadlineMs: 60_000 });
}

/** Sends streams, and kills an engine once so many of their events have come. */
async function killDuring(router: RunningRouter, engines: readonly EngineProcess[], first: number, random: Random) {
  const requests = Array.from({ length: streamsPerRound }, (_, at) => requestOf(first + at));
  const open = requests.map(({ path, body }) => openPost(router.url + path, body));
  const events = () => open.reduce((sum, stream) => sum + stream.received().split("\n\n").length, 0);
  const due = streamsPerRound * (1 + random.integer(maxTokens - 20));
  await waitFor(() => events() >= due, { what: `${due} events`, deadlineMs: 60_000 });
  const victim = engines[random.integer(engines.length)]!;
  tellChaos({ fault: "engine: SIGKILL" });
  await victim.kill();
  const texts = await Promise.all(open.map(async ({ body }) => (await body).toString("utf8")));
  await victim.start();
  await untilUsable(router);
  return requests.map((request, at) => ({ ...request, text: texts[at]! }));
}

test("500 streams by four engines, of which one after the other is killed at random tokens", {
  timeout: 240_000,
}, async () => {
  const random = createSeededRandom(fixedSeeds(1)[0]!);
  const engines = await Promise.all(Array.from({ length: engineCount }, () => engineProcess(rig)));
  const router = await rig.router({ engines: engines.map(({ url }) => url) });
  const [reference] = await rig.sims(1);
  let resumed = 0;
  for (let round = 0; round < rounds; round++) {
    for (const { path, body, text } of await killDuring(router, engines, round * streamsPerRound, random)) {
      expect(text.slice(-"data: [DONE]\n\n".length)).toBe("data: [DONE]\n\n");
      expect(textOf(text)).toBe(textOf((await post(reference!.url + path, body)).text));
      if (text.includes(": x-espalier-resumed: ")) resumed++;
    }
  }
  await router.untilIdle();
  const page = await router.metrics();
  expect(resumed).toBeGreaterThan(rounds);
  expect(page.sum("espalier_broken_streams_total", { outcome: "completed" })).toBe(resumed);
  expect(page.sum("espalier_requests_total", { outcome: "answered" })).toBe(rounds * streamsPerRound);
  const requests = rounds * streamsPerRound;
  tellChaos({ requests, completed: requests, allowedFailures: 0, failures: 0, lost: 0 });
});
