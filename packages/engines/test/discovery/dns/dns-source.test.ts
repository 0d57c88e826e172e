import { createSeededRandom, type EngineTraits } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, onTestFinished, test } from "vitest";
import { createDnsSource, type DnsResolver, type DnsSourceOptions } from "../../../src/discovery/index.ts";
import { createRecorder, plainTraits } from "../helpers.ts";

type Answer = readonly string[] | Error | "never";

/** A resolver whose answers a test sets. Names are asked for as `4 name`, `6 name` and `srv name`. */
function createScript() {
  const answers = new Map<string, Answer>();
  const services = new Map<string, readonly { name: string; port: number }[]>();
  const asked: string[] = [];
  const waiting: (() => void)[] = [];
  const give = async (key: string): Promise<readonly string[]> => {
    asked.push(key);
    const answer = answers.get(key) ?? [];
    if (answer === "never") await new Promise<void>((resolve) => waiting.push(resolve));
    const now = answers.get(key) ?? [];
    if (now instanceof Error) throw now;
    return now === "never" ? [] : now;
  };
  const resolver: DnsResolver = {
    addresses: (name, family) => give(`${family} ${name}`),
    async services(name) {
      await give(`srv ${name}`);
      return services.get(name) ?? [];
    },
    cancel() {},
  };
  return {
    answers,
    services,
    asked,
    resolver,
    letAnswer: () => waiting.splice(0).forEach((resolve) => void resolve()),
  };
}

function createRig(options: Partial<DnsSourceOptions> = {}) {
  const time = createVirtualTime();
  const script = createScript();
  const recorder = createRecorder();
  const source = createDnsSource({
    ...{ name: "engines.test", port: 8_000, family: "auto", intervalMs: 5_000, misses: 3, servers: [] },
    ...{ traits: plainTraits, scheduler: time.scheduler, random: createSeededRandom(1), resolver: script.resolver },
    ...options,
  });
  onTestFinished(() => source.stop());
  return {
    time,
    script,
    recorder,
    source,
    set: (answer: Answer) => script.answers.set("4 engines.test", answer),
    /** Long enough for one more question, whatever the jitter. */
    round: () => time.advanceAsync(6_000),
    messages: () => recorder.errors.map(({ message }) => message),
  };
}

const at8000 = (...hosts: readonly number[]): string => hosts.map((host) => `10.0.0.${host}:8000`).join(" ");
const addresses = (...hosts: readonly number[]): string[] => hosts.map((host) => `10.0.0.${host}`);

test("every address is an engine at the port, with the id and the URL of the address", async () => {
  const { source, recorder, set } = createRig();
  set(addresses(2, 1));
  await source.start(recorder);
  expect(recorder.lists).toEqual(["", at8000(1, 2)]);
  expect(recorder.specs[1]?.[0]).toEqual({
    ...{ id: "10.0.0.1:8000", url: "http://10.0.0.1:8000", models: [], role: "both", weight: 1, ranks: 1, labels: {} },
  });
  expect(recorder.errors).toEqual([]);
});

test("what is said of every engine stands in its spec, with the ports at its own address", async () => {
  const traits: EngineTraits = {
    ...plainTraits,
    ...{ scheme: "https", models: ["m"], role: "prefill", weight: 2, ranks: 2, firstRank: 4, labels: { zone: "a" } },
    ...{ kvEventsPort: 5_557, kvReplayPort: 5_558, kvTopic: "kv", kvTransfer: "nixl", kvTransferPort: 5_600 },
  };
  const { source, recorder, script } = createRig({ traits, family: "ipv6" });
  script.answers.set("6 engines.test", ["fd00::1"]);
  await source.start(recorder);
  expect(recorder.specs.at(-1)).toEqual([
    {
      ...{ id: "[fd00::1]:8000", url: "https://[fd00::1]:8000", models: ["m"], role: "prefill", weight: 2, ranks: 2 },
      firstRank: 4,
      labels: { zone: "a" },
      kvEvents: { endpoint: "tcp://[fd00::1]:5557", replay: "tcp://[fd00::1]:5558", topic: "kv" },
      kvTransfer: { protocol: "nixl", host: undefined, port: 5_600 },
    },
  ]);
});

test("an address that joins counts at once, one that is missed three times in a row leaves", async () => {
  const { source, recorder, set, round } = createRig();
  set(addresses(1, 2));
  await source.start(recorder);
  set(addresses(1, 3));
  await round();
  expect(recorder.lists.at(-1)).toBe(at8000(1, 2, 3));
  await round();
  set(addresses(1, 2, 3));
  await round();
  set(addresses(1, 3));
  await round();
  await round();
  expect(recorder.lists).toEqual(["", at8000(1, 2), at8000(1, 2, 3)]);
  await round();
  expect(recorder.lists.at(-1)).toBe(at8000(1, 3));
});

test("a failure keeps the list, misses nobody, and is over with the next answer", async () => {
  const { source, recorder, set, round, messages } = createRig({ misses: 1 });
  set(addresses(1, 2));
  await source.start(recorder);
  set(new Error("queryA ETIMEOUT engines.test"));
  for (let at = 0; at < 10; at++) await round();
  expect(recorder.lists).toHaveLength(2);
  expect(messages()).toEqual(["dns engines.test:8000: queryA ETIMEOUT engines.test; last list stays in use"]);
  expect(recorder.errors[0]?.code).toBe("discovery_failed");
  expect(recorder.recoveries).toBe(0);
  set(addresses(1, 2));
  await round();
  expect(recorder.recoveries).toBe(1);
  set(new Error("queryA ETIMEOUT engines.test"));
  await round();
  expect(recorder.errors).toHaveLength(2);
  expect(recorder.lists).toHaveLength(2);
});

test("a name that has lost all of its addresses keeps them: whoever is really gone fails its health checks", async () => {
  const { source, recorder, set, round, messages } = createRig({ misses: 1 });
  set(addresses(1, 2));
  await source.start(recorder);
  set([]);
  for (let at = 0; at < 10; at++) await round();
  expect(recorder.lists).toHaveLength(2);
  expect(messages()).toEqual(["dns engines.test:8000: the name has no addresses; last list stays in use"]);
  set(addresses(3));
  await round();
  expect(recorder.lists.at(-1)).toBe(at8000(3));
  expect(recorder.recoveries).toBe(1);
});

test("IPv6 addresses count where there are no others, and a failure about IPv4 is not an answer", async () => {
  const { source, recorder, script, set, round } = createRig({ misses: 1 });
  script.answers.set("6 engines.test", ["fd00::1"]);
  set([]);
  await source.start(recorder);
  expect(recorder.lists.at(-1)).toBe("[fd00::1]:8000");
  set(new Error("no answer"));
  await round();
  expect(recorder.lists).toHaveLength(2);
  set(addresses(1));
  await round();
  expect(recorder.lists.at(-1)).toBe(at8000(1));
  expect(script.asked).toEqual(["4 engines.test", "6 engines.test", "4 engines.test", "4 engines.test"]);
});

test("one family alone is asked for alone", async () => {
  const { source, recorder, script, set } = createRig({ family: "ipv4" });
  script.answers.set("6 engines.test", ["fd00::1"]);
  set([]);
  await source.start(recorder);
  expect(script.asked).toEqual(["4 engines.test"]);
  expect(recorder.lists).toEqual([""]);
});

test("SRV records tell the ports; one whose target cannot be resolved keeps what is known", async () => {
  const { source, recorder, script, round, messages } = createRig({
    name: "_http._tcp.test",
    port: undefined,
    misses: 1,
  });
  script.services.set("_http._tcp.test", [
    { name: "a.test", port: 8_001 },
    { name: "b.test", port: 8_002 },
    { name: "b.test", port: 8_003 },
  ]);
  script.answers.set("4 a.test", ["10.0.0.1"]).set("4 b.test", ["10.0.0.2"]);
  await source.start(recorder);
  expect(recorder.lists.at(-1)).toBe("10.0.0.1:8001 10.0.0.2:8002 10.0.0.2:8003");
  expect(script.asked).toEqual(["srv _http._tcp.test", "4 b.test", "4 a.test"]);

  script.answers.set("4 a.test", new Error("no answer")).set("4 b.test", ["10.0.0.3"]);
  await round();
  const kept = "10.0.0.1:8001 10.0.0.2:8002 10.0.0.2:8003 10.0.0.3:8002 10.0.0.3:8003";
  expect(recorder.lists.at(-1)).toBe(kept);
  expect(messages()).toEqual(["dns _http._tcp.test: no answer; known addresses beyond the answer stay in use"]);

  script.answers.set("4 a.test", ["10.0.0.1"]);
  await round();
  expect(recorder.lists.at(-1)).toBe("10.0.0.1:8001 10.0.0.3:8002 10.0.0.3:8003");
  expect(recorder.recoveries).toBe(1);
});

test("SRV records none of whose targets can be resolved are a failure", async () => {
  const { source, recorder, script, messages } = createRig({ name: "_http._tcp.test", port: undefined });
  script.services.set("_http._tcp.test", [{ name: "a.test", port: 8_001 }]);
  script.answers.set("4 a.test", new Error("no answer"));
  await source.start(recorder);
  expect(recorder.lists).toEqual([""]);
  expect(messages()).toEqual(["dns _http._tcp.test: no answer; last list stays in use"]);
});

test("a start waits five seconds for the first answer, which may come later", async () => {
  const { source, recorder, script, set, time, messages } = createRig();
  set("never");
  const started = source.start(recorder);
  await time.advanceAsync(5_000);
  await started;
  expect(recorder.lists).toEqual([""]);
  expect(messages()).toEqual(["dns engines.test:8000: no answer within 5000 ms"]);
  set(addresses(1));
  script.letAnswer();
  await time.advanceAsync(0);
  expect(recorder.lists.at(-1)).toBe(at8000(1));
  expect(recorder.recoveries).toBe(1);
});

test("a resolver that hangs is given up after fifteen seconds and not asked once more; then it is", async () => {
  const { source, recorder, script, set, time, round, messages } = createRig();
  set(addresses(1));
  await source.start(recorder);
  set("never");
  await time.advanceAsync(120_000);
  expect(script.asked).toHaveLength(2);
  expect(messages()).toEqual(["dns engines.test:8000: no answer within 15000 ms; last list stays in use"]);
  set(addresses(1, 2));
  script.letAnswer();
  await time.advanceAsync(25_000);
  await round();
  expect(recorder.lists.at(-1)).toBe(at8000(1, 2));
  expect(recorder.recoveries).toBe(1);
});

test("questions are a fifth of the interval off it at most, and not in step", async () => {
  const { source, recorder, script, set, time } = createRig();
  set(addresses(1));
  await source.start(recorder);
  const gaps: number[] = [];
  let last = time.clock.nowMs();
  for (let count = 1; gaps.length < 100; ) {
    await time.advanceAsync(100);
    if (script.asked.length === count) continue;
    count = script.asked.length;
    gaps.push(time.clock.nowMs() - last);
    last = time.clock.nowMs();
  }
  expect(Math.min(...gaps)).toBeGreaterThanOrEqual(4_000);
  expect(Math.max(...gaps)).toBeLessThanOrEqual(6_100);
  expect(new Set(gaps).size).toBeGreaterThan(10);
});

test("4,096 addresses are engines; one more is left out, those known stay before new ones, and that is over in time", async () => {
  const { source, recorder, set, round, messages } = createRig({ misses: 1 });
  const many = (from: number, count: number) =>
    Array.from(
      { length: count },
      (_, at) => `10.${(from + at) >> 16}.${((from + at) >> 8) & 255}.${(from + at) & 255}`,
    );
  set(many(1, 4_096));
  await source.start(recorder);
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(recorder.errors).toEqual([]);
  set(many(0, 4_097));
  await round();
  expect(recorder.lists).toHaveLength(2);
  expect(messages()).toEqual(["dns engines.test:8000: more than 4096 addresses; the rest is ignored"]);
  set(many(0, 4_096));
  await round();
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(recorder.lists.at(-1)).toContain("10.0.0.0:8000");
  expect(recorder.recoveries).toBe(1);
});

test("4,096 SRV records count; one more is left out, and that is said", async () => {
  const { source, recorder, script, round, messages } = createRig({ name: "_http._tcp.test", port: undefined });
  const records = (count: number) => Array.from({ length: count }, (_, at) => ({ name: "a.test", port: at + 1 }));
  script.answers.set("4 a.test", ["10.0.0.1"]);
  script.services.set("_http._tcp.test", records(4_096));
  await source.start(recorder);
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(messages()).toEqual([]);
  script.services.set("_http._tcp.test", records(4_097));
  await round();
  expect(recorder.specs.at(-1)).toHaveLength(4_096);
  expect(messages()[0]).toContain("more than 4096 SRV records");
});

test("after a stop nothing is asked, said or planned", async () => {
  const { source, recorder, script, set, time } = createRig();
  set(addresses(1));
  await source.start(recorder);
  set("never");
  await time.advanceAsync(6_000);
  await source.stop();
  const asked = script.asked.length;
  set(addresses(2));
  script.letAnswer();
  await time.advanceAsync(60_000);
  expect(script.asked).toHaveLength(asked);
  expect(recorder.lists).toEqual(["", at8000(1)]);
  expect(recorder.errors).toEqual([]);
  expect(time.pendingCount).toBe(0);
});
