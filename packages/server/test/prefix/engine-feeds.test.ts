import { asTargetIndex } from "@espalier/core";
import { createPrefixMatches, tier } from "@espalier/prefix-index";
import { maxKnownTargets } from "@espalier/routing";
import { promptOf, tokensOf } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { stored } from "./fake-events.ts";
import { type FeedsRig, feedsRig, startFeedsRig, vllmSources } from "./feeds-rig.ts";
import { lateAnswer, specOf } from "./scripted-fleet.ts";

const sources = "/kv_event_sources";
const info = "/server_info";
const prompt = promptOf(tokensOf("a", 64));
const sglang = JSON.stringify({ kv_events: { endpoint_port_base: 5601, dp_size: 1, topic: "kv" } });

/** Fails an engine's health probes until it is down. */
async function takeDown(rig: FeedsRig, id: string): Promise<void> {
  rig.answers[id] = { ...rig.answers[id], "/health": "refused" };
  for (let second = 0; second < 20 && rig.engine(id).state !== "down"; second++) await rig.time.advanceAsync(1_000);
  expect(rig.engine(id).state).toBe("down");
}

async function bringUp(rig: FeedsRig, id: string): Promise<void> {
  rig.answers[id] = { ...rig.answers[id], "/health": "" };
  for (let second = 0; second < 20 && rig.engine(id).state !== "up"; second++) await rig.time.advanceAsync(1_000);
  expect(rig.engine(id).state).toBe("up");
}

describe("finding out where the events are", () => {
  test("an engine is asked once it is up", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557), "/health": 503 };
    await rig.apply(specOf("a"));
    expect(rig.asked("a")).toEqual([]);
    await bringUp(rig, "a");
    expect(rig.asked("a")).toHaveLength(1);
    expect(rig.transport.open).toEqual(["tcp://a:5557 connect kv-events"]);
  });

  test("engines that were there before the start are asked too", async () => {
    const rig = await feedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.apply(specOf("a"));
    expect(rig.asked("a")).toEqual([]);
    await rig.feeds.start();
    await rig.time.advanceAsync(0);
    expect(rig.described).toEqual(["a tcp://a:5557"]);
  });

  test("each engine has a feed of its own, whatever its kind", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    rig.answers.b = { [info]: sglang };
    await rig.apply(specOf("a"), specOf("b"), specOf("c"));
    expect(rig.described).toEqual(["a tcp://a:5557", "b tcp://b:5601"]);
    expect(["a", "b", "c"].map((id) => rig.feeds.feedQualityOf(rig.target(id).index))).toEqual([
      "void",
      "void",
      "none",
    ]);
  });

  test("a feed is opened anew where its engine's region has changed, since another router may have to read it", async () => {
    const rig = await startFeedsRig();
    const kvEvents = { endpoint: "tcp://a:5557", replay: undefined, topic: "" };
    for (const region of ["eu", "eu", "us"]) await rig.apply(specOf("a", { kvEvents, region }));
    expect(rig.transport.sockets).toHaveLength(2);
    expect(rig.transport.open).toHaveLength(1);
  });

  test("one that publishes none is not asked again while it stays up", async () => {
    const rig = await startFeedsRig();
    await rig.apply(specOf("a"));
    await rig.time.advanceAsync(120_000);
    expect(rig.asked("a")).toEqual([`${sources} at 0`, `${info} at 0`]);
  });

  test("one that does not answer is asked again, after pauses that double to half a minute", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: "refused" };
    await rig.apply(specOf("a"));
    await rig.time.advanceAsync(200_000);
    const times = rig.asked("a").map((asked) => Number(asked.split(" at ")[1]));
    for (let attempt = 0; attempt + 1 < times.length; attempt++) {
      const ceilingMs = Math.min(30_000, 250 * 2 ** attempt);
      const pauseMs = times[attempt + 1]! - times[attempt]!;
      expect(pauseMs, `pause ${attempt}`).toBeGreaterThanOrEqual(ceilingMs / 2 - 1);
      expect(pauseMs, `pause ${attempt}`).toBeLessThanOrEqual(ceilingMs + 1);
    }
    expect(times.length).toBeGreaterThan(10);
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.time.advanceAsync(30_000);
    expect(rig.described).toEqual(["a tcp://a:5557"]);
    const asked = rig.asked("a").length;
    await rig.time.advanceAsync(120_000);
    expect(rig.asked("a")).toHaveLength(asked);
  });

  test.each([500, 502, 503])("as is one whose answer is a status %i", async (status) => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: status, [info]: status };
    await rig.apply(specOf("a"));
    rig.answers.a = { [info]: sglang };
    await rig.time.advanceAsync(250);
    expect(rig.described).toEqual(["a tcp://a:5601"]);
  });

  test("the pauses begin anew when the engine was down in between", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: "refused" };
    await rig.apply(specOf("a"));
    await rig.time.advanceAsync(100_000);
    await takeDown(rig, "a");
    const before = rig.asked("a").length;
    await rig.time.advanceAsync(60_000);
    expect(rig.asked("a")).toHaveLength(before);
    await bringUp(rig, "a");
    await rig.time.advanceAsync(1_000);
    expect(rig.asked("a").length).toBeGreaterThanOrEqual(before + 2);
  });

  test("an answer that comes when the engine is down is dropped", async () => {
    const rig = await startFeedsRig();
    const late = lateAnswer();
    rig.answers.a = { [sources]: late.answer };
    await rig.apply(specOf("a"));
    await takeDown(rig, "a");
    late.come(vllmSources(5557));
    await rig.time.advanceAsync(0);
    expect(rig.described).toEqual([]);
  });

  // Questions were told apart by a number that began anew with each state, so an answer from before the engine went
  // down was taken for that of the engine that came up, and its feeds went to endpoints that were gone.
  test("an answer from before the engine was down does not count after it", async () => {
    const rig = await startFeedsRig();
    const late = lateAnswer();
    rig.answers.a = { [sources]: late.answer };
    await rig.apply(specOf("a"));
    await takeDown(rig, "a");
    rig.answers.a = { ...rig.answers.a, [sources]: vllmSources(6000) };
    await bringUp(rig, "a");
    expect(rig.described).toEqual(["a tcp://a:6000"]);
    late.come(vllmSources(5557));
    await rig.time.advanceAsync(0);
    expect(rig.described).toEqual(["a tcp://a:6000"]);
  });

  test("nor does one of an engine that is gone", async () => {
    const rig = await startFeedsRig();
    const late = lateAnswer();
    rig.answers.a = { [sources]: late.answer };
    await rig.apply(specOf("a"));
    await rig.apply();
    late.come(vllmSources(5557));
    await rig.time.advanceAsync(0);
    expect([rig.described, rig.transport.open]).toEqual([[], []]);
  });
});

describe("an engine with ranks", () => {
  test("has a feed for each, which is described with its number at the engine", async () => {
    const rig = await startFeedsRig();
    const kvEvents = { endpoint: "tcp://a:5557", replay: undefined, topic: "" };
    await rig.apply(specOf("a", { kvEvents, ranks: 2, firstRank: 4 }), specOf("b", { kvEvents }));
    expect(rig.feeds.describe().map(({ target, rank }) => [target, rank])).toEqual([
      ["a", 4],
      ["a#1", 5],
      ["b", undefined],
    ]);
  });

  test("has a feed for each target", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557, { ranks: 2, replay: true }) };
    await rig.apply(specOf("a", { ranks: 2 }));
    expect(rig.described).toEqual(["a tcp://a:5557", "a#1 tcp://a:5558"]);
    rig.socket("tcp://a:5558").up();
    await rig.time.advanceAsync(1);
    expect(rig.transport.replays).toEqual(["tcp://a:5658 from 0"]);
  });

  test.each<{ ranks: number; published: number; feeds: string[] }>([
    { ranks: 2, published: 1, feeds: ["a tcp://a:5557"] },
    { ranks: 1, published: 3, feeds: ["a tcp://a:5557"] },
    { ranks: 3, published: 2, feeds: ["a tcp://a:5557", "a#1 tcp://a:5558"] },
  ])("of which $published of $ranks publish", async ({ ranks, published, feeds }) => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557, { ranks: published }) };
    await rig.apply(specOf("a", { ranks }));
    expect(rig.described).toEqual(feeds);
  });

  test("holds what each of them told", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557, { ranks: 2 }) };
    await rig.apply(specOf("a", { ranks: 2 }));
    rig.socket("tcp://a:5558").up();
    rig.socket("tcp://a:5558").tell(0, stored(tokensOf("a", 64), { first: 1 }));
    const [rank0, rank1] = ["a", "a#1"].map((key) => rig.target(key).index);
    expect([rig.index.factBlockCount(rank0!, tier.gpu), rig.index.factBlockCount(rank1!, tier.gpu)]).toEqual([0, 4]);
    expect([rig.feeds.feedQualityOf(rank0!), rig.feeds.feedQualityOf(rank1!)]).toEqual(["void", "complete"]);
  });
});

describe("an engine's entry in the configuration", () => {
  const kvEvents = { endpoint: "tcp://events:7000", replay: undefined, topic: "kv" };

  test("is followed without asking, and before the engine is up", async () => {
    const rig = await startFeedsRig({ listen: "tcp://*:9000" });
    rig.answers.a = { "/health": 503 };
    await rig.apply(specOf("a", { kvEvents, ranks: 2 }));
    expect(rig.transport.open).toEqual(["tcp://events:7000 connect kv", "tcp://events:7001 connect kv"]);
    await bringUp(rig, "a");
    expect(rig.asked("a")).toEqual([]);
    expect(rig.transport.sockets).toHaveLength(2);
  });

  test("that changes has the feed begin anew", async () => {
    const rig = await startFeedsRig();
    await rig.apply(specOf("a", { kvEvents }));
    rig.socket("tcp://events:7000").up();
    rig.socket("tcp://events:7000").tell(0, stored(tokensOf("a", 64), { first: 1 }));
    await rig.apply(specOf("a", { kvEvents: { ...kvEvents, endpoint: "tcp://events:8000" } }));
    expect(rig.transport.open).toEqual(["tcp://events:8000 connect kv"]);
    expect(rig.index.factCount).toBe(0);
    expect(rig.feeds.feedQualityOf(rig.target("a").index)).toBe("void");
  });

  test("that stays while others change leaves the feed alone", async () => {
    const rig = await startFeedsRig();
    await rig.apply(specOf("a", { kvEvents }));
    await rig.apply(specOf("a", { kvEvents: { ...kvEvents }, weight: 3 }));
    expect(rig.transport.sockets).toHaveLength(1);
  });

  test("that is taken out has the engine asked", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.apply(specOf("a", { kvEvents }));
    await rig.apply(specOf("a"));
    await rig.time.advanceAsync(0);
    expect(rig.transport.open).toEqual(["tcp://a:5557 connect kv-events"]);
  });

  test("that is put in overtakes an answer on its way", async () => {
    const rig = await startFeedsRig();
    const late = lateAnswer();
    rig.answers.a = { [sources]: late.answer };
    await rig.apply(specOf("a"));
    await rig.apply(specOf("a", { kvEvents }));
    late.come(vllmSources(5557));
    await rig.time.advanceAsync(0);
    expect(rig.transport.open).toEqual(["tcp://events:7000 connect kv"]);
  });
});

describe("engines that dial", () => {
  test("share one socket, told apart by their topics", async () => {
    const rig = await startFeedsRig({ listen: "tcp://*:9000" });
    await rig.apply(specOf("a"), specOf("b", { ranks: 2 }));
    expect(rig.transport.open).toEqual(["tcp://*:9000 bind "]);
    expect(rig.described).toEqual(["a tcp://*:9000", "b tcp://*:9000", "b#1 tcp://*:9000"]);
    expect(rig.asked("a")).toEqual([]);
  });

  test("are let go one by one", async () => {
    const rig = await startFeedsRig({ listen: "tcp://*:9000" });
    await rig.apply(specOf("a"), specOf("b"));
    await rig.apply(specOf("b"));
    expect([rig.described, rig.transport.open]).toEqual([["b tcp://*:9000"], ["tcp://*:9000 bind "]]);
    await rig.apply();
    expect([rig.described, rig.transport.open]).toEqual([[], []]);
  });
});

describe("engines that go and come", () => {
  test("a feed outlasts its engine's being down", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.apply(specOf("a"));
    await takeDown(rig, "a");
    expect(rig.transport.open).toHaveLength(1);
    await bringUp(rig, "a");
    expect(rig.transport.sockets).toHaveLength(1);
    // One look when it is up again, though it is taken for restarted as well: nothing had listened at its address.
    expect(rig.asked("a")).toHaveLength(2);
  });

  test("one that is found restarted while it is up is asked again", async () => {
    const rig = await startFeedsRig();
    const page = (startedS: number): string => `vllm:num_requests_running 0\nprocess_start_time_seconds ${startedS}\n`;
    rig.answers.a = { [sources]: vllmSources(5557), "/metrics": page(1_000) };
    await rig.apply(specOf("a"));
    rig.answers.a = { [sources]: vllmSources(6000), "/metrics": page(2_000) };
    await rig.time.advanceAsync(2_000);
    expect(rig.engine("a").state).toBe("up");
    expect(rig.described).toEqual(["a tcp://a:6000"]);
    expect(rig.feeds.describe()).toMatchObject([{ restarts: 0, engineRestarts: 1 }]);
  });

  test("an engine that comes up with other endpoints has another feed", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.apply(specOf("a"));
    await takeDown(rig, "a");
    rig.answers.a = { ...rig.answers.a, [sources]: vllmSources(6000) };
    await bringUp(rig, "a");
    expect([rig.described, rig.transport.open]).toEqual([["a tcp://a:6000"], ["tcp://a:6000 connect kv-events"]]);
  });

  test("one that comes up without events has none", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    await rig.apply(specOf("a"));
    rig.socket("tcp://a:5557").up();
    rig.socket("tcp://a:5557").tell(0, stored(tokensOf("a", 64), { first: 1 }));
    await takeDown(rig, "a");
    rig.answers.a = {};
    await bringUp(rig, "a");
    expect([rig.described, rig.transport.open, rig.index.factCount]).toEqual([[], [], 0]);
    expect(rig.feeds.feedQualityOf(rig.target("a").index)).toBe("none");
  });

  test("a target index that another engine has now is not written to by the one that is gone", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    rig.answers.b = { [sources]: vllmSources(6000) };
    await rig.apply(specOf("a"));
    const socket = rig.socket("tcp://a:5557");
    socket.up();
    socket.tell(0, stored(tokensOf("a", 64), { first: 1 }));
    const { index } = rig.target("a");
    await rig.apply(specOf("b"));
    expect(rig.target("b").index).toBe(index);
    socket.tell(1, stored(tokensOf("c", 64), { first: 9 }));
    expect(rig.index.factCount).toBe(0);
    expect(rig.described).toEqual(["b tcp://b:6000"]);
  });

  test("an engine that moves while it answers requests has the feed of its new place", async () => {
    const rig = await startFeedsRig();
    rig.answers.a = { [sources]: vllmSources(5557) };
    rig.answers.moved = { [sources]: vllmSources(6000) };
    await rig.apply(specOf("a"));
    const size = { promptTokens: 1, uncachedTokens: 1, expectedOutputTokens: 1 };
    const ticket = rig.target("a").load.begin(size);
    await rig.apply(specOf("a", { url: "http://moved:8000" }));
    expect(rig.described).toEqual(["a tcp://moved:6000"]);
    ticket.end();
    await rig.time.advanceAsync(0);
    expect(rig.described).toEqual(["a tcp://moved:6000"]);
    expect(rig.feeds.feedQualityOf(rig.engine("a").targets[0]!.index)).toBe("void");
  });

  test("a target past the bound has no feed, and says why; the others are read", async () => {
    const rig = await startFeedsRig();
    rig.answers.last = { [sources]: vllmSources(5557, { ranks: 2 }) };
    await rig.apply(specOf("many", { ranks: maxKnownTargets - 1 }), specOf("last", { ranks: 2 }));
    expect(rig.described).toEqual(["last tcp://last:5557", "last#1 undefined"]);
    expect(rig.feeds.describe()[1]).toMatchObject({
      ...{ state: "off", reason: "over-limit", unusable: "limit of 4096 tracked targets reached" },
    });
    expect(rig.feeds.feedQualityOf(asTargetIndex(maxKnownTargets))).toBe("none");
  });
});

test("a prompt that was placed gives the floating blocks of that target their place", async () => {
  const rig = await startFeedsRig();
  for (const [id, port] of Object.entries({ a: 5557, b: 6000 })) rig.answers[id] = { [sources]: vllmSources(port) };
  await rig.apply(specOf("a"), specOf("b"));
  for (const endpoint of ["tcp://a:5557", "tcp://b:6000"]) {
    rig.socket(endpoint).up();
    rig.socket(endpoint).tell(5, stored(tokensOf("a", 64).subarray(32), { first: 3, parent: 2 }));
  }
  rig.recent.add(prompt);
  const [a, b] = [rig.target("a").index, rig.target("b").index];
  rig.feeds.attach(a);
  rig.feeds.attach(asTargetIndex(99));
  expect([a, b].map((target) => rig.index.factBlockCount(target, tier.gpu))).toEqual([2, 0]);
});

test("replays wait for one another, so that not all engines send their history at once", async () => {
  const rig = await startFeedsRig({ maxReplays: 1 });
  for (const id of ["a", "b"]) rig.answers[id] = { [sources]: vllmSources(5557, { replay: true }) };
  await rig.apply(specOf("a"), specOf("b"));
  for (const id of ["a", "b"]) rig.socket(`tcp://${id}:5557`).up();
  await rig.time.advanceAsync(1);
  expect(rig.transport.replays).toEqual(["tcp://a:5657 from 0"]);
  rig.transport.history = () => [];
  await rig.apply(specOf("b"));
  expect(rig.transport.replays).toEqual(["tcp://a:5657 from 0", "tcp://b:5657 from 0"]);
});

test("the end closes every feed and asks nobody any more", async () => {
  const rig = await startFeedsRig();
  rig.answers.a = { [sources]: vllmSources(5557) };
  rig.answers.b = { [sources]: "refused" };
  await rig.apply(specOf("a"), specOf("b"));
  rig.socket("tcp://a:5557").up();
  rig.socket("tcp://a:5557").tell(0, stored(tokensOf("a", 64), { first: 1 }));
  await rig.feeds.stop();
  const asked = rig.asked("b").length;
  await rig.time.advanceAsync(60_000);
  await rig.apply(specOf("a"), specOf("b"), specOf("c"));
  expect([rig.transport.open, rig.described, rig.index.factCount]).toEqual([[], [], 0]);
  expect([rig.asked("b").length, rig.asked("c").length]).toEqual([asked, 0]);
  expect(rig.feeds.feedQualityOf(rig.target("a").index)).toBe("none");
  const matches = createPrefixMatches(maxKnownTargets);
  rig.index.match(prompt.chain, prompt.blockCount, 0, matches);
  expect(matches.count).toBe(0);
});
