import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { infiniteCacheBound, readTraceLines, type TraceRequest } from "../../src/workload/index.ts";

const request = (fields: object = {}): object => ({
  ...{ t: 0, type: "n", model: "m", in: 640, out: 5, hash_ids: [[1, 10]], api_time: 2, think_time: 0 },
  ...fields,
});

const session = (requests: readonly unknown[], fields: object = {}): object => ({
  ...{ id: "one", models: ["m"], block_size: 64, hash_id_scope: "local", tool_tokens: 200, system_tokens: 100 },
  ...{ requests },
  ...fields,
});

const read = (...sessions: readonly object[]): readonly TraceRequest[] =>
  readTraceLines(
    "file",
    sessions.map((one) => JSON.stringify(one)),
  );

const idsOf = (one: TraceRequest | undefined): readonly number[] => [...(one?.blockIds ?? [])];

describe("a session", () => {
  test("becomes requests, with what they wait for: the answer before, and the time to think", () => {
    const requests = read(
      session([
        request(),
        request({ t: 12, type: "s", in: 700, hash_ids: [[1, 10]], think_time: 10, out: 0 }),
        request({
          t: 20,
          hash_ids: [
            [1, 9],
            [12, 1],
          ],
          think_time: undefined,
        }),
      ]),
    );
    expect(requests.map(({ blockIds: _, ...rest }) => rest)).toEqual([
      {
        ...{ index: 0, arrivalMs: 0, inputTokens: 640, outputTokens: 5, blockTokens: 64, sharedBlocks: 4 },
        ...{ session: "one", turn: 0, wait: { after: [], thinkMs: 0 } },
      },
      {
        ...{ index: 1, arrivalMs: 12_000, inputTokens: 700, outputTokens: 1, blockTokens: 64, sharedBlocks: 4 },
        ...{ session: "one", turn: 1, wait: { after: [0], thinkMs: 10_000 } },
      },
      {
        // Without a time to think, it is what is left after the answer: 20 - (12 + 2) s.
        ...{ index: 2, arrivalMs: 20_000, inputTokens: 640, outputTokens: 5, blockTokens: 64, sharedBlocks: 4 },
        ...{ session: "one", turn: 2, wait: { after: [1], thinkMs: 6_000 } },
      },
    ]);
    const [first, second, third] = requests.map(idsOf);
    expect(second).toEqual(first);
    expect(third!.slice(0, 9)).toEqual(first!.slice(0, 9));
    expect(third![9]).not.toBe(first![9]);
  });

  test("has names of its own, but for tools and system prompt of the same size", () => {
    const like = (id: string, tools: number, system: number) =>
      session([request()], { id, tool_tokens: tools, system_tokens: system });
    const [one, same, otherSystem, otherTools] = read(
      like("one", 200, 200),
      like("same", 200, 200),
      like("other system", 200, 300),
      like("other tools", 264, 200),
    ).map(idsOf);
    const alike = (other: readonly number[]) => one!.filter((id, at) => other[at] === id).length;
    // Whole blocks: 3 of tools, 6 with the system prompt.
    expect([alike(same!), alike(otherSystem!), alike(otherTools!)]).toEqual([6, 3, 0]);
    expect(new Set([...one!, ...same!, ...otherSystem!, ...otherTools!]).size).toBe(40 - 6 - 3);
  });

  test("of two sessions the second finds tools and system prompt in a cache that never evicts", () => {
    const sessions = [session([request()]), session([request()], { id: "two" })];
    expect(infiniteCacheBound(read(...sessions))).toBeCloseTo((4 * 64) / 1_280);
  });

  test("a prompt shorter than its tools and system prompt is shared as far as it goes", () => {
    const short = { in: 128, hash_ids: [[1, 2]] };
    const [one, two] = read(session([request(short)]), session([request(short)], { id: "two" }));
    expect([one!.sharedBlocks, two!.sharedBlocks]).toEqual([2, 2]);
    expect(idsOf(one)).toEqual(idsOf(two));
  });

  test("a limit keeps the first requests of the file, with what they wait for", () => {
    const lines = [session([request(), request({ t: 9 })]), session([request()], { id: "two" })].map((one) =>
      JSON.stringify(one),
    );
    const requests = readTraceLines("file", lines, { limit: 2 });
    expect(requests.map((one) => [one.session, one.turn, one.wait?.after])).toEqual([
      ["one", 0, []],
      ["one", 1, [0]],
    ]);
  });
});

test("blocks have the same name in two places just when the trace says so, whatever prompts keep and drop", () => {
  const runs = fc.array(fc.tuple(fc.integer({ min: 0, max: 30 }), fc.integer({ min: 1, max: 12 })), {
    minLength: 1,
    maxLength: 4,
  });
  const drawn = fc.record({
    prompts: fc.array(runs, { minLength: 1, maxLength: 6 }),
    tools: fc.integer({ min: 0, max: 9 }),
  });
  fc.assert(
    fc.property(fc.array(drawn, { minLength: 1, maxLength: 4 }), (sessions) => {
      const localOf = (prompt: readonly (readonly [number, number])[]) =>
        prompt.flatMap(([first, count]) => Array.from({ length: count }, (_, at) => first + at));
      const requests = read(
        ...sessions.map(({ prompts, tools }, number) =>
          session(
            prompts.map((prompt, t) => request({ t, in: 64 * localOf(prompt).length, hash_ids: prompt })),
            { id: String(number), tool_tokens: 64 * tools, system_tokens: 0 },
          ),
        ),
      );
      const meaning = new Map<number, string>();
      const nameOf = new Map<string, number>();
      for (const { session: id, turn, blockIds, sharedBlocks } of requests) {
        const { prompts, tools } = sessions[Number(id)]!;
        const first = localOf(prompts[0]!);
        const kept = Math.min(tools, first.length);
        for (const [place, local] of localOf(prompts[turn]!).entries()) {
          const at = place < kept ? first.indexOf(local) : -1;
          const is = at !== -1 && at < kept ? `tools ${kept} of ${tools}: ${at}` : `session ${id}: ${local}`;
          const name = blockIds![place]!;
          expect(meaning.get(name) ?? is).toBe(is);
          expect(nameOf.get(is) ?? name).toBe(name);
          meaning.set(name, is);
          nameOf.set(is, name);
          if (place < sharedBlocks!) expect(is).toMatch(/^tools/);
        }
      }
    }),
    { numRuns: randomRuns(300) },
  );
});

describe("a sub-agent", () => {
  const subAgent = (t: number, durationS: number | null, requests: readonly unknown[]): object => ({
    ...{ t, type: "subagent", duration_ms: durationS === null ? null : durationS * 1_000, requests },
    ...{ tool_tokens: 64, system_tokens: 64 },
  });
  const own = (t: number) => request({ t, hash_ids: [[100, 10]], think_time: 1 });
  const waits = (requests: readonly TraceRequest[]) =>
    requests.map(({ turn, arrivalMs, wait }) => [turn, arrivalMs / 1_000, wait!.after, wait!.thinkMs / 1_000]);

  test("starts so long before its result as it took, and the next request waits for it", () => {
    const requests = read(
      session([request(), subAgent(23, 20, [own(0), own(10)]), request({ t: 30, think_time: 28 })]),
    );
    expect(waits(requests)).toEqual([
      [0, 0, [], 0],
      [1, 3, [0], 1],
      [2, 13, [1], 1],
      // The last of what it waits for ended at 15 s.
      [3, 30, [0, 2], 15],
    ]);
    expect(requests[1]!.sharedBlocks).toBe(2);
  });

  test("that still works when the next request is sent holds nothing up", () => {
    const requests = read(
      session([request(), subAgent(40, 35, [own(0), own(30)]), request({ t: 20, think_time: 18 })]),
    );
    expect(waits(requests)).toEqual([
      [0, 0, [], 0],
      [1, 5, [0], 3],
      [2, 20, [0], 18],
      [3, 35, [1], 1],
    ]);
  });

  test("several run beside each other, and one without a duration starts at its own time", () => {
    const requests = read(
      session([request(), subAgent(5, null, [own(0)]), subAgent(9, 6, [own(0)]), request({ t: 20 })]),
    );
    expect(requests.map(({ wait }) => wait!.after)).toEqual([[], [0], [0], [0, 2, 1]]);
  });

  test("without requests is nothing to wait for; sub-agents may call others", () => {
    expect(read(session([request(), subAgent(5, 1, []), request({ t: 20 })]))[1]!.wait!.after).toEqual([0]);
    const inner = subAgent(6, 3, [own(0)]);
    const requests = read(session([request(), subAgent(20, 17, [own(0), inner, own(12)])]));
    expect(requests.map(({ wait }) => wait!.after)).toEqual([[], [0], [1], [1, 2]]);
  });

  test("deeper than eight in each other is refused, and eight are not", () => {
    const nested = (depth: number): object => subAgent(5, 1, depth === 1 ? [own(0)] : [own(0), nested(depth - 1)]);
    expect(read(session([request(), nested(8)]))).toHaveLength(9);
    expect(() => read(session([request(), nested(9)]))).toThrow(/sub-agents within each other: more than 8/);
  });
});

describe("what is wrong is named with line and field", () => {
  test.each<readonly [string, object, string]>([
    ["scope", session([request()], { hash_id_scope: "global" }), "hash_id_scope: must be local"],
    ["no requests", session([], { requests: {} }), "requests: must be a list of requests"],
    ["block size", session([request()], { block_size: 0 }), "block_size: must be a whole number of at least 1"],
    ["large blocks", session([request()], { block_size: 2 ** 23 }), "block_size: must be at most 4194304"],
    ["no name", session([request()], { id: "" }), "id: must be a number or a string"],
    ["tools", session([request()], { tool_tokens: -1 }), "tool_tokens: must be a whole number"],
    ["no object", session([7]), "requests[0]: must be an object"],
    ["type", session([request({ type: "x" })]), "requests[0].type: must be n, s or subagent"],
    ["time", session([request({ t: -1 })]), "requests[0].t: must be from 0 to"],
    ["order", session([request({ t: 5 }), request({ t: 4 })]), "requests[1].t: is before the request above it"],
    ["pause", session([request(), request({ t: 5, think_time: "x" })]), "requests[1].think_time: must be a number"],
    ["input", session([request({ in: 0 })]), "requests[0].in: must be a whole number of at least 1"],
    ["one token too many", session([request({ in: 2 ** 22 + 1 })]), "requests[0].in: must be at most 4194304"],
    ["runs", session([request({ hash_ids: 7 })]), "requests[0].hash_ids: must be a list of runs"],
    ["pairs", session([request({ hash_ids: [[1, 2, 3]] })]), "requests[0].hash_ids: must hold runs"],
    [
      "too few",
      session([request({ hash_ids: [[1, 9]] })]),
      "requests[0].hash_ids: must name 10 or 10 blocks for 640 tokens, names 9",
    ],
    ["empty run", session([request({ hash_ids: [[1, 0]] })]), "requests[0].hash_ids: must be a whole number"],
    [
      "names",
      session([request({ hash_ids: [[2 ** 24 - 9, 10]] })]),
      "requests[0].hash_ids: must hold numbers below 16777216",
    ],
    [
      "within a sub-agent",
      session([
        request(),
        { type: "subagent", t: 3, requests: [request({ out: -1 })], tool_tokens: 1, system_tokens: 1 },
      ]),
      "requests[1].requests[0].out: must be a whole number",
    ],
  ])("%s", (_, line, message) => {
    expect(() => read(session([request()], { id: "before" }), line)).toThrow(`file:2: ${message.split(": ")[0]}`);
    expect(() => read(session([request()], { id: "before" }), line)).toThrow(message);
  });

  test("a session's name is there once", () => {
    expect(() => read(session([request()]), session([request()]))).toThrow(
      'file:2: id: "one" names an earlier session',
    );
  });

  test("a trace of sessions without requests holds none", () => {
    expect(() => readTraceLines("file", [JSON.stringify(session([]))])).toThrow("file: holds no request");
  });
});
