import type { ChildProcess } from "node:child_process";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { beforeEach, expect, test, vi } from "vitest";
import { registerDemo } from "../src/commands/demo.ts";
import type { EnvoyConfig } from "../src/envoy/envoy-config.ts";
import { installEnvoy } from "../src/envoy/install-envoy.ts";
import { type EnvoyListening, startEnvoy } from "../src/envoy/start-envoy.ts";
import { startLocalEngines, startLocalRouter } from "../src/processes/local-fleet.ts";
import { type Child, untilReady } from "../src/processes/start-child.ts";
import { isUsageRefusal, runCommand } from "./run-command.ts";
import { streamAnswer, temporaryServer } from "./temporary.ts";

// What the demo starts are processes; here each is noted, and a server answers in their place.
vi.mock(import("../src/processes/local-fleet.ts"), async (original) => ({
  ...(await original()),
  startLocalEngines: vi.fn(),
  startLocalRouter: vi.fn(),
}));
vi.mock(import("../src/processes/start-child.ts"), () => ({ untilReady: vi.fn() }));
vi.mock(import("../src/envoy/install-envoy.ts"), async (original) => ({
  ...(await original()),
  installEnvoy: vi.fn(),
}));
vi.mock(import("../src/envoy/start-envoy.ts"), () => ({ startEnvoy: vi.fn() }));

/** `+NAME` for what was started and `-NAME` for what was stopped, in order. */
let events: string[] = [];
/** Makes the process of this name end by itself. */
let die: (name: string) => void = () => {};
let failing: string | undefined;
let routerUrl = "http://127.0.0.1:8080";
let envoyUrl = "http://127.0.0.1:10000";

function child<Listening>(name: string, listening: Listening): Child<Listening> {
  if (name === failing) throw new Error(`${name} exited with code 1`);
  events.push(`+${name}`);
  const exited = new Promise<number | null>((resolve) => {
    const dieOthers = die;
    die = (who) => (who === name ? resolve(3) : dieOthers(who));
  });
  return {
    listening,
    process: {} as ChildProcess,
    exited,
    stop: async () => {
      events.push(`-${name}`);
    },
  };
}

beforeEach(() => {
  events = [];
  die = () => {};
  failing = undefined;
  routerUrl = "http://127.0.0.1:8080";
  envoyUrl = "http://127.0.0.1:10000";
  const engines = [1, 2].map((at) => ({ id: `engine-${at}`, url: `http://127.0.0.1:908${at}` }));
  let routers = 0;
  vi.mocked(startLocalEngines)
    .mockClear()
    .mockImplementation(async () => child("engines", { engines }));
  vi.mocked(startLocalRouter)
    .mockClear()
    .mockImplementation(async () =>
      child(`router ${++routers}`, {
        url: routerUrl,
        adminUrl: "http://127.0.0.1:9090",
        meshAddress: `127.0.0.1:${7_000 + routers}`,
        picker: { address: `127.0.0.1:${6_000 + routers}`, healthAddress: `127.0.0.1:${6_100 + routers}` },
      }),
    );
  vi.mocked(installEnvoy).mockReset().mockResolvedValue("/cache/envoy");
  vi.mocked(startEnvoy)
    .mockReset()
    .mockImplementation(async () => ({
      ...child<EnvoyListening>("envoy", { url: envoyUrl, adminUrl: "http://127.0.0.1:9901" }),
      log: () => "",
    }));
  vi.mocked(untilReady)
    .mockReset()
    .mockResolvedValue({ usableEngines: 2, models: ["of-the-engine", "another"] });
});

const demo = (...written: readonly string[]) => runCommand(registerDemo, "demo", ...written);

test("engines, then routers, then how to use them; all are stopped, the last first", async () => {
  const { stdout, stderr, exitCode, error } = await demo("--duration", "1ms", "--routers", "2");
  expect([error, exitCode]).toEqual([undefined, undefined]);
  expect(events).toEqual(["+engines", "+router 1", "+router 2", "-router 2", "-router 1", "-engines"]);
  expect(stdout).toContain("4 simulated engines (h100-32b-tp2), policy predicted_latency");
  expect(stdout).toContain('"model": "sim-model"');
  expect(stdout).toContain("http://127.0.0.1:9081 http://127.0.0.1:9082");
  expect(stderr).toMatch(/up in \d+\.\d s/);
});

test.each([
  { written: [], router: [8_080, 9_090], engines: 9_080 },
  { written: ["--port", "7000", "--admin-port", "6000"], router: [7_000, 6_000], engines: 8_000 },
  { written: ["--port", "0"], router: [0, 9_090], engines: 0 },
  { written: ["--admin-port", "0"], router: [8_080, 0], engines: 9_080 },
])("ports with $written: routers count up from $router, or take free ones", async ({ written, router, engines }) => {
  await demo("--duration", "1ms", "--routers", "3", ...written);
  const expected = [0, 1, 2].map((at) => router.map((port) => (port === 0 ? 0 : port + at)));
  const asked = vi.mocked(startLocalRouter).mock.calls.map(([{ port, adminPort }]) => [port, adminPort]);
  expect(asked).toEqual(expected);
  expect(startLocalEngines).toHaveBeenCalledWith(expect.objectContaining({ port: engines }));
});

test("simulated engines publish events and share the tokenizer with the routers, which wait for all of them", async () => {
  const engines = ["--engines", "3", "--preset", "a10g-7b", "--model", "mine"];
  await demo("--duration", "1ms", "--routers", "1", "--policy", "random", ...engines);
  const tokenizer = shippedModelFolder();
  expect(startLocalEngines).toHaveBeenCalledWith({
    ...{ count: 3, preset: "a10g-7b", model: "mine", speed: 1, port: 9_080, kvEvents: true, tokenizer },
  });
  const engineUrls = ["http://127.0.0.1:9081", "http://127.0.0.1:9082"];
  const router = { engineUrls, policy: "random", tokenizer, arguments: ["--demo"], port: 8_080, adminPort: 9_090 };
  expect(startLocalRouter).toHaveBeenCalledWith(router);
  expect(vi.mocked(untilReady).mock.calls.map(([, count]) => count)).toEqual([2]);
});

test("three routers by default, each led to those before it, unless they are to share nothing", async () => {
  await demo("--duration", "1ms");
  const meshes = () => vi.mocked(startLocalRouter).mock.calls.map(([{ mesh }]) => mesh);
  expect(meshes()).toEqual([
    { routerId: "router-1", seeds: [] },
    { routerId: "router-2", seeds: ["127.0.0.1:7001"] },
    { routerId: "router-3", seeds: ["127.0.0.1:7001", "127.0.0.1:7002"] },
  ]);
  vi.mocked(startLocalRouter).mockClear();
  const { stdout } = await demo("--duration", "1ms", "--sharing", "none");
  expect(meshes()).toEqual([undefined, undefined, undefined]);
  expect(stdout).toContain("routers share nothing");
});

test("engines of one's own: none are started, no tokenizer is given, and what they serve is named", async () => {
  const written = ["--engine", "http://10.0.0.1:8000", "--engine", "http://10.0.0.2:8000"];
  const { stdout } = await demo("--duration", "1ms", "--routers", "1", ...written);
  expect(events).toEqual(["+router 1", "-router 1"]);
  const [[options]] = vi.mocked(startLocalRouter).mock.calls as [Parameters<typeof startLocalRouter>];
  expect(options).toEqual({
    engineUrls: ["http://10.0.0.1:8000", "http://10.0.0.2:8000"],
    policy: "predicted_latency",
    arguments: ["--demo"],
    port: 8_080,
    adminPort: 9_090,
  });
  expect(stdout).toContain('"model": "of-the-engine"');
  expect(stdout).toContain(
    "engines   http://10.0.0.1:8000 http://10.0.0.2:8000\n          engines, policy predicted_latency",
  );
});

test("engines of one's own that are not up yet: said, and gone on without", async () => {
  vi.mocked(untilReady).mockRejectedValue(new Error("the router can use 0 of 1 engines"));
  const { stdout, stderr, exitCode } = await demo("--duration", "1ms", "--engine", "http://10.0.0.1:8000");
  expect(stderr).toContain("the router can use 0 of 1 engines; going on without");
  expect(stdout).toContain('"model": "your-model"');
  expect(exitCode).toBeUndefined();
});

test("a model that is named is not asked for", async () => {
  const { stdout } = await demo("--duration", "1ms", "--engine", "http://10.0.0.1:8000", "--model", "mine");
  expect(stdout).toContain('"model": "mine"');
  expect(untilReady).not.toHaveBeenCalled();
});

test.each([
  { name: "engines", stopped: [] },
  { name: "router 1", stopped: ["-engines"] },
  { name: "router 2", stopped: ["-router 1", "-engines"] },
])(
  "$name that cannot be started: what was started is stopped, and the error is the command's",
  async ({ name, stopped }) => {
    failing = name;
    const { error, stdout } = await demo("--routers", "2");
    expect(error).toEqual(new Error(`${name} exited with code 1`));
    expect(events.filter((event) => event.startsWith("-"))).toEqual(stopped);
    expect(stdout).toBe("");
  },
);

test.each(["engines", "router 1"])(
  "%s that end by themselves take the demo with them, with exit code 1",
  async (name) => {
    const running = demo("--duration", "1h", "--routers", "1");
    await waitFor(() => events.includes("+router 1"), { what: "start" });
    die(name);
    const { stderr, exitCode, error } = await running;
    expect([exitCode, error]).toEqual([1, undefined]);
    expect(stderr).toContain("a demo process exited; stopping the others");
    expect(events.slice(2)).toEqual(["-router 1", "-engines"]);
  },
);

test("a load is sent to the routers for its time, and ends with a table", async () => {
  let sent = 0;
  routerUrl = await temporaryServer(({ response }) => {
    sent++;
    streamAnswer(response, ["a", "b"]);
  });
  const { stdout, stderr, error } = await demo("--duration", "1500ms", "--load", "40");
  expect(error).toBeUndefined();
  expect(sent).toBeGreaterThan(0);
  expect(stderr).toMatch(/load [█░]{24} \d+\/60 {2}\d+ s {2}0 errors/);
  const [header, row] = stdout.trimEnd().split("\n").slice(-2);
  expect(header).toMatch(/^policy +routers +sharing +engines +requests +errors /);
  expect(row).toMatch(/^predicted_latency +- +- +- +\d+ +0 /);
});

test.each([["--preset", "abacus"], ["--policy", "robin"], ["--sharing", "some"], ["--engines"], ["extra"]])(
  "%s %s is refused",
  async (...written) => {
    const { error } = await demo(...written);
    expect(isUsageRefusal(error)).toBe(true);
    expect(events).toEqual([]);
  },
);

test("with --envoy routers are endpoint pickers, and Envoy before them is where requests are sent", async () => {
  let sent = 0;
  envoyUrl = await temporaryServer(({ response }) => {
    sent++;
    streamAnswer(response, ["a"]);
  });
  const { stdout, error } = await demo("--duration", "500ms", "--load", "40", "--envoy", "--envoy-port", "7777");
  expect(error).toBeUndefined();
  expect(sent).toBeGreaterThan(0);
  const [router1, router2, router3] = [1, 2, 3].map((at) => `router ${at}`);
  expect(events.slice(0, 5)).toEqual(["+engines", `+${router1}`, `+${router2}`, `+${router3}`, "+envoy"]);
  expect(events.slice(5)).toEqual(["-envoy", `-${router3}`, `-${router2}`, `-${router1}`, "-engines"]);
  for (const [options] of vi.mocked(startLocalRouter).mock.calls) expect(options.isPicker).toBe(true);
  const [[{ program, config }]] = vi.mocked(startEnvoy).mock.calls as [Parameters<typeof startEnvoy>];
  expect(program).toBe("/cache/envoy");
  expect(addressesIn(config)).toEqual([7_777, 6_001, 6_101, 6_002, 6_102, 6_003, 6_103, 9_081, 9_082]);
  expect(stdout).toMatch(/^envoy +http:\/\/127\.0\.0\.1:\d+ +admin http:\/\/127\.0\.0\.1:9901$/m);
  expect(stdout).toContain(`curl -N ${envoyUrl}/v1/chat/completions`);
});

/** All ports but the administrator's, in order. */
function addressesIn({ static_resources: resources }: EnvoyConfig): readonly number[] {
  return [...JSON.stringify(resources).matchAll(/"port_value":(\d+)/g)].map(([, port]) => Number(port));
}

test("an Envoy that is named is not installed; what stops its installation or its start stops the demo", async () => {
  await demo("--duration", "1ms", "--envoy", "--envoy-bin", "/usr/bin/envoy");
  expect(installEnvoy).not.toHaveBeenCalled();
  expect(startEnvoy).toHaveBeenCalledWith(expect.objectContaining({ program: "/usr/bin/envoy" }));

  events = [];
  vi.mocked(installEnvoy).mockRejectedValueOnce(new Error("there is no python3"));
  expect((await demo("--envoy", "--envoy-cache", "/cache")).error).toEqual(new Error("there is no python3"));
  expect(installEnvoy).toHaveBeenCalledWith(expect.objectContaining({ cacheFolder: "/cache" }));
  expect(events).toEqual([]);

  vi.mocked(startEnvoy).mockRejectedValueOnce(new Error("Envoy ended"));
  expect((await demo("--envoy", "--routers", "1")).error).toEqual(new Error("Envoy ended"));
  expect(events).toEqual(["+engines", "+router 4", "-router 4", "-engines"]);
});

test("an Envoy that ends by itself takes the demo with it", async () => {
  const running = demo("--duration", "1h", "--routers", "1", "--envoy");
  await waitFor(() => events.includes("+envoy"), { what: "start" });
  die("envoy");
  const { stderr, exitCode } = await running;
  expect(exitCode).toBe(1);
  expect(stderr).toContain("a demo process exited; stopping the others");
});
