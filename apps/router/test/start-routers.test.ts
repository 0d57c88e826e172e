import type { ChildProcess } from "node:child_process";
import { beforeEach, expect, test, vi } from "vitest";
import { type LocalRouterOptions, startLocalRouter } from "../src/processes/local-fleet.ts";
import { type Child, startChild, untilReady } from "../src/processes/start-child.ts";
import { type StartRoutersOptions, startRouters } from "../src/processes/start-routers.ts";

// Routers are processes; here what each would be started with is noted.
vi.mock(import("../src/processes/start-child.ts"), () => ({ startChild: vi.fn(), untilReady: vi.fn() }));

/** What happened, in order. */
let events: string[] = [];
let failing: number | undefined;

beforeEach(() => {
  events = [];
  failing = undefined;
  let started = 0;
  vi.mocked(startChild)
    .mockReset()
    .mockImplementation(async (options) => {
      const number = ++started;
      if (number === failing) throw new Error(`router ${number} exited with code 1`);
      events.push(`start ${number}`);
      const isShared = options.arguments.includes("--mesh-port");
      const listening = {
        url: `http://router-${number}`,
        adminUrl: `http://admin-${number}`,
        meshAddress: isShared ? `mesh-${number}:7946` : null,
      };
      const child = { listening, process: {} as ChildProcess, exited: new Promise(() => {}), stop: async () => {} };
      return child as Child<never>;
    });
  vi.mocked(untilReady)
    .mockReset()
    .mockImplementation(async ({ url }, engines) => {
      events.push(`ready ${url.slice(-1)} with ${engines}`);
      return { usableEngines: engines, models: [] };
    });
});

const base: StartRoutersOptions = {
  count: 3,
  sharing: "mesh",
  optionsOf: (index) => ({ engineUrls: ["http://engine"], policy: "random", port: 8_000 + index, adminPort: 0 }),
  untilEngines: 5,
};

/** The values of a flag, by router. */
const valuesOf = (flag: string): readonly (readonly string[])[] =>
  vi
    .mocked(startChild)
    .mock.calls.map(([{ arguments: written }]) => written.filter((_, at) => written[at - 1] === flag));

test("each is led to all that were started before it, and has a name of its own", async () => {
  const children: Child<unknown>[] = [];
  const routers = await startRouters(base, children);
  expect(valuesOf("--mesh-seed")).toEqual([[], ["mesh-1:7946"], ["mesh-1:7946", "mesh-2:7946"]]);
  expect(valuesOf("--mesh-router-id")).toEqual([["router-1"], ["router-2"], ["router-3"]]);
  expect(valuesOf("--mesh-port")).toEqual([["0"], ["0"], ["0"]]);
  expect(routers.map(({ url }) => url)).toEqual(["http://router-1", "http://router-2", "http://router-3"]);
  expect(children).toHaveLength(3);
});

test("each can use its engines before the next is started", async () => {
  await startRouters(base, []);
  expect(events).toEqual([1, 2, 3].flatMap((at) => [`start ${at}`, `ready ${at} with 5`]));
});

test("without a number of engines nothing is waited for", async () => {
  await startRouters({ ...base, untilEngines: undefined }, []);
  expect(events).toEqual(["start 1", "start 2", "start 3"]);
});

test.each([
  { what: "that share nothing", change: { sharing: "none", count: 3 } },
  { what: "of which there is one", change: { sharing: "mesh", count: 1 } },
] as const)("routers $what know nothing of a mesh", async ({ change }) => {
  const routers = await startRouters({ ...base, ...change }, []);
  expect(valuesOf("--mesh-port").flat()).toEqual([]);
  expect(valuesOf("--mesh-seed").flat()).toEqual([]);
  expect(routers.map(({ meshAddress }) => meshAddress)).toEqual(Array(change.count).fill(null));
});

test("each has the options of its number", async () => {
  await startRouters(base, []);
  expect(valuesOf("--listen-port")).toEqual([["8000"], ["8001"], ["8002"]]);
  expect(valuesOf("--engine")).toEqual(Array(3).fill(["http://engine"]));
  expect(valuesOf("--policy")).toEqual(Array(3).fill(["random"]));
});

test("when one cannot be started, those before it are handed over to be stopped", async () => {
  failing = 3;
  const children: Child<unknown>[] = [];
  await expect(startRouters(base, children)).rejects.toThrow("router 3 exited with code 1");
  expect(children).toHaveLength(2);
});

test("when one does not get ready, it is handed over as well, and no more are started", async () => {
  vi.mocked(untilReady).mockRejectedValue(new Error("the router can use 0 of 5 engines"));
  const children: Child<unknown>[] = [];
  await expect(startRouters(base, children)).rejects.toThrow("0 of 5 engines");
  expect([children.length, events]).toEqual([1, ["start 1"]]);
});

test("waiting can be given up", async () => {
  const { signal } = new AbortController();
  await startRouters({ ...base, signal }, []);
  expect(vi.mocked(untilReady).mock.calls.map((call) => call[2])).toEqual([signal, signal, signal]);
});

test("a router by itself is started with no more than what it is given", async () => {
  const options: LocalRouterOptions = {
    engineUrls: ["http://a", "http://b"],
    port: 1,
    adminPort: 2,
    arguments: ["-x"],
  };
  await startLocalRouter(options);
  expect(vi.mocked(startChild).mock.calls[0]?.[0].arguments).toEqual([
    ...["serve", "--listen-port", "1", "--admin-port", "2", "--engine", "http://a", "--engine", "http://b", "-x"],
  ]);
});
