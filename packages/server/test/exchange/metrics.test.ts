import type { CounterSeries, Meter } from "@espalier/core";
import { createSeededRandom, silentMeter } from "@espalier/core";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { deadUrl, httpEngine, namedEngine } from "./engines.ts";
import { createRig, postHead, rawClient, send } from "./rig.ts";

/** A meter that keeps counters by `name{labels}`, and how often a series was looked up. */
function createCountingMeter() {
  const counts: Record<string, number> = {};
  let lookups = 0;
  const counter: Meter["counter"] = (name) => ({
    series: (...labels): CounterSeries => {
      lookups += 1;
      const key = `${name.replace("espalier_proxy_", "")}{${labels.join()}}`;
      return {
        add: (amount = 1) => {
          counts[key] = (counts[key] ?? 0) + amount;
        },
      };
    },
    forget: () => {},
  });
  return { meter: { ...silentMeter, counter } as Meter, counts, lookups: () => lookups };
}

test("attempts, retries, bytes, aborts and a spent budget are counted, and no series is looked up on the way", async () => {
  const { meter, counts, lookups } = createCountingMeter();
  const busy = await httpEngine(({ response }) => response.writeHead(503).end("busy"));
  const good = await namedEngine("c");
  const engines = [await deadUrl(), busy.url, good.url];
  const rig = await createRig({ engines, meter, options: { retry: { budgetMinimum: 1, budgetRatio: 0 } } });
  const before = lookups();
  await send(rig.port);
  await send(rig.port);
  expect(counts).toEqual({
    "attempts_total{connect}": 2,
    "attempts_total{status}": 1,
    "attempts_total{answered}": 2,
    "retries_total{free}": 2,
    "retries_total{charged}": 1,
    "retry_budget_exhausted_total{}": 1,
    "response_bytes_total{}": '{"engine":"c"}'.length + "busy".length,
  });
  expect(lookups()).toBe(before);
});

test("attempts whose client leaves, and whose stream is cut, are counted", async () => {
  const { meter, counts } = createCountingMeter();
  const engine = await httpEngine(({ response }) => response.write("begun"));
  const rig = await createRig({ engines: [engine.url], meter });
  const client = rawClient(rig.port, postHead);
  await client.received("begun");
  client.socket.destroy();
  await rig.outcome();
  const cut = send(rig.port);
  await waitFor(() => rig.events.filter((event) => event === "byte a").length === 2, { what: "the second stream" });
  engine.sockets.at(-1)!.destroy();
  await cut;
  expect(counts).toMatchObject({
    "attempts_total{abandoned}": 1,
    "attempts_total{reset}": 1,
    "response_bytes_total{}": 10,
  });
});

test("exchanges that ended are forgotten, whatever their order: a stop finds only those under way", async () => {
  const { meter, counts } = createCountingMeter();
  const random = createSeededRandom(5);
  const engine = await httpEngine(() => {});
  const rig = await createRig({ engines: [engine.url], meter });
  const answers = Array.from({ length: 20 }, () => send(rig.port));
  await waitFor(() => engine.requests.length === 20, { what: "the requests" });
  const waiting = [...engine.requests];
  for (let left = 20; left > 4; left--) {
    waiting.splice(random.integer(left), 1)[0]!.response.end("ok");
    await waitFor(() => rig.proxy.activeStreams() === left - 1, { what: "one end" });
  }
  await rig.proxy.stop();
  await Promise.all(answers);
  expect(counts).toMatchObject({ "attempts_total{answered}": 16, "attempts_total{abandoned}": 4 });
});
