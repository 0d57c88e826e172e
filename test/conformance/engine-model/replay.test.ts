import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { CapturedSession } from "@espalier/bench";
import { sharedPath } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { type Capture, readCapture } from "./capture.ts";
import { type EpochResult, replayEpoch } from "./replay.ts";

/**
 * What is not compared, and why. Everything else must agree: `cached_tokens` of every request, the contents that become
 * reusable in their order, and the contents evicted in their order.
 */
const reasons: readonly string[] = [
  // The stream was cut, so there is no final chunk. The request is modelled: it is dropped where its blocks end.
  "aborted: the answer has no usage",
  // The answer sums up its siblings. They are modelled, and their blocks are compared.
  "n > 1: one figure for several sequences",
  // The engine's own tokenizer endpoint gave another prompt than the engine used. Modelled as far as events show it.
  "the engine's prompt is not the captured one",
  // Preemption among requests that outgrow the cache together: only evictions of older content are compared.
  "more at the same time than there are blocks: who is preempted depends on the engine's speed",
  "the capture does not tell the prompt",
  "which data-parallel rank served it is not known",
  // From such a phase to the next reset of the cache.
  "the cache is not known since a phase that was not modelled",
];

const fixtures = sharedPath("fixtures");
const folders = fixtures ? readdirSync(fixtures).filter((name) => /^(vllm|sglang)-\d/.test(name)) : [];

describe.skipIf(!fixtures)("captured engines", () => {
  test.each(folders)("%s: the same hits and the same evictions", (folder) => {
    const capture = readCapture(join(fixtures!, folder));
    const totals = { requests: 0, evictions: 0, stored: 0, excluded: 0 };
    for (const [session, endpoint] of epochsOf(capture)) {
      const epoch = replayEpoch(capture, session, endpoint);
      const where = `${folder}, epoch ${session.session} (${session.label}), rank ${endpoint}`;
      expectAgreement(epoch, where);
      totals.requests += epoch.compared.length;
      totals.excluded += epoch.excluded.length;
      totals.evictions += epoch.stretches.reduce((sum, stretch) => sum + stretch.engine.flat().length, 0);
      totals.stored += epoch.stored.reduce((sum, stretch) => sum + stretch.engine.length, 0);
    }
    process.stdout.write(`${folder}: ${JSON.stringify(totals)}\n`);
    expect(totals.requests).toBeGreaterThan(50);
    expect(totals.evictions).toBeGreaterThan(300);
    expect(totals.stored).toBeGreaterThan(300);
    expect(totals.excluded).toBeLessThan(totals.requests / 2);
  });
});

/** Every epoch and rank but those of hybrid models, whose sliding-window layers keep blocks of their own. */
function epochsOf(capture: Capture): [CapturedSession, number][] {
  return capture.sessions.flatMap((session) => {
    const messages = capture.messages.filter((message) => message.session === session.session);
    if (messages.some((message) => message.hybrid)) return [];
    return [...new Set(messages.map((message) => message.endpoint))].map((endpoint): [CapturedSession, number] => [
      session,
      endpoint,
    ]);
  });
}

function expectAgreement(epoch: EpochResult, where: string): void {
  for (const { id, phase, engine, model } of epoch.compared) {
    expect(model, `${where}: cached tokens of request ${id} (${phase})`).toBe(engine);
  }
  for (const { name, engine, model } of epoch.stretches) expect(model, `${where}: evictions, ${name}`).toEqual(engine);
  for (const { name, engine, model } of epoch.stored) expect(model, `${where}: stored, ${name}`).toEqual(engine);
  for (const { reason } of epoch.excluded) expect(reasons).toContain(reason);
}
