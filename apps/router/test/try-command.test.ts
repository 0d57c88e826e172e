import { beforeEach, expect, test, vi } from "vitest";
import { registerTry, type TryReport } from "../src/commands/try.ts";
import { type LocalFleetOptions, withLocalFleet } from "../src/processes/start-routers.ts";
import { runCommand } from "./run-command.ts";
import { type SeenRequest, streamAnswer, temporaryServer } from "./temporary.ts";

// The fleet that is started where none runs is of processes; here it is noted.
vi.mock(import("../src/processes/start-routers.ts"), async (original) => ({
  ...(await original()),
  withLocalFleet: vi.fn(),
}));
vi.mock(import("../src/cli/admin-client.ts"), async (original) => {
  const { askAdmin, ...others } = await original();
  // Whatever runs on this machine, nothing answers at the usual address.
  const absent = "http://127.0.0.1:1";
  return {
    ...others,
    askAdmin: (options, ...rest) =>
      askAdmin(options.admin.endsWith(":9090") ? { ...options, admin: absent } : options, ...rest),
  };
});

const fleets: LocalFleetOptions[] = [];
const seen: SeenRequest[] = [];
beforeEach(() => {
  fleets.length = 0;
  seen.length = 0;
});

/** A router whose answers say that these prompt tokens were cached. */
const routerWith = (cachedTokens: number): Promise<string> =>
  temporaryServer((request) => {
    seen.push(request);
    streamAnswer(request.response, ["An", " answer"], cachedTokens);
  });

const adminSaying = (status: object): Promise<string> =>
  temporaryServer(({ response }) => response.end(JSON.stringify({ models: ["tiny"], peers: [], ...status })));

const bodies = () =>
  seen.map(({ body }) => JSON.parse(body) as { model: string; messages: { role: string; content: string }[] });

test("routers that are named need no admin listener: they tell their models to clients", async () => {
  const router = await temporaryServer((request) => {
    if (request.path === "/v1/models") request.response.end('{"data": [{"id": "large"}, {"id": "small"}]}');
    else streamAnswer(request.response, ["An", " answer"], 0);
    seen.push(request);
  });
  const { error } = await runCommand(registerTry, "try", "--url", router, "--api-key", "of-a-client");
  expect(error).toBeUndefined();
  expect(seen.map(({ path }) => path)).toEqual(["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]);
  expect(JSON.parse(seen[1]!.body)).toMatchObject({ model: "large" });
  const none = await temporaryServer(({ response }) => response.end('{"data": []}'));
  const { error: unserved } = await runCommand(registerTry, "try", "--url", none);
  expect(String(unserved)).toMatch(/serves no model; check that an engine is up/);
});

test("two turns go to two routers of the fleet, a line each, then the point", async () => {
  const [first, second] = [await routerWith(0), await routerWith(96)];
  const peer = await adminSaying({ url: second });
  const gone = "http://127.0.0.1:1";
  const admin = await adminSaying({ url: first, peers: [{ adminUrl: gone }, { adminUrl: peer }] });
  const { stdout, stderr, error } = await runCommand(registerTry, "try", "--admin", admin);
  expect([error, stderr]).toEqual([undefined, ""]);
  const [header, one, two, point] = stdout.trimEnd().split("\n");
  expect(header).toMatch(/^turn +router +engine +cached tokens +first token \(ms\)$/);
  expect(one).toMatch(new RegExp(`^ +1 +${first} +engine-of-the-test +0 of 100 +\\d+$`));
  expect(two).toMatch(new RegExp(`^ +2 +${second} +engine-of-the-test +96 of 100 +\\d+$`));
  expect(point).toBe("turn 2 came in at another router and met the same engine: 96 of 100 tokens were cached");
  const [before, after] = bodies();
  expect(before!.model).toBe("tiny");
  expect(before!.messages[0]!.content.length).toBeGreaterThan(4_000);
  expect(after!.messages.slice(0, 2)).toEqual(before!.messages);
  expect(after!.messages.map(({ role }) => role)).toEqual(["system", "user", "assistant", "user"]);
  expect(after!.messages[2]!.content).toBe("An answer");
});

test("each run has a prompt of its own, which no cache holds from the run before", async () => {
  const router = await routerWith(0);
  const given = ["try", "--url", router, "--model", "tiny", "--json"];
  for (let run = 0; run < 2; run++) await runCommand(registerTry, ...given);
  const [first, , second] = bodies();
  expect(first!.messages[0]!.content.slice(0, 40)).not.toBe(second!.messages[0]!.content.slice(0, 40));
});

test("as JSON, with routers and a model that are named, and a client's key", async () => {
  const [first, second] = [await routerWith(0), await routerWith(64)];
  const named = ["--url", first, "--url", second, "--model", "large", "--api-key", "of-a-client"];
  const { stdout } = await runCommand(registerTry, "try", ...named, "--json");
  const report = JSON.parse(stdout) as TryReport;
  expect(report).toMatchObject({
    routers: 2,
    turns: [
      { turn: 1, router: first, engine: "engine-of-the-test", promptTokens: 100, cachedTokens: 0, isReported: true },
      { turn: 2, router: second, cachedTokens: 64 },
    ],
    says: expect.stringContaining("64 of 100 tokens"),
  });
  expect(bodies().map(({ model }) => model)).toEqual(["large", "large"]);
  expect(seen.map(({ headers }) => headers.authorization)).toEqual(["Bearer of-a-client", "Bearer of-a-client"]);
});

test("one router gets both turns, and what was not cached is said", async () => {
  const admin = await adminSaying({ url: await routerWith(0) });
  const { stdout } = await runCommand(registerTry, "try", "--admin", admin);
  expect(stdout).toContain(
    "turn 2 came in at the only router and met the same engine, but 0 of 100 tokens were cached",
  );
});

test("an engine that reports no cached tokens, and another engine: said as what they are", async () => {
  let asked = 0;
  const router = await temporaryServer(({ response }) => {
    const headers = { "x-espalier-engine": `engine-${asked++}`, "x-espalier-cache-hit-tokens": "48" };
    response.writeHead(200, { "content-type": "text/event-stream", ...headers });
    response.write('data: {"choices":[{"delta":{"content":"a"}}]}\n\n');
    response.end('data: {"choices":[],"usage":{"prompt_tokens":64,"completion_tokens":1}}\n\ndata: [DONE]\n\n');
  });
  const { stdout } = await runCommand(registerTry, "try", "--url", router, "--model", "tiny");
  expect(stdout).toContain(
    "went to another engine, where 48 of 64 tokens were expected to be cached: `espalier explain`",
  );
});

test("where no router answers at the usual address, a fleet of two routers is started for it", async () => {
  vi.mocked(withLocalFleet).mockImplementation(async (options, use) => {
    fleets.push(options);
    return use([await routerWith(0), await routerWith(80)]);
  });
  const { stdout, stderr } = await runCommand(registerTry, "try");
  expect(stderr).toContain(
    "no router answers at http://127.0.0.1:9090; starting two routers and four simulated engines",
  );
  expect(fleets).toMatchObject([{ routers: 2, sharing: "mesh", engines: { count: 4, port: 0, kvEvents: true } }]);
  expect(stdout).toContain("met the same engine: 80 of 100 tokens were cached");
});

test.each([
  ["a router that is named and does not answer", ["--admin", "http://127.0.0.1:1"], /No router answers at .*--admin/],
  [
    "an address of clients where nothing listens",
    ["--url", "http://127.0.0.1:1", "--model", "m"],
    /No router answers .*--url/,
  ],
  ["an address that is none", ["--url", "127.0.0.1", "--model", "m"], /--url must be a URL such as/],
])("%s: an error that says what to do, and no fleet is started", async (_, flags, says) => {
  vi.mocked(withLocalFleet).mockClear();
  const { error } = await runCommand(registerTry, "try", ...flags);
  expect(String(error)).toMatch(says);
  expect(withLocalFleet).not.toHaveBeenCalled();
});

test.each([
  // Advice once followed the router's sentence as its continuation: "no API key.; pass --api-key".
  [401, "invalid_api_key", /answered: .*None is up\. Pass --api-key\.$/],
  [404, "model_not_found", /answered: .*None is up\. Pass --model\.$/],
  [503, "no_engine_available", /answered: .*None is up\.$/],
])("an answer of %s is an error of its code, with the next step", async (status, code, says) => {
  const router = await temporaryServer(({ response }) =>
    response.writeHead(status).end(JSON.stringify({ error: { code, message: "None is up." } })),
  );
  const { error } = await runCommand(registerTry, "try", "--url", router, "--model", "m");
  expect(error).toMatchObject({ code, message: expect.stringMatching(says) });
});

test("routers that know no model: said, unless one is named", async () => {
  const admin = await adminSaying({ url: await routerWith(0), models: [] });
  expect(String((await runCommand(registerTry, "try", "--admin", admin)).error)).toContain("knows no model");
  expect((await runCommand(registerTry, "try", "--admin", admin, "--model", "m")).error).toBeUndefined();
});
