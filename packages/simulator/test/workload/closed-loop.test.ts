/** The pieces together, as a driver uses them: chats in virtual time against an engine that answers at a fixed rate. */
import { layOutTable } from "@espalier/core";
import { createVirtualTime } from "@espalier/testing";
import { expect, test } from "vitest";
import { type ChatMessage, chatSessions, type RequestResult, summarize } from "../../src/workload/index.ts";

const options = {
  users: 5,
  turns: 4,
  firstMessageTokens: 400,
  newTokensPerTurn: 150,
  outputTokens: 250,
  thinkTimeMeanMs: 2_000,
  sharedPrefixTokens: 100,
  seed: 11,
};
const msPerToken = 2;

/** Runs every chat to its end; the engine has cached whatever the same chat sent or received before. */
function drive(): readonly RequestResult[] {
  const { clock, scheduler, advance } = createVirtualTime();
  const results: RequestResult[] = [];
  for (const session of chatSessions(options)) {
    const messages: ChatMessage[] = session.systemText ? [{ role: "system", content: session.systemText }] : [];
    let knownTokens = 0;
    const send = (turn: number): void => {
      const plan = session.turns[turn];
      if (plan === undefined) return;
      messages.push({ role: "user", content: session.userText(turn) });
      const inputTokens = messages.reduce((sum, { content }) => sum + String(content).length / 4, 0);
      const startMs = clock.nowMs();
      const firstTokenMs = startMs + (inputTokens - knownTokens) * msPerToken;
      const endMs = firstTokenMs + (plan.outputTokens - 1) * msPerToken;
      const cachedTokens = knownTokens;
      scheduler.after(endMs - startMs, () => {
        messages.push({ role: "assistant", content: "out ".repeat(plan.outputTokens) });
        knownTokens = inputTokens + plan.outputTokens;
        results.push({
          index: results.length,
          session: session.id,
          turn,
          startMs,
          firstTokenMs,
          endMs,
          inputTokens,
          outputTokens: plan.outputTokens,
          cachedTokens,
          engine: "only",
          error: undefined,
          itlSumMs: endMs - firstTokenMs,
          itlCount: plan.outputTokens - 1,
        });
        scheduler.after(session.turns[turn + 1]?.thinkMs ?? 0, () => send(turn + 1));
      });
    };
    scheduler.after(session.turns[0]!.thinkMs, () => send(0));
  }
  advance(600_000);
  return results;
}

test("prompts grow by the answer and the next message, and only the first turn is cold", () => {
  const results = drive();
  expect(results).toHaveLength(20);
  for (const { turn, inputTokens, cachedTokens } of results) {
    expect(inputTokens).toBe(500 + turn * 400);
    expect(cachedTokens).toBe(turn === 0 ? 0 : inputTokens - 150);
  }
  const row = summarize(results, { speed: 10, engines: 1, policy: "none" });
  expect(row).toMatchObject({ requests: 20, errors: 0, load_cov: 0 });
  expect(row.itl_mean_s).toBeCloseTo(0.02);
  expect(row.ttft_mean_s).toBeCloseTo((500 + 3 * 150) * 0.25 * 0.02);
  expect(row.cached_share).toBeCloseTo((750 + 1_150 + 1_550) / (500 + 900 + 1_300 + 1_700));
  expect(row.followup_cached_share).toBeCloseTo((750 + 1_150 + 1_550) / (900 + 1_300 + 1_700));
  const table = layOutTable(
    [row],
    [
      { header: "policy", value: (one) => one.policy },
      { header: "cached (%)", value: (one) => one.cached_share! * 100, digits: 1 },
    ],
  );
  expect(table).toBe("policy  cached (%)\nnone          78.4\n");
});
