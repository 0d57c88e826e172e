import { describe, expect, test } from "vitest";
import { maxFleetEngines, maxFleetRouters, parseFleet } from "../../src/scenarios/fleet-file.ts";
import { traceScenario } from "../../src/scenarios/read-scenario.ts";
import { mooncakeStepMs, type TraceRequest } from "../../src/workload/index.ts";
import { recordRun } from "../clients/recorded-run.ts";

const path = "fleet.json";
const fleetOf = (value: unknown) => parseFleet(JSON.stringify(value), path);

describe("a fleet file", () => {
  test("names preset, engines, routers and what differs from the preset", () => {
    const parameters = { blockCount: 9_000, freeOrder: "by-age", prefixCaching: true, stepBaseMs: 3.5, blockSize: 16 };
    const fleet = { engines: 8, routers: 2, preset: "h100-70b-tp4", parameters };
    expect(fleetOf(fleet)).toEqual(fleet);
  });

  test("has one router and the preset's parameters when it does not say", () => {
    expect(fleetOf({ engines: 1, preset: "a10g-7b" })).toEqual({
      engines: 1,
      routers: 1,
      preset: "a10g-7b",
      parameters: {},
    });
  });

  const regions = [
    { name: "here", engines: 2, routers: 1 },
    { name: "there", engines: 4, routers: 2, parameters: { blockCount: 500 } },
  ];
  const delaysMs = [
    [0.5, 40],
    [40, 0.5],
  ];
  const topology = { regions, delaysMs, clientDelayMs: 10, clients: [{ atS: 0, shares: [3, 1] }] };

  test("has the engines and routers of its regions when it does not say", () => {
    const fleet = { preset: "a10g-7b", topology };
    expect(fleetOf(fleet)).toEqual({ ...fleet, engines: 6, routers: 3, parameters: {} });
    expect(fleetOf({ ...fleet, engines: 12, routers: 1 })).toMatchObject({ engines: 12, routers: 1 });
  });

  const good = { engines: 8, preset: "a10g-7b" };
  const withRegions = (changes: object) => ({ ...good, topology: { ...topology, ...changes } });
  test.each([
    [{ preset: "a10g-7b" }, "engines", "must be a whole number from 1 to 16384, is absent"],
    [{ ...good, engines: 0 }, "engines", "is 0"],
    [{ ...good, engines: 1.5 }, "engines", "is 1.5"],
    [{ ...good, engines: "8" }, "engines", 'is "8"'],
    [{ ...good, engines: maxFleetEngines + 1 }, "engines", "16385"],
    [{ ...good, routers: null }, "routers", "is null"],
    [{ ...good, routers: maxFleetRouters + 1 }, "routers", "from 1 to 1024"],
    [{ engines: 8 }, "preset", "is absent"],
    [{ engines: 8, preset: "h100-70b-tp2" }, "preset", "did you mean h100-70b-tp4?"],
    [{ engines: 8, preset: "toString" }, "preset", "must be one of a10g-7b"],
    [{ ...good, router: 2 }, "router", "is not known; did you mean routers?"],
    [{ ...good, parameters: [] }, "parameters", "must be an object, is []"],
    [{ ...good, parameters: { blockcount: 1 } }, "parameters.blockcount", "did you mean blockCount?"],
    [{ ...good, parameters: { blockCount: 0 } }, "parameters.blockCount", "must be a whole number from 1"],
    [{ ...good, parameters: { blockCount: null } }, "parameters.blockCount", "is null"],
    [{ ...good, parameters: { blockSize: 32 } }, "parameters.blockSize", "must be one of 16, is 32"],
    [{ ...good, parameters: { stepBaseMs: -1 } }, "parameters.stepBaseMs", "milliseconds from 0 up, is -1"],
    [{ ...good, parameters: { flavour: "trt" } }, "parameters.flavour", 'must be one of vllm, sglang, is "trt"'],
    [{ ...good, parameters: { freeOrder: 1 } }, "parameters.freeOrder", "uncached-first, by-age"],
    [{ ...good, parameters: { prefixCaching: "yes" } }, "parameters.prefixCaching", "must be one of true, false"],
    [{ ...good, topology: [] }, "topology", "must be an object, is []"],
    [withRegions({ delayMs: 1 }), "topology.delayMs", "is not known; did you mean delaysMs?"],
    [withRegions({ regions: [] }), "topology.regions", "must be 1 to 64 regions"],
    [withRegions({ regions: [regions[0], { ...regions[1], name: "here" }] }), "topology.regions[1].name", "its own"],
    [withRegions({ regions: [{ ...regions[0], engines: -1 }] }), "topology.regions[0].engines", "from 0 up"],
    [withRegions({ regions: [{ ...regions[0], routers: 0 }] }), "topology.regions", "must have routers"],
    [withRegions({ regions: [{ ...regions[0], parameters: 3 }] }), "topology.regions[0].parameters", "an object, is 3"],
    [withRegions({ delaysMs: [[1, 2]] }), "topology.delaysMs", "must have 2 rows"],
    [withRegions({ delaysMs: [[1, 2], [2]] }), "topology.delaysMs[1]", "must have 2 numbers"],
    [
      withRegions({
        delaysMs: [
          [1, 2],
          ["2", 1],
        ],
      }),
      "topology.delaysMs[1][0]",
      'must be a number, is "2"',
    ],
    [
      withRegions({
        delaysMs: [
          [1, 2],
          [3, 1],
        ],
      }),
      "topology.delaysMs[0][1]",
      "the same as delaysMs[1][0]",
    ],
    [
      withRegions({
        delaysMs: [
          [1, -2],
          [-2, 1],
        ],
      }),
      "topology.delaysMs[0][1]",
      "milliseconds from 0 up",
    ],
    [withRegions({ clientDelayMs: -1 }), "topology.clientDelayMs", "milliseconds from 0 up"],
    [withRegions({ clients: [] }), "topology.clients", "at one moment or more"],
    [withRegions({ clients: [{ atS: 0, shares: [1] }] }), "topology.clients[0].shares", "must be 2 numbers"],
    [withRegions({ clients: [{ atS: 0, shares: [0, 0] }] }), "topology.clients[0].shares", "not all 0"],
    [
      withRegions({
        clients: [
          { atS: 0, shares: [1, 1] },
          { atS: 0, shares: [1, 1] },
        ],
      }),
      "topology.clients[1].atS",
      "later",
    ],
  ])("is refused with file and field: %j", (value, param, problem) => {
    expect(() => fleetOf(value)).toThrow(
      expect.objectContaining({ code: "config_invalid", param, message: expect.stringContaining(problem) }),
    );
    expect(() => fleetOf(value)).toThrow(`${path}: ${param}: `);
  });

  test.each(["", "{", "[1]", "3", "null"])("is refused when it is no object of JSON: %s", (text) => {
    expect(() => parseFleet(text, path)).toThrow(
      expect.objectContaining({
        code: "config_invalid",
        param: path,
        message: expect.stringMatching(/^fleet\.json: /),
      }),
    );
  });

  test("takes the largest fleet", () => {
    const largest = { ...good, engines: maxFleetEngines, routers: maxFleetRouters };
    expect(fleetOf(largest)).toEqual({ ...largest, parameters: {} });
  });
});

describe("a scenario of one's own", () => {
  const rowsAt = (times: readonly number[]): readonly TraceRequest[] =>
    times.map((arrivalMs, index) => ({
      ...{ index, arrivalMs, inputTokens: 500, outputTokens: 20, blockIds: undefined, blockTokens: 512 },
      ...{ session: `s-${index}`, turn: 0 },
    }));
  const fleet = fleetOf({ engines: 3, routers: 2, preset: "a10g-7b" });
  const own = traceScenario("mine.jsonl", fleet);
  const send = (trace: readonly TraceRequest[] | undefined, scale = 1) => {
    const workload = own.createWorkload({
      ...{ seed: 1, engines: 3, kvTokens: 60_000, scale },
      ...(trace === undefined ? {} : { trace }),
    });
    return { workload, ...recordRun(workload) };
  };

  test("replays the trace on the fleet, as fast as the scale says", () => {
    expect(own).toMatchObject({ name: "mine.jsonl", trace: "mine.jsonl", fleet, isOpenLoop: true });
    const times = Array.from({ length: 40 }, (_, at) => at * 200);
    const { sent, workload, finishedCalls } = send(rowsAt(times), 2);
    expect(sent.map(({ sentMs }) => sentMs)).toEqual(times.map((time) => time / 2));
    expect([workload.expectedRequests, finishedCalls]).toEqual([40, 1]);
  });

  test("spreads times that are rounded to three seconds, and no others", () => {
    const rounded = Array.from({ length: 40 }, (_, at) => Math.floor(at / 4) * mooncakeStepMs + (at % 4 === 3 ? 2 : 0));
    const spread = send(rowsAt(rounded)).sent.map(({ sentMs }) => sentMs);
    expect(new Set(spread).size).toBe(40);
    for (const [at, time] of spread.entries()) expect(Math.floor(time / mooncakeStepMs)).toBe(Math.floor(at / 4));
    const uneven = [...rounded.slice(0, -1), rounded.at(-1)! + 100];
    expect(send(rowsAt(uneven)).sent.map(({ sentMs }) => sentMs)).toEqual(uneven);
    const together = new Array(40).fill(0);
    expect(send(rowsAt(together)).sent.map(({ sentMs }) => sentMs)).toEqual(together);
    const few = [0, 3_000, 3_000];
    expect(send(rowsAt(few)).sent.map(({ sentMs }) => sentMs)).toEqual(few);
  });

  test("without rows ends at once", () => {
    const { sent, finishedCalls, workload } = send(undefined);
    expect([sent.length, finishedCalls, workload.expectedRequests]).toEqual([0, 1, 0]);
  });
});
