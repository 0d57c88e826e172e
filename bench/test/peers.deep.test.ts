import { systemClock, systemScheduler } from "@espalier/core";
import { createLoadClient } from "@espalier/simulator";
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { type DataPathOptions, measureDataPath } from "../src/data-path/measure-data-path.ts";
import { measureTurns, type TurnSizes } from "../src/peers/measure-turns.ts";
import { ownMeshProduct } from "../src/peers/turn-fleets.ts";
import { peersParams, peersPlan } from "../src/suites/peers-plan.ts";
import { peersReport } from "../src/suites/peers-report.ts";
import { readParams } from "../src/support/params.ts";
import { contenderAt, hasCompiler, type Stoppable, startAnswering, startSystemsInProcess, tinySizes } from "./rig.ts";

// Fleets are processes of what has been built; here they run from the sources, in this process.
vi.mock(import("espalier-router"), async (original) => {
  const { startEnginesHere, startRoutersHere } = await import("./in-process-fleet.ts");
  return { ...(await original()), startLocalEngines: startEnginesHere, startRouters: startRoutersHere };
});

const ports = { clock: systemClock, scheduler: systemScheduler };
const keep = (part: Stoppable): void => onTestFinished(() => void part.stop());

describe.runIf(hasCompiler)("the data path", () => {
  const systemParts: Stoppable[] = [];
  let systems: Awaited<ReturnType<typeof startSystemsInProcess>>;
  beforeAll(async () => {
    systems = await startSystemsInProcess((part) => void systemParts.unshift(part));
  }, 60_000);
  afterAll(async () => {
    for (const part of systemParts) await part.stop();
  });

  function optionsAndLines(isRoundRobinToo = false) {
    const lines: string[] = [];
    const note = (line: string): void => void lines.push(line);
    const more = { sizes: tinySizes, isRoundRobinToo, isCheckedByWrk: false, note };
    const options: Omit<DataPathOptions, "contenders"> = { engine: systems.engine, ...more };
    return { options, url: systems.routerUrl, lines };
  }

  test("of every contender is measured in every figure, under round robin too where that is asked for", async () => {
    const { options, url } = optionsAndLines(true);
    const own = contenderAt("espalier", url);
    const other = contenderAt("other", url, { policy: "round_robin" });
    const contenders = [own.contender, other.contender];
    const run = await measureDataPath({ ...options, contenders }, 1);
    expect(own.counts).toEqual({ started: 3, stopped: 3 });
    expect(other.counts).toEqual({ started: 2, stopped: 2 });
    const plan = { ...peersPlan(readParams(peersParams, [])), runs: 1 };
    const report = peersReport({ contenders, runs: [run], turns: [], notHad: [], plan, otherCores: 1_000 });
    // Load generator, router and engine share this process: how busy it was says nothing.
    expect(report.warnings.filter((warning) => !warning.includes("saturated"))).toEqual([]);
    expect(report.rows.map(({ name }) => name)).toEqual(["espalier", "other"]);
    const common = [
      "rps_4k",
      "cpu_us_48k",
      "cpu_us_per_chunk",
      "added_48k_300rps_p99_ms",
      "rss_growth_mb",
      "rss_idle_mb",
    ];
    for (const row of report.rows) {
      for (const figure of common) expect(row[figure], `${row.name} ${figure}`).toSatisfy(Number.isFinite);
    }
    expect(report.metrics.round_robin_cpu_us_48k).toBeGreaterThanOrEqual(0);
    expect(report.rows[1]).not.toHaveProperty("round_robin_cpu_us_48k");
  }, 60_000);

  test("has no figures of a contender that does not start or fails; the others are measured, all are stopped", async () => {
    const { options, url, lines } = optionsAndLines();
    const refusing = await startAnswering((request, response) => {
      request.resume().on("end", () => response.writeHead(503).end("no engine"));
    }, keep);
    const broken = contenderAt("broken", refusing);
    const good = contenderAt("good", url);
    const absent = contenderAt("absent", url, { start: () => Promise.reject(new Error("no such program")) });
    const contenders = [broken.contender, absent.contender, good.contender];
    const { outcomes } = await measureDataPath({ ...options, contenders }, 2);
    expect(outcomes.get("absent")).toEqual({ failure: "no such program" });
    expect(outcomes.get("broken")).toMatchObject({ failure: expect.stringContaining("answered HTTP/1.1 503") });
    expect(outcomes.get("good")).toHaveProperty("figures.rps_sse");
    expect(broken.counts).toEqual({ started: 1, stopped: 1 });
    expect(lines.filter((line) => line.includes("broken") && line.includes("skipped"))).toHaveLength(1);
  }, 60_000);

  test("leaves out one that answers a stream at once: it has changed the request", async () => {
    const { options } = optionsAndLines();
    const hasty = await startAnswering((request, response) => {
      request.resume().on("end", () => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write("data: {}\n\n");
        response.end("data: [DONE]\n\n");
      });
    }, keep);
    const { contender } = contenderAt("hasty", hasty);
    const { outcomes } = await measureDataPath({ ...options, contenders: [contender] }, 1);
    expect(outcomes.get("hasty")).toEqual({ failure: "it did not pass on how the answer is to be streamed" });
  }, 60_000);
});

const tinyTurns: TurnSizes = {
  routers: 2,
  engines: 4,
  speed: 50,
  conversations: 12,
  warmUpConversations: 4,
  ratePerSecond: 60,
  waitsMs: [300, 400],
  chanceWaitMs: 300,
};

test("the two-turn test finds conversations again with our mesh, and not without", async () => {
  const lines: string[] = [];
  const note = (line: string): void => void lines.push(line);
  const product = ownMeshProduct("espalier");
  const options = { sizes: tinyTurns, seed: 1, ports, note };
  const shares = [...(await measureTurns(product, true, options)), ...(await measureTurns(product, false, options))];
  expect(shares.map(({ isMesh, waitMs }) => [isMesh, waitMs])).toEqual([
    [true, 300],
    [true, 400],
    [false, 300],
  ]);
  for (const { isMesh, sameEngineShare } of shares) {
    if (isMesh) expect(sameEngineShare).toBeGreaterThan(0.8);
    else expect(sameEngineShare).toBeLessThan(0.8);
  }
  expect(lines).toHaveLength(3);
}, 60_000);

test("a router of SMG names the worker in a header of its own", async () => {
  const url = await startAnswering((request, response) => {
    request.resume().on("end", () => {
      response.writeHead(200, { "content-type": "application/json", "x-smg-routed-worker-id": "http://engine-3" });
      response.end('{"choices":[{"message":{"content":"Hello"}}]}');
    });
  }, keep);
  const client = createLoadClient(systemClock);
  onTestFinished(() => client.close());
  const answer = await client.send({ url, path: "/v1/chat/completions", body: "{}" });
  expect(answer).toMatchObject({ status: 200, engine: "http://engine-3" });
});
