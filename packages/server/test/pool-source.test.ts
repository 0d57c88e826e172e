/** What one request does to its engines' load and circuit breakers, and what it has for the proxy; see `exchange-placement` for placements. */
import { EspalierError } from "@espalier/core";
import { describe, expect, test } from "vitest";
import {
  answer,
  begin,
  type DrivenSource,
  type ExchangeRig,
  exchangeRig,
  type Failed,
  fail,
  failedOutcome,
  type Upstream,
} from "./prefix/exchange-rig.ts";

/** As many failures in a row open a breaker. */
const toOpen = 5;
const headerOf = (headers: readonly string[], name: string): string | undefined => headers[headers.indexOf(name) + 1];
const inFlight = (rig: ExchangeRig): number[] => ["a", "b"].map((key) => rig.target(key).load.inFlight);
const only = (rig: ExchangeRig, key: string) => ({ targets: [rig.target(key)] });

/** One request to engine `a` that comes to this. */
function run(rig: ExchangeRig, end: (exchange: DrivenSource, upstream: Upstream) => void): void {
  const exchange = rig.exchange(only(rig, "a"));
  end(exchange, begin(exchange));
}

const failOnce = (exchange: DrivenSource, upstream: Upstream, failed: Failed = {}): void => {
  fail(exchange, upstream, failed);
  exchange.finish(failedOutcome);
};

describe("what the proxy is told", () => {
  test("the pool's headers go to the engine, and the client hears who answered, how often it was tried and how long it took", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange({ acceptedMs: rig.time.clock.nowMs() });
    const first = exchange.next() as Upstream;
    rig.time.advance(3);
    exchange.attemptStarted();
    expect(first.headers).toEqual(["authorization", "Bearer engines"]);
    expect(first.url).toBe(`http://${first.key}:8000`);
    rig.time.advance(50);
    fail(exchange, first);
    const second = begin(exchange);
    const said = exchange.responseHeaders();
    const names = ["engine", "policy", "attempts", "overhead-ms"];
    const expected = [second.key, "cache_aware", "2", "3.000"];
    expect(names.map((name) => headerOf(said, `x-espalier-${name}`))).toEqual(expected);
    expect(headerOf(said, "x-request-id")).toBe("r-1");
  });

  test("an engine is asked once: with all tried nobody is left", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const keys = [0, 1].map(() => {
      const upstream = begin(exchange);
      fail(exchange, upstream);
      return upstream.key;
    });
    expect(keys.sort()).toEqual(["a", "b"]);
    expect(exchange.next()).toBeUndefined();
  });

  test("what broke two engines goes to no third, though there is one", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    exchange.copies.broke();
    expect(begin(exchange).key).toMatch(/^[ab]$/);
    exchange.copies.broke();
    expect(exchange.next()).toBeUndefined();
  });
});

describe("load is charged when an engine is chosen, and given back exactly once", () => {
  const usage = 'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2,"total_tokens":102}}\n\n';
  /** Two tokens, and what ends such a stream. */
  const stream = (exchange: DrivenSource, upstream: Upstream): (() => void) => {
    const filter = exchange.bodyFilter(200, "text/event-stream");
    exchange.responseStarted(upstream, 200);
    exchange.firstByte();
    const token = Buffer.from('data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n');
    for (const chunk of [token, token]) filter?.push(chunk);
    return () => void filter?.push(Buffer.from(usage));
  };

  test("chunk by chunk: the prompt is pending until the first byte, then each token is context", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const upstream = begin(exchange);
    const { load } = rig.target(upstream.key);
    expect([load.inFlight, load.pendingPrefillTokens, load.decodeTokens]).toEqual([1, 100, 0]);
    expect(load.outstandingOutputTokens).toBe(10);
    const end = stream(exchange, upstream);
    expect([load.inFlight, load.pendingPrefillTokens, load.decodeTokens]).toEqual([1, 0, 102]);
    expect(load.outstandingOutputTokens).toBe(8);
    end();
    exchange.finish({ kind: "completed", status: 200, bytes: 10 });
    expect([load.inFlight, load.decodeTokens, load.outstandingOutputTokens]).toEqual([0, 0, 0]);
    expect(rig.meter.value("espalier_tokens_total", "m", "completion")).toBe(2);
  });

  const cut = { kind: "cut", error: new EspalierError("upstream_cut_short") } as const;
  const ends: Record<string, (exchange: DrivenSource, upstream: Upstream) => void> = {
    "a whole answer": (exchange, upstream) => answer(exchange, upstream),
    "a refusal": (exchange, upstream) => answer(exchange, upstream, { status: 429 }),
    "a failure before headers": failOnce,
    "a client that goes before headers": (exchange) => exchange.finish({ kind: "client_closed" }),
    "a client that goes in the middle": (exchange, upstream) => {
      stream(exchange, upstream);
      exchange.finish({ kind: "client_closed" });
    },
    "an answer that is cut": (exchange, upstream) => {
      stream(exchange, upstream);
      fail(exchange, upstream, { beforeFirstByte: false });
      exchange.finish(cut);
    },
    "a status that is passed over and answered after all": (exchange, upstream) => {
      fail(exchange, upstream, { kind: "status", status: 503 });
      answer(exchange, upstream, { status: 503 });
    },
  };

  test.each(Object.entries(ends))("%s: its own share alone goes", async (_, end) => {
    const rig = await exchangeRig();
    const beside = rig.exchange(only(rig, "a"));
    begin(beside);
    const exchange = rig.exchange(only(rig, "a"));
    const upstream = begin(exchange);
    expect(inFlight(rig)).toEqual([2, 0]);
    end(exchange, upstream);
    expect(inFlight(rig)).toEqual([1, 0]);
    expect(rig.target("a").load.pendingPrefillTokens).toBeGreaterThan(0);
    beside.finish({ kind: "client_closed" });
    const { load } = rig.target("a");
    expect([load.inFlight, load.pendingPrefillTokens, load.outstandingOutputTokens]).toEqual([0, 0, 0]);
  });

  test("a second attempt: the first engine is free of it, the other one has it", async () => {
    const rig = await exchangeRig();
    const exchange = rig.exchange();
    const first = begin(exchange);
    fail(exchange, first);
    expect(inFlight(rig)).toEqual([0, 0]);
    const second = begin(exchange);
    expect(rig.target(second.key).load.inFlight).toBe(1);
    answer(exchange, second);
    expect(inFlight(rig)).toEqual([0, 0]);
  });
});

describe("the circuit breaker hears what is the engine's doing", () => {
  const blamed: (Failed & { readonly what: string })[] = [
    { what: "a connection that cannot be opened", kind: "connect" },
    { what: "a reset", kind: "reset" },
    { what: "silence", kind: "timeout" },
    { what: "what is no HTTP", kind: "protocol" },
    { what: "a status of 503", kind: "status", status: 503 },
  ];
  const blameless: (Failed & { readonly what: string })[] = [
    { what: "a full queue of our own", kind: "overloaded" },
    { what: "an answer that was not wanted", kind: "declined" },
    { what: "an attempt that was withdrawn", kind: "withdrawn" },
    { what: "a status of 429", kind: "status", status: 429 },
  ];

  test.each(blamed)("$what counts, and opens it in the end", async (failed) => {
    const rig = await exchangeRig();
    for (let count = 0; count < toOpen; count++) {
      expect(rig.engine("a").breaker.state).toBe("closed");
      run(rig, (exchange, upstream) => failOnce(exchange, upstream, failed));
    }
    expect(rig.engine("a").breaker.state).toBe("open");
  });

  test.each(blameless)("$what counts neither for nor against it", async (failed) => {
    const rig = await exchangeRig();
    for (let count = 0; count < 2 * toOpen; count++) {
      run(rig, (exchange, upstream) => failOnce(exchange, upstream, failed));
    }
    expect(rig.engine("a").breaker.state).toBe("closed");
    const fails = (): void => run(rig, failOnce);
    for (let count = 1; count < toOpen; count++) fails();
    run(rig, (exchange, upstream) => failOnce(exchange, upstream, failed));
    expect(rig.engine("a").breaker.state, "as a success it would end the row of failures").toBe("closed");
    fails();
    expect(rig.engine("a").breaker.state).toBe("open");
  });

  /** An engine that was too busy to answer anybody was thought to be well: its 429s ended each row of failures. */
  test("an answer of 429 that the client gets is no success", async () => {
    const rig = await exchangeRig();
    for (let count = 1; count < toOpen; count++) run(rig, failOnce);
    run(rig, (exchange, upstream) => answer(exchange, upstream, { status: 429 }));
    expect(rig.engine("a").breaker.state).toBe("closed");
    run(rig, failOnce);
    expect(rig.engine("a").breaker.state).toBe("open");
  });

  test.each([200, 404])("an answer of %i is one", async (status) => {
    const rig = await exchangeRig();
    for (let count = 1; count < toOpen; count++) run(rig, failOnce);
    run(rig, (exchange, upstream) => answer(exchange, upstream, { status }));
    run(rig, failOnce);
    expect(rig.engine("a").breaker.state).toBe("closed");
  });

  test("answers of 500 count against it", async () => {
    const rig = await exchangeRig();
    for (let count = 0; count < toOpen; count++) {
      run(rig, (exchange, upstream) => answer(exchange, upstream, { status: 500 }));
    }
    expect(rig.engine("a").breaker.state).toBe("open");
  });

  test("answers that begin well and are cut count against it in the end", async () => {
    const rig = await exchangeRig();
    for (let count = 0; count < 2 * toOpen; count++) {
      expect(rig.engine("a").breaker.state).toBe("closed");
      run(rig, (exchange, upstream) => {
        exchange.responseStarted(upstream, 200);
        exchange.firstByte();
        failOnce(exchange, upstream, { beforeFirstByte: false });
      });
    }
    expect(rig.engine("a").breaker.state).toBe("open");
  });

  test("an engine on trial whose client leaves is tried again by the next one", async () => {
    const rig = await exchangeRig();
    for (let count = 0; count < toOpen; count++) run(rig, failOnce);
    rig.time.advance(60_000);
    const { breaker } = rig.engine("a");
    expect([breaker.state, breaker.allows]).toEqual(["half-open", true]);
    run(rig, (exchange) => {
      expect(breaker.allows).toBe(false);
      exchange.finish({ kind: "client_closed" });
    });
    for (let trial = 0; trial < 2; trial++) run(rig, (exchange, upstream) => answer(exchange, upstream));
    expect(breaker.state).toBe("closed");
  });
});

describe("errors", () => {
  test("a failure is what the proxy says it is, and other ends leave nothing to answer with", async () => {
    const rig = await exchangeRig();
    const codeOf = (outcome: Parameters<DrivenSource["finish"]>[0]) => rig.exchange().finish(outcome)?.code;
    expect(codeOf(failedOutcome)).toBe("no_engine_available");
    expect(codeOf({ kind: "client_closed" })).toBeUndefined();
    expect(codeOf({ kind: "cut", error: new EspalierError("upstream_cut_short") })).toBeUndefined();
    expect(codeOf({ kind: "completed", status: 500, bytes: 1 })).toBeUndefined();
  });

  test("a stored response whose engine could not be asked is not found; one that failed has failed", async () => {
    const rig = await exchangeRig();
    const unasked = rig.exchange({ onlyEngine: "gone" });
    expect(unasked.next()).toBeUndefined();
    expect(unasked.finish(failedOutcome)?.code).toBe("response_not_found");
    const asked = rig.exchange({ onlyEngine: "a" });
    fail(asked, begin(asked));
    expect(asked.finish(failedOutcome)?.code).toBe("no_engine_available");
  });

  test.each([429, 503])(
    "a %i that says when to come again has the engine rest, while there is another",
    async (status) => {
      const rig = await exchangeRig();
      const exchange = rig.exchange();
      const upstream = begin(exchange);
      exchange.responseStarted(upstream, status, ["retry-after", "2"]);
      exchange.finish({ kind: "completed", status, bytes: 1 });
      const next = rig.exchange();
      const other = begin(next);
      expect(other.key).not.toBe(upstream.key);
      next.responseStarted(other, status, ["retry-after", "2"]);
      expect(rig.target(other.key).usable, "the last one is asked all the same").toBe(true);
      expect(rig.target(upstream.key).usable).toBe(false);
      rig.time.advance(2_000);
      expect(rig.target(upstream.key).usable).toBe(true);
    },
  );
});
