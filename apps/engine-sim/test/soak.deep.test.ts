import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { type Json, openRequest, parseEvents, startSim, type TestSim, untilIdle } from "./sim-client.ts";

const kinds = ["finish", "finish", "abort", "bad", "hang", "cut", "reset", "status"] as const;

interface Tally {
  readonly outcomes: Record<"finished" | "aborted" | "rejected" | "faulted", number>;
}

const promptOf = (index: number): string => `client ${index % 7} says ${"again and again ".repeat(index % 11)}`;

async function completeStream(sim: TestSim, body: Json): Promise<void> {
  const { text, error } = await openRequest(`${sim.url}/v1/completions`, body).ended;
  expect(error).toBeUndefined();
  const events = parseEvents(text);
  expect(events).toHaveLength((body.max_tokens as number) + 1);
  expect(events.at(-1)?.data).toBe("[DONE]");
}

/** One of the clients. */
async function act(
  sim: TestSim,
  index: number,
  kind: (typeof kinds)[number],
  tokens: number,
): Promise<keyof Tally["outcomes"]> {
  const body = { prompt: promptOf(index), max_tokens: tokens, stream: true };
  switch (kind) {
    case "finish":
      await completeStream(sim, body);
      return "finished";
    case "bad":
      expect((await sim.post("/v1/completions", { ...body, max_tokens: -1 })).status).toBe(400);
      return "rejected";
    case "abort": {
      const request = openRequest(`${sim.url}/v1/completions`, { ...body, max_tokens: 30_000 });
      await request.head;
      request.destroy();
      return "aborted";
    }
    default: {
      // Each faulty client has a path of its own, so that its fault hits nobody else.
      const path = { hang: "/v1/chat/completions", cut: "/generate", reset: "/v1/messages", status: "/v1/responses" }[
        kind
      ];
      const request = openRequest(sim.url + path, faultyBody(index));
      const head = await request.head;
      if (kind === "status") expect(head.statusCode).toBe(503);
      if (kind === "hang") request.destroy();
      await request.ended;
      return "faulted";
    }
  }
}

const faultyBody = (index: number): Json => ({
  messages: [{ role: "user", content: promptOf(index) }],
  text: promptOf(index),
  input: promptOf(index),
  max_tokens: 50,
  sampling_params: { max_new_tokens: 50 },
  stream: true,
});

test.each([1, 2, 3])(
  "clients that finish, leave, err and are failed leaves nothing behind: seed %i",
  async (seed) => {
    const random = createSeededRandom(seed);
    const sim = await startSim({ speed: 300, seed, parameters: { maxRunning: 8, blockCount: 4_000 } });
    for (const [kind, path] of [
      ["hang-mid-stream", "/v1/chat/completions"],
      ["cut-mid-stream", "/generate"],
      ["reset-mid-stream", "/v1/messages"],
      ["status", "/v1/responses"],
    ] as const) {
      expect((await sim.post("/sim/faults", { kind, path, afterTokens: 3 })).status).toBe(200);
    }
    const expected = { finished: 0, aborted: 0, rejected: 0, faulted: 0 };
    let next = 0;
    const client = async (): Promise<void> => {
      while (next < 120) {
        const index = next++;
        const kind = kinds[random.integer(kinds.length)] as (typeof kinds)[number];
        expected[await act(sim, index, kind, 1 + random.integer(40))]++;
      }
    };
    await Promise.all(Array.from({ length: 12 }, client));

    const state = await untilIdle(sim);
    expect(state.totals).toEqual({ ...expected, "dropped-slow-client": 0 });
    expect(state.stats).toMatchObject({ running: 0, waiting: 0, kvUse: 0, freeBlocks: 4_000 });
    expect(state.requests).toHaveLength(120);
    for (const { outcome, reports } of state.requests) {
      if (outcome !== "finished") continue;
      expect(reports).toHaveLength(1);
      expect(reports[0]?.finishReason).toBe("length");
    }
    // The statistics of the engine and the reports of its requests tell the same story.
    const reports = state.requests.flatMap(({ reports: own }) => own);
    const finished = reports.filter(({ finishReason }) => String(finishReason) === "length");
    const cached = finished.reduce((sum, { cachedTokens }) => sum + (cachedTokens as number), 0);
    expect(state.stats.prefixHits).toBeGreaterThanOrEqual(cached);
    expect(reports.every(({ cachedTokens, promptTokens }) => (cachedTokens as number) < (promptTokens as number))).toBe(
      true,
    );
  },
  30_000,
);

test("a thousand short requests at once are all answered", async () => {
  const sim = await startSim({ speed: 2_000 });
  const answers = await Promise.all(
    Array.from({ length: 1_000 }, (_, index) => sim.post("/v1/completions", { prompt: `${index}`, max_tokens: 2 })),
  );
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  const { totals, stats } = await untilIdle(sim);
  expect(totals.finished).toBe(1_000);
  expect(stats.generatedTokens).toBe(2_000);
}, 30_000);
