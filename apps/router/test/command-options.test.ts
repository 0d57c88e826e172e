import { expect, test } from "vitest";
import { type ReplayFlags, readReplayOptions } from "../src/commands/replay.ts";
import { type DemoFlags, readDemoOptions } from "../src/demo/demo-options.ts";

const replayFlags: ReplayFlags = {
  trace: "trace.jsonl",
  speed: "1",
  seed: "1",
  model: "sim-model",
  policy: "least_connections",
  kvEvents: "on,off",
  engines: "4",
  routers: "1",
  sharing: "mesh",
  preset: "h100-32b-tp2",
};

const demoFlags: DemoFlags = {
  engines: "4",
  routers: "1",
  sharing: "mesh",
  policy: "least_connections",
  preset: "h100-32b-tp2",
  port: "8080",
  envoyPort: "10000",
  adminPort: "9090",
  load: "0",
};

test("the flags of a replay as numbers, lists and URLs", () => {
  const flags = {
    ...replayFlags,
    requests: "100",
    speed: "20",
    closed: "64",
    url: ["http://127.0.0.1:8000/", "http://127.0.0.1:8001"],
    policy: "round_robin, consistent_hashing",
    blocks: "2048",
  };
  expect(readReplayOptions(flags)).toMatchObject({
    limit: 100,
    speed: 20,
    users: 64,
    urls: ["http://127.0.0.1:8000", "http://127.0.0.1:8001"],
    policies: ["round_robin", "consistent_hashing"],
    blocks: 2_048,
    engines: 4,
    routers: 1,
    sharing: ["mesh"],
    seed: 1,
  });
});

test("prompts are tokens for engines of its own and text for those that run already, unless it is said", () => {
  expect(readReplayOptions(replayFlags)).toMatchObject({ prompts: "tokens", kvEvents: [true, false] });
  const url = ["http://127.0.0.1:8000"];
  expect(readReplayOptions({ ...replayFlags, url }).prompts).toBe("text");
  expect(readReplayOptions({ ...replayFlags, url, prompts: "tokens", kvEvents: "off" })).toMatchObject({
    prompts: "tokens",
    kvEvents: [false],
  });
});

test("routers may be compared with and without sharing", () => {
  expect(readReplayOptions({ ...replayFlags, sharing: "mesh, none" }).sharing).toEqual(["mesh", "none"]);
});

test("sessions begin at a rate, or when others have ended", () => {
  expect(readReplayOptions({ ...replayFlags, starts: "0.5" })).toMatchObject({ starts: 0.5, users: undefined });
  expect(readReplayOptions(replayFlags).starts).toBeUndefined();
  expect(() => readReplayOptions({ ...replayFlags, starts: "1", closed: "2" })).toThrow("--starts: does not go with");
  expect(() => readReplayOptions({ ...replayFlags, starts: "0" })).toThrow("--starts");
});

test("what is not given stays undefined", () => {
  const { limit, users, urls, blocks, apiKey, format } = readReplayOptions(replayFlags);
  expect([limit, users, urls, blocks, apiKey, format]).toEqual(Array(6).fill(undefined));
});

test.each<[Partial<ReplayFlags>, string]>([
  [{ requests: "0" }, "--requests must be a whole number from 1 to 1000000"],
  [{ requests: "1000001" }, "--requests"],
  [{ kvEvents: "on,maybe" }, '--kv-events: "maybe" is neither on nor off'],
  [{ speed: "0" }, "--speed must be a number from 0.001 to 10000"],
  [{ closed: "100001" }, "--closed must be a whole number from 1 to 100000"],
  [{ seed: "4294967296" }, "--seed must be a whole number from 0 to 4294967295"],
  [{ engines: "257" }, "--engines must be a whole number from 1 to 256"],
  [{ routers: "17" }, "--routers must be a whole number from 1 to 16"],
  [{ blocks: "10000001" }, "--blocks must be a whole number from 1 to 10000000"],
  [{ url: ["http://a", "b"] }, '--url must be a URL such as http://127.0.0.1:8000, without a path, not "b"'],
  [{ policy: "round_robin,robin" }, '--policy: "robin" is not one of'],
  [{ policy: "round_robin,,random" }, '--policy: "" is not one of'],
  [{ sharing: "redis" }, '--sharing: "redis" is not one of mesh, none'],
  [{ sharing: "mesh,none,all" }, '--sharing: "all" is not one of mesh, none'],
  [{ sharing: "" }, '--sharing: "" is not one of'],
])("replay with %j is refused", (flags, message) => {
  expect(() => readReplayOptions({ ...replayFlags, ...flags })).toThrow(message);
});

test("the flags of a demo", () => {
  expect(readDemoOptions({ ...demoFlags, load: "20", duration: "30s" })).toEqual({
    engineUrls: undefined,
    engines: 4,
    routers: 1,
    sharing: "mesh",
    policy: "least_connections",
    preset: "h100-32b-tp2",
    pulls: false,
    model: undefined,
    port: 8_080,
    adminPort: 9_090,
    enginePort: 9_080,
    requestsPerSecond: 20,
    durationMs: 30_000,
  });
});

test("engines that fetch from each other are those whose times are published, unless others are named", () => {
  const { preset: _, ...flags } = { ...demoFlags, kvPull: true };
  expect(readDemoOptions(flags)).toMatchObject({ pulls: true, preset: "h200-gpt-oss-120b" });
  expect(readDemoOptions({ ...flags, preset: "a10g-7b" })).toMatchObject({ pulls: true, preset: "a10g-7b" });
  expect(() => readDemoOptions({ ...flags, engine: ["http://10.0.0.1:8000"] })).toThrow("--kv-pull is for simulated");
});

test("port 0 takes free ports for the engines too", () => {
  expect(readDemoOptions({ ...demoFlags, port: "0" })).toMatchObject({ port: 0, enginePort: 0 });
});

test.each<[Partial<DemoFlags>, string]>([
  [{ load: "10001" }, "--load must be a number from 0 to 10000"],
  [{ duration: "30" }, "--duration must be a length of time"],
  [{ engines: "257" }, "--engines must be a whole number from 1 to 256"],
  [{ routers: "17" }, "--routers must be a whole number from 1 to 16"],
  [{ port: "65536" }, "--port must be a whole number from 0 to 65535"],
  [{ envoyPort: "10000", adminPort: "-1" }, "--admin-port must be a whole number from 0 to 65535"],
  [{ port: "64533" }, "--port leaves no ports for the engines"],
])("demo with %j is refused", (flags, message) => {
  expect(() => readDemoOptions({ ...demoFlags, ...flags })).toThrow(message);
});

test("the last ports of the engines may be the last there are", () => {
  expect(readDemoOptions({ ...demoFlags, port: "64532" }).enginePort).toBe(65_532);
});
