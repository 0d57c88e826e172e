import { fileURLToPath } from "node:url";
import {
  createPromptSynthesizer,
  infiniteCacheBound,
  readTrace,
  type TraceRequest,
  traceSessions,
  wordTokenIds,
} from "@espalier/simulator";
import { sharedPath } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { publishingSims } from "./cache-rig.ts";
import { ask, type Turn } from "./cached-turns.ts";
import { meshRouters, untilFolded, untilRead } from "./mesh-rig.ts";
import { createRig } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const traces = {
  invented: fileURLToPath(new URL("../../examples/traces/agent-sessions.jsonl.gz", import.meta.url)),
  recorded: sharedPath("traces", "claude_code_355.jsonl.gz"),
};

/** Longer prompts take long to be computed, even by engines that are not real. */
const mostTokens = 40_000;
/** What a session computes and what it finds again shows in its first requests; those of three sessions mix. */
const requestsOfSession = 9;
const mostRequests = 27;

/** The beginnings of the trace's first small sessions, one request after the other in the order of the trace. */
async function smallSessions(path: string) {
  const small: TraceRequest[] = [];
  for (const whole of traceSessions(await readTrace(path)) ?? []) {
    const session = whole.slice(0, requestsOfSession);
    if (session.length < 4 || session.some((one) => one.inputTokens > mostTokens)) continue;
    if (small.length + session.length <= mostRequests) small.push(...session);
  }
  return small.sort((one, other) => one.index - other.index);
}

const present = Object.entries(traces).filter((one): one is [string, string] => one[1] !== undefined);

test.each(present)(
  "%s sessions of agents at three routers in turn: each predicts what engines report, and finds what was sent",
  async (_, path) => {
    const sims = await publishingSims(rig, 4, {
      speed: 200,
      parameters: { maxModelLength: 65_536, blockCount: 400_000 },
    });
    const routers = await meshRouters(rig, 3, sims);
    await untilRead(routers, sims.length);
    const requests = await smallSessions(path);
    expect(new Set(requests.map((one) => one.session)).size).toBeGreaterThan(2);
    const synthesize = createPromptSynthesizer({ seed: 1 });
    const turns: Turn[] = [];
    for (const [at, request] of requests.entries()) {
      const prompt = wordTokenIds(synthesize(request) as string);
      turns.push(await ask(routers[at % 3]!, "/v1/completions", { prompt, max_tokens: 4 }));
      await untilFolded(routers, sims);
    }
    expect(turns.map(({ status }) => status)).toEqual(turns.map(() => 200));
    expect(turns.map(({ predicted }) => predicted)).toEqual(turns.map(({ cached }) => cached));
    expect(turns.map(({ promptTokens }) => promptTokens)).toEqual(requests.map((one) => one.inputTokens));
    const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
    const share = sum(turns.map(({ cached }) => cached)) / sum(turns.map(({ promptTokens }) => promptTokens));
    const bound = infiniteCacheBound(requests)!;
    expect(bound).toBeGreaterThan(0.8);
    expect(Math.abs(share - bound)).toBeLessThan(0.01);
  },
);
