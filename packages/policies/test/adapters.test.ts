/** LoRA adapters in decisions: what each state is worth, and where an adapter goes that nobody has. */
import { adapterState, createPolicy, type RequestFeatures } from "@espalier/policies";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { anyRequest, byKey, type CandidateRow, candidatesOf, chiSquareExcess, ofTokens, tally } from "./helpers.ts";

const { none, waiting, room, active } = adapterState;
const unknown = Number.NaN;

const forAdapter = (adapter: string, promptTokens = 4_000): RequestFeatures => ({ ...ofTokens(promptTokens), adapter });
const asked = forAdapter("sql");

/** Candidates e0, e1, ... with these states. */
const withStates = (...states: readonly number[]): CandidateRow[] =>
  states.map((state, i) => ({ key: `e${i}`, adapterState: state }));

const onlyAffinity = {
  "queue-weight": 0,
  "kv-cache-utilization-weight": 0,
  "prefix-cache-weight": 0,
  "lora-affinity-weight": 1,
};

const termsOf = (name: "epp_weighted" | "least_work", term: string, options: Readonly<Record<string, number>>) => {
  return (rows: readonly CandidateRow[], request = asked): (number | null | undefined)[] =>
    createPolicy(name, options)
      .explain(request, candidatesOf(rows))
      .candidates.map(({ terms }) => terms[term]);
};

/** The only one that is chosen. */
function chosen(name: "epp_weighted" | "least_work", rows: readonly CandidateRow[], request: RequestFeatures): string {
  const options = name === "epp_weighted" ? onlyAffinity : {};
  const shares = byKey(createPolicy(name, options).explain(request, candidatesOf(rows)));
  const certain = Object.entries(shares).filter(([, share]) => share === 1);
  expect(certain, JSON.stringify(shares)).toHaveLength(1);
  return certain[0]![0];
}

describe("epp_weighted with lora-affinity-weight", () => {
  const affinities = (...args: Parameters<ReturnType<typeof termsOf>>): number[] =>
    termsOf("epp_weighted", "lora_affinity", onlyAffinity)(...args).map((term) => 0 - term!);

  test("loaded 1, room 0.8, waited for 0.6, else 0, as in the Gateway API's picker", () => {
    expect(affinities(withStates(active, room, waiting, none))).toEqual([1, 0.8, 0.6, 0]);
  });

  test("who does not tell has the mean of those that do", () => {
    expect(affinities(withStates(active, unknown, waiting))).toEqual([1, 0.8, 0.6]);
  });

  test("a request without an adapter, or of which nothing is known, tells nobody from another", () => {
    expect(affinities(withStates(unknown, unknown), anyRequest)).toEqual([0.5, 0.5]);
    expect(affinities(withStates(unknown, unknown)).filter((affinity) => affinity === 1)).toHaveLength(1);
  });

  test("is off by default", () => {
    const { candidates } = createPolicy("epp_weighted").explain(asked, candidatesOf(withStates(active, none)));
    for (const { terms } of candidates) expect(Object.keys(terms)).not.toContain("lora_affinity");
  });
});

describe("least_work with adapter-load-tokens", () => {
  const costs = (...args: Parameters<ReturnType<typeof termsOf>>) =>
    termsOf("least_work", "adapter_load_tokens", { "adapter-load-tokens": 500 })(...args);

  test("a load, and a second one for what has to be given up; nothing where it is loaded or will be", () => {
    expect(costs(withStates(active, waiting, room, none, unknown))).toEqual([0, 0, 500, 1_000, 500]);
  });

  test("for its weight", () => {
    const rows = withStates(active, room, none).map((row) => ({ ...row, weight: 2 }));
    expect(costs(rows)).toEqual([0, 250, 500]);
  });

  test("nothing for a request without an adapter", () => {
    expect(costs(withStates(active, room, none), anyRequest)).toEqual([0, 0, 0]);
  });

  test("the adapter stays where it is until that costs more work than loading it", () => {
    const at = (pendingPrefillTokens: number): CandidateRow[] => [
      { key: "has", adapterState: active, pendingPrefillTokens },
      { key: "empty", adapterState: room },
    ];
    // The default is 1,024 tokens, and 64 count as nothing.
    expect(chosen("least_work", at(900), asked)).toBe("has");
    expect(chosen("least_work", at(1_100), asked)).toBe("empty");
  });

  test("at 0 it knows of no adapters", () => {
    const policy = createPolicy("least_work", { "adapter-load-tokens": 0 });
    expect(byKey(policy.explain(asked, candidatesOf(withStates(active, none))))).toEqual({ e0: 0.5, e1: 0.5 });
  });
});

describe.each(["epp_weighted", "least_work"] as const)("%s: an adapter that nobody has", (name) => {
  const options = name === "epp_weighted" ? onlyAffinity : {};
  const adapters = Array.from({ length: 400 }, (_, number) => `adapter-${number}`);

  test("goes to the same engine, whoever asks and in whatever order engines are", () => {
    const rows = withStates(room, room, room, unknown, room);
    for (const adapter of adapters.slice(0, 40)) {
      const home = chosen(name, rows, forAdapter(adapter));
      expect(chosen(name, rows.toReversed(), forAdapter(adapter, 9_000))).toBe(home);
      expect(tally(createPolicy(name, options), rows, 20, forAdapter(adapter)).byKey[home]).toBe(20);
    }
  });

  test("different ones go to all engines alike, by weight", () => {
    const rows = withStates(room, room, room, room).map((row, i) => ({ ...row, weight: i === 0 ? 2 : 1 }));
    const counts = [0, 0, 0, 0];
    for (const adapter of adapters) {
      const homes = termsOf(
        name,
        name === "epp_weighted" ? "lora_affinity" : "adapter_load_tokens",
        options,
      )(rows, forAdapter(adapter));
      const home = homes.findIndex((term) => term === (name === "epp_weighted" ? -1 : 0));
      counts[home]! += 1;
    }
    expect(chiSquareExcess(counts, [160, 80, 80, 80])).toBeLessThan(1);
  });

  test("when an engine goes, only its own adapters move", () => {
    const rows = withStates(room, room, room, room);
    for (const adapter of adapters.slice(0, 100)) {
      const home = chosen(name, rows, forAdapter(adapter));
      const left = rows.filter(({ key }) => key !== "e2");
      if (home !== "e2") expect(chosen(name, left, forAdapter(adapter))).toBe(home);
    }
  });

  test("goes where there is room while anybody has some, and anywhere else only then", () => {
    for (const adapter of adapters.slice(0, 40)) {
      expect(chosen(name, withStates(none, none, room, none), forAdapter(adapter))).toBe("e2");
    }
    const homes = adapters.slice(0, 40).map((adapter) => chosen(name, withStates(none, none), forAdapter(adapter)));
    expect(new Set(homes)).toEqual(new Set(["e0", "e1"]));
  });

  test("goes to an engine where requests for it wait already", () => {
    const score = name === "epp_weighted" ? { ...onlyAffinity } : {};
    const rows = withStates(none, waiting, none);
    expect(byKey(createPolicy(name, score).explain(asked, candidatesOf(rows)))).toEqual({ e0: 0, e1: 1, e2: 0 });
  });
});

test("least_work: the home of an adapter gives way to less work elsewhere", () => {
  const rows = withStates(room, room, room);
  const home = chosen("least_work", rows, asked);
  const busy = rows.map((row) => (row.key === home ? { ...row, pendingPrefillTokens: 1_200 } : row));
  expect(byKey(createPolicy("least_work").explain(asked, candidatesOf(busy)))[home]).toBe(0);
});

test.each([
  ["epp_weighted", onlyAffinity],
  ["least_work", {}],
] as const)("%s: a better state never makes an engine less likely", (name, options) => {
  // From the worst to the best in the eyes of each.
  const order = name === "epp_weighted" ? [none, waiting, room, active] : [none, room, waiting, active];
  fc.assert(
    fc.property(
      fc.array(fc.record({ state: fc.nat(3), pendingPrefillTokens: fc.nat(3_000) }), { minLength: 2, maxLength: 6 }),
      fc.nat(2),
      (drawn, better) => {
        // Somebody has it, so that nobody's state makes another one its home.
        const rows = drawn.map(({ state, ...row }, i) => ({ ...row, key: `e${i}`, adapterState: order[state]! }));
        rows.push({ key: "holder", adapterState: active, pendingPrefillTokens: 2_000 });
        const step = (i: number) => (i === 0 ? order[Math.min(3, drawn[0]!.state + better)]! : rows[i]!.adapterState);
        const improved = rows.map((row, i) => ({ ...row, adapterState: step(i) }));
        const share = (some: readonly CandidateRow[]): number =>
          byKey(createPolicy(name, options).explain(asked, candidatesOf(some))).e0!;
        expect(share(improved)).toBeGreaterThanOrEqual(share(rows) - 1e-9);
      },
    ),
  );
});
