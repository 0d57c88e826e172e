import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { registerReplay } from "../src/commands/replay.ts";
import { type LocalFleetOptions, withLocalFleet } from "../src/processes/start-routers.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";
import { type SeenRequest, streamAnswer, temporaryFile, temporaryServer } from "./temporary.ts";

// Fleets are processes; here each is one server that answers, and what was asked of it is looked at.
vi.mock(import("../src/processes/start-routers.ts"), async (original) => ({
  ...(await original()),
  withLocalFleet: vi.fn(),
}));

const fleets: LocalFleetOptions[] = [];
const seen: SeenRequest[] = [];
let cachedTokens = 0;

beforeEach(() => {
  fleets.length = 0;
  seen.length = 0;
  cachedTokens = 0;
  vi.stubEnv("ESPALIER_REPLAY_API_KEY", undefined);
  vi.mocked(withLocalFleet)
    .mockClear()
    .mockImplementation(async (options, use) => {
      fleets.push(options);
      return use([await answering()]);
    });
});

afterEach(() => {
  vi.unstubAllEnvs();
});

const answering = (): Promise<string> =>
  temporaryServer((request) => {
    seen.push(request);
    streamAnswer(request.response, ["one ", "two"], cachedTokens);
  });

const traceFile = (count = 3): string =>
  temporaryFile(
    "trace.jsonl",
    Array.from(
      { length: count },
      (_, at) =>
        `${JSON.stringify({ timestamp: at, input_length: 1_024, output_length: 2, hash_ids: [at % 2, 10 + at] })}\n`,
    ).join(""),
  );

const replay = (...written: readonly string[]) => runCommand(registerReplay, "replay", ...written);

interface Report {
  readonly name: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly bounds?: { readonly infinite_cache: number };
}

async function report(...written: readonly string[]): Promise<Report> {
  const { stdout, error } = await replay("--trace", traceFile(), "--speed", "10000", "--json", ...written);
  expect(error).toBeUndefined();
  return JSON.parse(stdout) as Report;
}

test.each([
  { policy: "round_robin", events: "on,off", runs: [["round_robin", undefined]] },
  { policy: "cache_aware", events: "on", runs: [["cache_aware", true]] },
  { policy: "cache_aware", events: "off", runs: [["cache_aware", false]] },
  {
    policy: "cache_aware",
    events: "off, on",
    runs: [
      ["cache_aware", false],
      ["cache_aware", true],
    ],
  },
  {
    policy: "random, least_work,least_tokens",
    events: "on,off",
    runs: [
      ["random", undefined],
      ["least_work", true],
      ["least_work", false],
      ["least_tokens", undefined],
    ],
  },
  {
    policy: "prefix_hash,epp_weighted",
    events: "off",
    runs: [
      ["prefix_hash", false],
      ["epp_weighted", false],
    ],
  },
])("--policy $policy --kv-events $events: a fleet for each of $runs", async ({ policy, events, runs }) => {
  const { rows } = await report("--policy", policy, "--kv-events", events);
  expect(rows.map((row) => [row.policy, row.kv_events])).toEqual(runs);
  expect(fleets.map((fleet) => [fleet.policy, fleet.engines.kvEvents])).toEqual(
    runs.map(([name, on]) => [name, on === true]),
  );
  // A policy that does not look at caches has no such label at all.
  for (const [at, row] of rows.entries()) expect("kv_events" in row).toBe(runs[at]![1] !== undefined);
});

test("the fleet is what the flags say, and the rows carry it", async () => {
  const { rows } = await report(
    ...["--policy", "random", "--engines", "3", "--routers", "2", "--preset", "a10g-7b", "--blocks", "512"],
    ...["--model", "org/model", "--seed", "9"],
  );
  expect(fleets).toMatchObject([
    {
      policy: "random",
      routers: 2,
      engines: {
        count: 3,
        preset: "a10g-7b",
        blocks: 512,
        model: "org/model",
        speed: 10_000,
        port: 0,
        kvEvents: false,
      },
    },
  ]);
  expect(rows).toMatchObject([
    { policy: "random", routers: 2, engines: 3, sharing: "mesh", seed: 9, requests: 3, errors: 0 },
  ]);
  await report("--policy", "random");
  expect("blocks" in fleets[1]!.engines).toBe(false);
});

test.each([
  { routers: "2", sharing: "mesh,none", runs: ["mesh", "none"] },
  { routers: "4", sharing: "none", runs: ["none"] },
  { routers: "3", sharing: "none, mesh", runs: ["none", "mesh"] },
  { routers: "1", sharing: "mesh", runs: ["none"] },
  { routers: "1", sharing: "mesh,none", runs: ["none"] },
])("--routers $routers --sharing $sharing: a run for each of $runs", async ({ routers, sharing, runs }) => {
  const { rows } = await report(
    "--policy",
    "random,cache_aware",
    "--kv-events",
    "on",
    "--routers",
    routers,
    "--sharing",
    sharing,
  );
  const expected = runs.flatMap((combination) => [
    ["random", combination],
    ["cache_aware", combination],
  ]);
  expect(rows.map((row) => [row.policy, row.sharing])).toEqual(expected);
  expect(fleets.map((fleet) => [fleet.policy, fleet.sharing])).toEqual(expected);
  expect(new Set(fleets.map((fleet) => fleet.routers))).toEqual(new Set([Number(routers)]));
});

test("token ids go to a fleet of its own, chat text to endpoints that run already, unless it is said", async () => {
  const pathsOf = async (...written: readonly string[]) => {
    seen.length = 0;
    await report(...written);
    return new Set(seen.map(({ path }) => path));
  };
  const url = await answering();
  expect(await pathsOf("--policy", "random")).toEqual(new Set(["/v1/completions"]));
  const { prompt, model, stream } = JSON.parse(seen[0]!.body);
  expect([prompt.length, prompt.every(Number.isInteger), model, stream]).toEqual([1_024, true, "sim-model", true]);
  expect(await pathsOf("--policy", "random", "--prompts", "text")).toEqual(new Set(["/v1/chat/completions"]));
  expect(await pathsOf("--url", url)).toEqual(new Set(["/v1/chat/completions"]));
  expect(await pathsOf("--url", url, "--prompts", "tokens")).toEqual(new Set(["/v1/completions"]));
});

test("endpoints that run already: one row without labels, in real seconds, and no fleet", async () => {
  const { rows } = await report("--url", await answering(), "--url", await answering());
  expect(fleets).toEqual([]);
  expect(rows).toMatchObject([{ requests: 3, errors: 0, seed: 1 }]);
  for (const label of ["policy", "kv_events", "routers", "engines", "sharing"])
    expect(rows[0]).not.toHaveProperty(label);
});

test("a key is sent but not told, wherever it came from", async () => {
  const url = await answering();
  const { params } = await report("--url", url, "--api-key", "of-the-flag");
  expect(params).not.toHaveProperty("apiKey");
  vi.stubEnv("ESPALIER_REPLAY_API_KEY", "of-the-environment");
  const { stdout } = await replay("--trace", traceFile(1), "--url", url, "--json");
  expect(stdout).not.toContain("of-the-environment");
  expect(new Set(seen.map(({ headers }) => headers.authorization))).toEqual(
    new Set(["Bearer of-the-flag", "Bearer of-the-environment"]),
  );
});

test("people get a table with the state of the events behind the policy, and the bound below it", async () => {
  cachedTokens = 25;
  const written = ["--trace", traceFile(4), "--speed", "10000", "--policy", "random,cache_aware"];
  const { stdout, stderr, exitCode } = await replay(...written);
  const lines = stdout.trimEnd().split("\n");
  expect(lines.slice(1, 4).map((line) => line.split(/ {2,}/)[0])).toEqual([
    "random",
    "cache_aware + events",
    "cache_aware + guess",
  ]);
  expect(lines.slice(1, 4).map((line) => line.split(/ +/).at(-3))).toEqual(["25.0", "25.0", "25.0"]);
  // Of eight blocks, the first ones of two requests were seen before.
  expect(lines[4]).toBe("an infinite shared cache would hold 25.0 %");
  expect(exitCode).toBeUndefined();
  for (const title of ["random", "cache_aware + events", "cache_aware + guess"]) expect(stderr).toContain(`${title} █`);
});

test("a trace without block ids has no bound, as JSON and for people", async () => {
  const path = temporaryFile("trace.jsonl", '{"prompt":"hello","max_tokens":2}\n');
  const url = await answering();
  const programs = await replay("--trace", path, "--url", url, "--json");
  expect(JSON.parse(programs.stdout)).not.toHaveProperty("bounds");
  const people = await replay("--trace", path, "--url", url);
  expect(people.stdout).not.toContain("infinite");
});

test("exit code 1 when one run had no request that succeeded, though others had", async () => {
  const failing = (): Promise<string> => temporaryServer(({ response }) => response.writeHead(503).end("full"));
  vi.mocked(withLocalFleet).mockImplementation(async ({ policy }, use) =>
    use([policy === "random" ? await failing() : await answering()]),
  );
  const written = ["--trace", traceFile(), "--speed", "10000", "--policy", "round_robin,random,least_tokens", "--json"];
  const { stdout, stderr, exitCode } = await replay(...written);
  expect((JSON.parse(stdout) as Report).rows.map(({ errors }) => errors)).toEqual([0, 3, 0]);
  expect(stderr).toContain("3 of 3 requests failed:\n  3 x status 503: full");
  expect(exitCode).toBe(1);
});

test("some requests that fail are told and counted, and are no failure of the run", async () => {
  let count = 0;
  const url = await temporaryServer(({ response }) => {
    if (count++ === 0) response.writeHead(500).end("broken");
    else streamAnswer(response, ["x"]);
  });
  const { stdout, stderr, exitCode } = await replay("--trace", traceFile(), "--closed", "1", "--url", url, "--json");
  expect((JSON.parse(stdout) as Report).rows).toMatchObject([{ requests: 3, errors: 1 }]);
  expect(stderr).toContain("1 of 3 requests failed:\n  1 x status 500: broken");
  expect(exitCode).toBeUndefined();
});

test("a fleet that does not come up is the error of the command; later policies are not begun", async () => {
  vi.mocked(withLocalFleet).mockRejectedValue(new Error("the router exited with code 1"));
  const { error, stdout } = await replay("--trace", traceFile(), "--policy", "random,round_robin");
  expect(error).toEqual(new Error("the router exited with code 1"));
  expect(stdout).toBe("");
  expect(withLocalFleet).toHaveBeenCalledTimes(1);
});

test("only the first requests, when it is said", async () => {
  const { rows } = await report("--policy", "random", "--requests", "2");
  expect(rows).toMatchObject([{ requests: 2 }]);
});

test("a mistake in any flag is told before the trace is read or a fleet begun", async () => {
  const { error } = await replay("--trace", "/nowhere", "--policy", "random,robin");
  expect(error).toMatchObject({ name: "UsageError", message: expect.stringContaining('"robin" is not one of') });
  expect(fleets).toEqual([]);
});

test.each([
  { written: [], says: "required option '--trace <file>'" },
  { written: ["--trace", "x", "--format", "yaml"], says: "Allowed choices are" },
  { written: ["--trace", "x", "--prompts", "words"], says: "Allowed choices are text, tokens" },
  { written: ["--trace", "x", "--preset", "abacus"], says: "Allowed choices are" },
])("$written is refused: $says", async ({ written, says }) => {
  const { error, stderr } = await replay(...written);
  expect(isUsageRefusal(error)).toBe(true);
  expect(stderr).toContain(says);
});
