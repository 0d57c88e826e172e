import { expect, test } from "vitest";
import { registerFeeds } from "../src/commands/feeds.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";
import { temporaryAdmin, temporaryServer } from "./temporary.ts";

const feed = {
  target: "engine-a/0",
  state: "live",
  reason: "complete",
  role: null,
  owner: null,
  endpoint: "tcp://10.0.0.1:5557",
  lastSequence: 4_711,
  blocks: { gpu: 80_000, cpu: 9_000, disk: 1_000, external: 0 },
  floatingBlocks: 12,
  messages: 4_712,
  gaps: 0,
  restarts: 1,
  lagMs: 3,
};

/** A feed before anything was known of it. */
const unknownFeed = {
  ...feed,
  target: "engine-b/1",
  state: "off",
  reason: "no-endpoint",
  endpoint: null,
  lastSequence: null,
  lagMs: null,
  messages: 0,
};

const routerWith = (feeds: readonly object[]) => temporaryAdmin({ feeds });

test("a line for each feed, with a dash for what is not known", async () => {
  const { admin, seen } = await routerWith([feed, unknownFeed]);
  const { stdout, stderr, exitCode, error } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  expect([error, exitCode, stderr]).toEqual([undefined, undefined, ""]);
  expect(seen.map(({ method, path }) => `${method} ${path}`)).toEqual(["GET /admin/feeds"]);
  const [header, first, second, ...rest] = stdout
    .split("\n")
    .map((line) => line.split(/ {2,}/).map((cell) => cell.trim()));
  expect(rest).toEqual([[""]]);
  expect(header).toEqual([
    ...["target", "state", "why", "read by", "role here", "endpoint", "messages", "sequence", "blocks", "floating"],
    ...["gaps", "restarts", "lag (ms)"],
  ]);
  const counted = ["90000", "12", "0", "1"];
  expect(first).toEqual([
    ...["engine-a/0", "live", "complete", "-", "-", "tcp://10.0.0.1:5557", "4712", "4711", ...counted, "3"],
  ]);
  expect(second).toEqual(["engine-b/1", "off", "no-endpoint", "-", "-", "-", "0", "-", ...counted, "-"]);
});

// Symptom: 0 after restarts that the dashboard listed. Mechanism: who reads the feed begins anew when the engine is back.
test("restarts are those of the engine, also if the feed met none", async () => {
  const { admin } = await routerWith([{ ...feed, restarts: 0, engineRestarts: 2 }]);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  expect(stdout.split("\n")[1]?.split(/ {2,}/).at(-2)).toBe("2");
});

// The router tells blocks by tier; the table used to take that for a number and showed a dash.
test("the blocks of all tiers are added up, also when there are none", async () => {
  const blocksOf = async (blocks: object): Promise<string | undefined> => {
    const { admin } = await routerWith([{ ...feed, blocks }]);
    const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
    return stdout.split("\n")[1]!.split(/ {2,}/)[8];
  };
  expect(await blocksOf({ gpu: 1, cpu: 20, disk: 300, external: 4_000 })).toBe("4321");
  expect(await blocksOf({ gpu: 0, cpu: 0, disk: 0, external: 0 })).toBe("0");
  expect(await blocksOf({})).toBe("0");
});

test("a first sequence of 0, and a lag of 0, are numbers and no dashes", async () => {
  const { admin } = await routerWith([{ ...feed, lastSequence: 0, lagMs: 0, messages: 1 }]);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  const cells = stdout.split("\n")[1]!.split(/ {2,}/);
  expect([cells[7], cells.at(-1)]).toEqual(["0", "0"]);
});

test.each([
  { role: "owner", owner: "router-1", cells: ["this router", "owner"] },
  { role: "backup", owner: "router-2", cells: ["router-2", "backup"] },
  { role: "none", owner: "router-2", cells: ["router-2", "none"] },
  { role: "none", owner: null, cells: ["-", "none"] },
])("in a mesh, who reads a feed and as what: $cells", async ({ role, owner, cells }) => {
  const { admin } = await routerWith([{ ...feed, role, owner }]);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  expect(stdout.split("\n")[1]!.split(/ {2,}/).slice(3, 5)).toEqual(cells);
});

test("of a feed that another router reads, what only that one knows is a dash", async () => {
  const { target, state, reason, blocks } = feed;
  const reported = { target, state, reason, blocks, floatingBlocks: 0, role: "none", owner: "router-2" };
  const { admin } = await routerWith([reported]);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  const cells = stdout.trimEnd().split("\n")[1]!.split(/ {2,}/);
  expect(cells.map((cell) => cell.trim())).toEqual([
    ...["engine-a/0", "live", "complete", "router-2", "none", "-", "-", "-", "90000", "0", "-", "-", "-"],
  ]);
});

test("where an engine has several ranks, each feed's own is shown as the engine numbers it", async () => {
  const { admin } = await routerWith([{ ...feed, rank: 4 }, unknownFeed]);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin);
  const cells = stdout.split("\n").map((line) =>
    line
      .split(/ {2,}/)
      .slice(0, 3)
      .map((cell) => cell.trim()),
  );
  expect(cells.slice(0, 3)).toEqual([
    ["target", "rank", "state"],
    ["engine-a/0", "4", "live"],
    ["engine-b/1", "-", "off"],
  ]);
});

test("no feeds: a sentence for people, an empty list for programs", async () => {
  const { admin } = await routerWith([]);
  const people = await runCommand(registerFeeds, "feeds", "--admin", admin);
  expect(people.stdout).toBe("no engine or pool publishes KV events\n");
  const programs = await runCommand(registerFeeds, "feeds", "--admin", admin, "--json");
  expect(JSON.parse(programs.stdout)).toEqual([]);
});

test("as JSON a feed has everything that the router told, also what the table leaves out", async () => {
  const reported = [{ ...feed, latestGaps: [{ from: 3, to: 9, reason: "lost" }], topic: "kv-events" }, unknownFeed];
  const { admin } = await routerWith(reported);
  const { stdout } = await runCommand(registerFeeds, "feeds", "--admin", admin, "--json");
  expect(JSON.parse(stdout)).toEqual(reported);
});

test("the key is sent", async () => {
  const { admin, seen } = await routerWith([feed]);
  await runCommand(registerFeeds, "feeds", "--admin", admin, "--key", "secret");
  expect(seen[0]!.headers.authorization).toBe("Bearer secret");
});

test("a router that refuses: its error, and nothing on standard output", async () => {
  const body = '{"error":{"message":"This key may not.","code":"invalid_api_key"}}';
  const admin = await temporaryServer(({ response }) => response.writeHead(401).end(body));
  const { stdout, error } = await runCommand(registerFeeds, "feeds", "--admin", admin, "--json");
  expect(stdout).toBe("");
  expect(error).toMatchObject({
    code: "invalid_api_key",
    message: `The router at ${admin} answered 401: This key may not.`,
  });
});

test.each([
  { written: ["feeds", "--json=yes"] },
  { written: ["feeds", "engine-a"] },
  { written: ["feeds", "--limit", "3"] },
])("called as $written: refused before anything is asked", async ({ written }) => {
  const { error, stdout } = await runCommand(registerFeeds, ...written);
  expect(isUsageRefusal(error)).toBe(true);
  expect(stdout).toBe("");
});
