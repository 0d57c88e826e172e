import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { request } from "node:http";
import { connect, createServer } from "node:net";
import { waitFor } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { engines, temporaryFile } from "./files.ts";
import { childrenOf, type Program, run, start, untilGone } from "./program.ts";

interface Group extends Program {
  readonly url: string;
  readonly adminUrls: readonly string[];
}

interface Status {
  readonly usableEngines: number;
  readonly mesh: { readonly router: string; readonly members: readonly { readonly isLinked: boolean }[] };
}

/** Starts `espalier serve --processes 2` on free ports and waits until it is ready. */
async function serve(engineUrls: readonly string[], ...args: string[]): Promise<Group> {
  const flags = [...engineUrls.flatMap((url) => ["--engine", url]), "--listen-port", "0", "--admin-port", "0", ...args];
  const program = start(["serve", "--processes", "2", ...flags]);
  const [, url = "", admin = ""] = await program.until(/serves at (\S+) by 2 processes, metrics and admin at (.+)/);
  if (engineUrls.length > 0) {
    await waitFor(async () => (await ask(`${url}/readyz`)).status === 200, { what: "ready", deadlineMs: 30_000 });
  }
  return { ...program, url, adminUrls: admin.trim().split(" ") };
}

interface Reply {
  readonly status: number;
  readonly engine: string | undefined;
  readonly text: string;
}

/** Asks over a connection of its own, so that the processes take turns. */
function ask(url: string, body?: object): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const options = { agent: false, method: body ? "POST" : "GET", ...(body ? { headers } : {}) } as const;
    const sent = request(url, options, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (piece: string) => {
        text += piece;
      });
      const engine = response.headers["x-espalier-engine"];
      response.on("end", () => resolve({ status: response.statusCode ?? 0, engine: engine as string, text }));
      response.on("error", reject);
    });
    sent.on("error", reject).end(body ? JSON.stringify(body) : undefined);
  });
}

const json = async <Page>(url: string): Promise<Page> => JSON.parse((await ask(url)).text) as Page;

/** Answers that each process has given. */
async function answered(group: Group): Promise<readonly number[]> {
  return Promise.all(
    group.adminUrls.map(async (url) => {
      const counts = (await ask(`${url}/metrics`)).text.matchAll(/^espalier_requests_total\{.*\} (\d+)$/gm);
      return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
    }),
  );
}

function chat(conversation: number, turns: number, more: object = {}) {
  const line = (turn: number) =>
    `Conversation ${conversation}, turn ${turn}: ${`word${conversation}x${turn} `.repeat(150)}`;
  const messages = Array.from({ length: turns }, (_, turn) => ({ role: "user", content: line(turn) }));
  return { model: "tiny", messages, max_tokens: 4, ...more };
}

/** Opens a streamed answer, waits for its first bytes, and tells in the end whether it was whole. */
async function stream(url: string, tokens: number): Promise<{ readonly whole: Promise<boolean> }> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", connection: "close" },
    body: JSON.stringify({ model: "tiny", prompt: "hello", max_tokens: tokens, stream: true }),
  });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let { value: text = "" } = await reader.read();
  const rest = async (): Promise<boolean> => {
    try {
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value;
    } catch {
      return false;
    }
    return text.endsWith("data: [DONE]\n\n");
  };
  return { whole: rest() };
}

test("two processes share the port, what they know, and reloads; one that is killed comes back while the other serves", async () => {
  const urls = await engines({ engines: 4 });
  const file = temporaryFile("espalier.yaml", "policy: cache_aware\n");
  const group = await serve(urls, "--config", file);
  const statuses = await Promise.all(group.adminUrls.map((url) => json<Status>(`${url}/admin/status`)));
  expect(statuses.map(({ mesh }) => [mesh.router, mesh.members.length])).toEqual([
    ["process-1", 1],
    ["process-2", 1],
  ]);
  await checkConversations(group);
  await checkReloads(group, file);
  await checkDeath(group);
});

async function checkConversations(group: Group): Promise<void> {
  let same = 0;
  const conversations = 16;
  for (let number = 0; number < conversations; number++) {
    const first = await ask(`${group.url}/v1/chat/completions`, chat(number, 1));
    const second = await ask(`${group.url}/v1/chat/completions`, chat(number, 2));
    expect([first.status, second.status]).toEqual([200, 200]);
    if (first.engine === second.engine) same += 1;
  }
  // By chance it would be a quarter.
  expect(same).toBeGreaterThanOrEqual(conversations - 2);
  const [one = 0, other = 0] = await answered(group);
  expect(one + other).toBe(2 * conversations);
  expect(Math.min(one, other)).toBeGreaterThan(conversations / 4);
}

async function checkReloads(group: Group, file: string): Promise<void> {
  const reloads = (trigger: string) =>
    [...group.stderr().matchAll(new RegExp(`"process":(\\d),"trigger":"${trigger}"`, "g"))].map(([, number]) => number);
  writeFileSync(file, "policy: random\n");
  group.kill("SIGHUP");
  await waitFor(() => new Set(reloads("signal")).size === 2, { what: "reloads by the signal" });
  expect((await run(["reload", "--admin", group.adminUrls[1] ?? ""])).code).toBe(0);
  await waitFor(() => new Set(reloads("admin")).size === 2, { what: "reloads by an operator" });
  for (const url of group.adminUrls) {
    expect(await json(`${url}/admin/config`)).toMatchObject({ policy: { name: "random" } });
  }
}

async function checkDeath(group: Group): Promise<void> {
  const before = childrenOf(group.pid);
  expect(before).toHaveLength(2);
  const [victim = 0, other = 0] = before;
  process.kill(victim, "SIGKILL");
  await untilGone([victim]);
  await group.until(/"msg":"a process ended; restarting"/);
  for (let number = 0; number < 10; number++) {
    expect((await ask(`${group.url}/v1/chat/completions`, chat(number, 1))).status).toBe(200);
  }
  expect((await ask(`${group.url}/readyz`)).status).toBe(200);
  // It has another admin port than before, so it is found by its log; it takes connections once it can serve them.
  const find = () => /"adminUrl":"([^"]+)"/.exec(group.stderr().split("restarting")[1] ?? "")?.[1];
  const back = { ...group, adminUrls: [await waitFor(find, { what: "its address", deadlineMs: 30_000 })] };
  expect(childrenOf(group.pid)).toContain(other);
  expect(await json<Status>(`${back.adminUrls[0]}/admin/status`)).toMatchObject({ ready: true, usableEngines: 4 });
  for (let number = 0; number < 10; number++) await ask(`${group.url}/v1/chat/completions`, chat(number, 2));
  expect((await answered(back))[0]).toBeGreaterThan(1);
}

/** Asks nothing: a connection that is accepted while the last listener closes may never be answered. */
async function isRefused(url: string): Promise<boolean> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  try {
    await once(socket, "connect");
    return false;
  } catch {
    return true;
  } finally {
    socket.destroy();
  }
}

test("signals go to all: SIGTERM lets open answers end, and Ctrl-C twice ends it at once", async () => {
  const urls = await engines({ engines: 2 });
  const draining = await serve(urls, "--drain-delay", "1s");
  const streams = [];
  for (let number = 0; number < 4; number++) streams.push(await stream(draining.url, 60));
  const pids = childrenOf(draining.pid);
  // As systemd does, and a terminal: it must not count as two.
  draining.killGroup("SIGTERM");
  expect(await Promise.all(streams.map(({ whole }) => whole))).toEqual([true, true, true, true]);
  expect(await draining.ended).toMatchObject({ code: 0, signal: null });
  expect(draining.stderr().match(/"msg":"stopped"/g)).toHaveLength(2);
  await untilGone(pids);

  const slow = await engines({ speed: 0.1 });
  const forced = await serve(slow);
  const cut = await stream(forced.url, 2_000);
  forced.killGroup("SIGINT");
  await waitFor(() => isRefused(forced.url), { what: "closed listener" });
  forced.killGroup("SIGINT");
  expect(await cut.whole).toBe(false);
  expect(await forced.ended).toMatchObject({ code: 0, signal: null });
});

test("when the first process is gone, so are the others; and an address that is taken ends all with 1", async () => {
  const group = await serve([]);
  const pids = childrenOf(group.pid);
  group.kill("SIGKILL");
  await untilGone(pids, 5_000);

  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    taken.close();
  });
  const { port } = taken.address() as { port: number };
  const ports = ["--listen-port", String(port), "--admin-port", "0"];
  const { code, stderr } = await run(["serve", "--processes", "2", ...ports, "--log-level", "error"]);
  expect(code).toBe(1);
  expect(stderr).toContain("(listen_failed)\nFree the port or choose another one.\n");
  expect(stderr).toContain("error: process 1 of 2 ended with code 1 before it served\n");
});
