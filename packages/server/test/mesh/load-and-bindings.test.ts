import { asTargetIndex, createSeededRandom } from "@espalier/common";
import { createPolicy, type Policy } from "@espalier/policies";
import type { LoadGauge, LoadPlane, SharedLoad } from "@espalier/replication";
import { createVirtualTime } from "@espalier/testing";
import { createTargetLoad, type Target } from "@espalier/workers";
import { beforeEach, describe, expect, test } from "vitest";
import { createStoredResponses } from "../../src/data-plane/stored-responses.ts";
import { createLoadPublisher } from "../../src/mesh/load-publisher.ts";
import { createTargetSelector } from "../../src/routing/select-target.ts";
import { knowledgeRig } from "../prefix/knowledge-rig.ts";
import { type ScriptedFleet, specOf, startScriptedFleet } from "../prefix/scripted-fleet.ts";

describe("what this router has sent to an engine", () => {
  function publish() {
    const time = createVirtualTime();
    const told: (readonly [string, LoadGauge])[] = [];
    const plane = { set: (key: string, gauge: LoadGauge) => void told.push([key, gauge]) } as LoadPlane;
    const publisher = createLoadPublisher(plane, time.scheduler);
    const load = createTargetLoad({ onChange: () => publisher.changed(target) });
    const target = { key: "engine-a", index: asTargetIndex(0), load } as Target;
    return { time, told, publisher, target };
  }
  const size = { promptTokens: 100, uncachedTokens: 60, expectedOutputTokens: 30 };

  test("is told at once when a request begins, and soon when it reaches its first token and ends", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    expect(told).toHaveLength(1);
    ticket.firstToken();
    expect(told).toHaveLength(1);
    time.advance(8);
    expect(told).toHaveLength(2);
    ticket.end();
    time.advance(8);
    expect(told).toEqual([
      ["engine-a", { inFlight: 1, pendingPrefillTokens: 60, decodeTokens: 0, outstandingOutputTokens: 30 }],
      ["engine-a", { inFlight: 1, pendingPrefillTokens: 0, decodeTokens: 100, outstandingOutputTokens: 30 }],
      ["engine-a", { inFlight: 0, pendingPrefillTokens: 0, decodeTokens: 0, outstandingOutputTokens: 0 }],
    ]);
    await publisher.stop();
  });

  test("what ends while another request begins is told with it", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const first = target.load.begin(size);
    const second = target.load.begin(size);
    told.length = 0;
    first.end();
    const third = target.load.begin({ ...size, uncachedTokens: 90 });
    expect(told.map(([, { inFlight, pendingPrefillTokens }]) => [inFlight, pendingPrefillTokens])).toEqual([[2, 150]]);
    time.advance(1_000);
    expect(told).toHaveLength(1);
    second.end();
    third.end();
    await publisher.stop();
    expect(told.at(-1)?.[1].inFlight).toBe(0);
  });

  test("is told every 50 ms while answers go on, and only then", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    time.advance(8);
    told.length = 0;
    for (let at = 0; at < 20; at++) ticket.progress(1);
    expect(told).toEqual([]);
    time.advance(50);
    expect(told).toEqual([
      ["engine-a", { inFlight: 1, pendingPrefillTokens: 0, decodeTokens: 120, outstandingOutputTokens: 10 }],
    ]);
    time.advance(1_000);
    expect(told).toHaveLength(1);
    ticket.progress(5);
    ticket.end();
    time.advance(1_000);
    expect(told.at(-1)?.[1]).toMatchObject({ inFlight: 0, decodeTokens: 0 });
    expect(told).toHaveLength(2);
    await publisher.stop();
  });

  test("is not told any more after the end", async () => {
    const { time, told, publisher, target } = publish();
    await publisher.start();
    const ticket = target.load.begin(size);
    ticket.firstToken();
    ticket.progress(1);
    await publisher.stop();
    told.length = 0;
    time.advance(1_000);
    expect(told).toEqual([]);
  });
});

describe("the load of other routers", () => {
  let scripted: ScriptedFleet;
  let shared: { [Name in keyof Omit<SharedLoad, "ageMs">]: Float64Array } & Pick<SharedLoad, "ageMs">;
  const features = { promptTokens: 10, expectedOutputTokens: 1, sessionKey: undefined, prefixKey: undefined };

  beforeEach(async () => {
    scripted = await startScriptedFleet();
    await scripted.apply(specOf("a"), specOf("b"));
    const column = () => new Float64Array(2);
    shared = {
      inFlight: column(),
      pendingPrefillTokens: column(),
      decodeTokens: column(),
      outstandingOutputTokens: column(),
      ageMs: () => 0,
    };
  });

  function choose(policy: Policy): string | undefined {
    const selector = createTargetSelector(createSeededRandom(1), knowledgeRig().knowledge, shared);
    const pool = { model: "m", policy, upstreamHeaders: [], forwardAuthorization: false };
    const request = { features, prompt: undefined };
    return selector.select(pool, scripted.fleet.pool("m"), request, { tried: new Set() })?.target.key;
  }

  /** Notes the loads that a policy sees, by candidate. */
  function noting() {
    const seen: number[][] = [];
    const policy = createPolicy("least_connections");
    const noted: Policy = {
      ...policy,
      name: policy.name,
      prefixKeyTokens: policy.prefixKeyTokens,
      choose(given, candidates, random) {
        for (let at = 0; at < candidates.count; at++) {
          const { inFlight, pendingPrefillTokens, decodeTokens } = candidates;
          seen.push([inFlight[at]!, pendingPrefillTokens[at]!, decodeTokens[at]!]);
        }
        return policy.choose(given, candidates, random);
      },
      explain: (...given) => policy.explain(...given),
    };
    return { seen, policy: noted };
  }

  test("is added to this router's own, target by target", () => {
    const ticket = scripted.target("a").load.begin({ promptTokens: 50, expectedOutputTokens: 5 });
    shared.inFlight.set([3, 1]);
    shared.pendingPrefillTokens.set([700, 0]);
    shared.decodeTokens.set([0, 900]);
    const { seen, policy } = noting();
    expect(choose(policy)).toBe("b");
    expect(seen).toEqual([
      [4, 750, 0],
      [1, 0, 900],
    ]);
    ticket.end();
  });

  test("decides where this router's own is the same", () => {
    shared.inFlight.set([2, 0]);
    expect(choose(createPolicy("least_connections"))).toBe("b");
    shared.inFlight.set([2, 3]);
    expect(choose(createPolicy("least_connections"))).toBe("a");
  });

  test("is not known of targets beyond its columns: one past the last has its own alone", async () => {
    await scripted.apply(specOf("a"), specOf("b"), specOf("c"));
    shared.inFlight.set([5, 5]);
    const { seen, policy } = noting();
    expect(choose(policy)).toBe("c");
    expect(seen).toEqual([
      [5, 0, 0],
      [5, 0, 0],
      [0, 0, 0],
    ]);
  });

  test("was nothing where nothing is shared", () => {
    const selector = createTargetSelector(createSeededRandom(1), knowledgeRig().knowledge);
    const { seen, policy } = noting();
    const pool = { model: "m", policy, upstreamHeaders: [], forwardAuthorization: false };
    selector.select(pool, scripted.fleet.pool("m"), { features, prompt: undefined }, { tried: new Set() });
    expect(seen).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ]);
  });
});

describe("who holds a stored response", () => {
  function bindings() {
    const told: string[] = [];
    const known = new Map<string, string>();
    return {
      told,
      known,
      get: (id: string) => known.get(id),
      set: (id: string, engine: string, ttlMs: number) => void told.push(`${id} is at ${engine} for ${ttlMs} ms`),
      forget: (id: string) => void told.push(`forget ${id}`),
    };
  }

  test("is told to other routers once, however often it is used", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    for (let turn = 0; turn < 3; turn++) stored.remember("resp_1", "engine-a");
    stored.holderOf("resp_1");
    expect(shared.told).toEqual(["resp_1 is at engine-a for 3600000 ms"]);
    stored.remember("resp_1", "engine-b");
    expect(shared.told).toHaveLength(2);
  });

  test("is what this router knows, else what another one has told, else unknown", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    shared.known.set("resp_1", "engine-b").set("resp_2", "engine-c");
    stored.remember("resp_1", "engine-a");
    expect(["resp_1", "resp_2", "resp_3"].map((id) => stored.holderOf(id))).toEqual([
      "engine-a",
      "engine-c",
      undefined,
    ]);
  });

  test("is forgotten by all when it is deleted", () => {
    const shared = bindings();
    const stored = createStoredResponses(10, shared);
    stored.remember("resp_1", "engine-a");
    stored.forget("resp_1");
    expect([stored.holderOf("resp_1"), shared.told.at(-1)]).toEqual([undefined, "forget resp_1"]);
  });

  test("one past the capacity, the one used longest ago is asked of the others", () => {
    const shared = bindings();
    const stored = createStoredResponses(2, shared);
    stored.remember("resp_1", "engine-a");
    stored.remember("resp_2", "engine-a");
    stored.holderOf("resp_1");
    stored.remember("resp_3", "engine-a");
    shared.known.set("resp_2", "engine-a");
    expect([stored.size, stored.holderOf("resp_2")]).toEqual([2, "engine-a"]);
    expect(shared.told.some((line) => line.startsWith("forget"))).toBe(false);
  });
});
