import type { Program } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { quietSims } from "./cache-rig.ts";
import { call, chat, type Json, post } from "./client.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const trusted = { admission: { "trust-tenant-header": true } };
const twoRouters = async (config: Json = {}): Promise<readonly RunningRouter[]> =>
  meshRouters(rig, 2, await quietSims(rig, 2), {
    tokenizes: false,
    config: { "session-key": ["header:x-session-id", "prefix"], ...config },
  });

type Message = Json & { readonly role: string };

const system = { role: "system", content: "You are a careful agent. ".repeat(60) };
const user = (content: string): Message => ({ role: "user", content });

const programsAt = async (router: RunningRouter): Promise<readonly Program[]> =>
  ((await router.admin("GET", "/admin/programs")).json as { programs: readonly Program[] }).programs;

/** What `explain` says of a prompt: the conversation that it continues. */
async function known(router: RunningRouter, messages: readonly Message[]): Promise<unknown> {
  const { sessionKey, sessionSource } = (await router.admin("POST", "/admin/explain", chat({ messages }))).json as Json;
  expect(sessionSource).toBe("prefix");
  return sessionKey;
}

/** Has an agent talk without any key, each turn at the next router, once that one knows where it began. */
async function converse(
  routers: readonly RunningRouter[],
  first: readonly Message[],
  turns: number,
  { tenant, ...fields }: { readonly tenant?: string; readonly cache_salt?: string } = {},
): Promise<void> {
  const headers = tenant === undefined ? {} : { "x-espalier-tenant": tenant };
  const key = tenant === undefined && fields.cache_salt === undefined ? await known(routers[0]!, first) : undefined;
  let messages = first;
  for (let turn = 0; turn < turns; turn++) {
    const router = routers[turn % routers.length]!;
    if (turn > 0 && key !== undefined) {
      await waitFor(async () => (await known(router, messages)) === key, { what: "the conversation at the router" });
    }
    const { status, json } = await post(
      `${router.url}/v1/chat/completions`,
      chat({ ...fields, messages, max_tokens: 4 }),
      headers,
    );
    expect(status).toBe(200);
    const [choice] = json.choices as readonly { readonly message: Message }[];
    messages = [...messages, choice!.message, { role: "tool", tool_call_id: "c", content: `result ${turn}` }];
  }
}

test("five turns without a key, through two routers, are one program; agents with another task are others", async () => {
  const routers = await twoRouters();
  await converse(routers, [system, user("Find the bug.")], 5);
  await converse(routers, [system, user("Write a test.")], 2);
  await converse(routers, [system, user("Say hello.")], 1);
  for (const router of routers) {
    await waitFor(
      async () => {
        const programs = await programsAt(router);
        return programs.length === 2 && programs.reduce((sum, { steps }) => sum + steps, 0) === 7;
      },
      { what: "two programs at each router" },
    );
    expect((await programsAt(router)).map(({ steps, source, failed }) => [steps, source, failed])).toEqual([
      [2, "prefix", 0],
      [5, "prefix", 0],
    ]);
  }
});

test("two tenants with the same text are two programs", async () => {
  const [router] = await twoRouters(trusted);
  for (const tenant of ["one", "two"]) await converse([router!], [system, user("Find the bug.")], 3, { tenant });
  const programs = await programsAt(router!);
  expect(programs.map(({ tenant, steps }) => [tenant, steps])).toEqual([
    ["two", 3],
    ["one", 3],
  ]);
});

test("so are two cache salts", async () => {
  const [router] = await twoRouters();
  for (const salt of ["one", "two"])
    await converse([router!], [system, user("Find the bug.")], 3, { cache_salt: salt });
  expect((await programsAt(router!)).map(({ steps }) => steps)).toEqual([3, 3]);
});

test("without `prefix` in the list nothing is known of such requests", async () => {
  const [router] = await twoRouters({ "session-key": ["header:x-session-id"] });
  const messages = [system, user("Find the bug.")];
  await post(`${router!.url}/v1/chat/completions`, chat({ messages }));
  await post(
    `${router!.url}/v1/chat/completions`,
    chat({ messages: [...messages, { role: "assistant", content: "Yes." }, user("And?")] }),
  );
  expect(await programsAt(router!)).toEqual([]);
});

test("its client ends a session, and no other tenant's", async () => {
  const keys = ["one", "two"].map((name) => ({ name, key: `the key of ${name}` }));
  const routers = await twoRouters({ "api-keys": keys, policy: "sticky" });
  const as = (name: string) => ({ authorization: `Bearer the key of ${name}` });
  for (const { name } of keys) {
    const headers = { ...as(name), "x-session-id": "a/b c" };
    expect((await post(`${routers[0]!.url}/v1/chat/completions`, chat(), headers)).status).toBe(200);
  }
  const states = async (router: RunningRouter) =>
    Object.fromEntries((await programsAt(router)).map(({ tenant, state }) => [tenant, state]));
  await waitFor(async () => (await programsAt(routers[1]!)).length === 2, { what: "the programs at the other router" });
  const path = `${routers[1]!.url}/v1/sessions/${encodeURIComponent("a/b c")}`;
  expect((await call(path, { method: "DELETE" })).status).toBe(401);
  const ended = await call(path, { method: "DELETE", headers: as("one") });
  expect([ended.status, ended.json]).toEqual([200, { id: "a/b c", object: "session", deleted: true }]);
  for (const router of routers) {
    await waitFor(async () => (await states(router)).one === "ended", { what: "the end at each router" });
    expect(await states(router)).toEqual({ one: "ended", two: "idle" });
  }
  const release = `${routers[0]!.url}/programs/release`;
  const released = await post(release, { program_id: "a/b c" }, as("two"));
  expect([released.status, released.json]).toEqual([200, { program_id: "a/b c", released: true }]);
  expect(await states(routers[0]!)).toEqual({ one: "ended", two: "ended" });
  for (const body of [{}, { program_id: 1 }, { program_id: "" }]) {
    expect((await post(release, body, as("two"))).status).toBe(400);
  }
  expect((await call(`${routers[0]!.url}/v1/sessions/`, { method: "DELETE", headers: as("two") })).status).toBe(404);
});

test("a child is listed with its parent, and begins at the parent's engine when they share a prompt's beginning", async () => {
  const sims = await quietSims(rig, 4);
  const [router] = await meshRouters(rig, 1, sims, { tokenizes: false, config: { policy: "least_work" } });
  const ask = async (session: string, messages: readonly Message[], agent?: string): Promise<unknown> => {
    const headers = { "x-claude-code-session-id": session, ...(agent && { "x-claude-code-agent-id": agent }) };
    const answer = await post(`${router!.url}/v1/chat/completions`, chat({ messages, max_tokens: 4 }), headers);
    expect(answer.status).toBe(200);
    return answer.headers["x-espalier-engine"];
  };
  const engines = new Set<unknown>();
  for (let number = 0; number < 12; number++) {
    const tools = { role: "system", content: `Project ${number}. ${"You are a careful agent. ".repeat(60)}` };
    const session = `session-${number}`;
    const engine = await ask(session, [tools, user("Find the bug.")]);
    engines.add(engine);
    for (const agent of ["a", "b"]) expect(await ask(session, [tools, user(`Task ${agent}.`)], agent)).toBe(engine);
  }
  expect(engines.size).toBeGreaterThan(1);
  const programs = await programsAt(router!);
  const roots = programs.filter(({ parent }) => parent === null);
  expect([programs.length, roots.length]).toEqual([36, 12]);
  for (const { name } of roots) expect(programs.filter(({ parent }) => parent === name)).toHaveLength(2);
});
