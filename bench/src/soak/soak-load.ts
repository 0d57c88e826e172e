import type { Clock, Random, Scheduler } from "@espalier/core";
import { type Answer, chatSessions, type LoadClient, runClosedLoop } from "@espalier/simulator";
import { benchModel } from "../support/bench-model.ts";
import { pauseFor } from "../support/until.ts";

/** A router from the viewpoint of the load's clients. */
export interface LoadTarget {
  readonly url: string;
  /** Whether the process was killed, which cuts the answers it had begun. */
  readonly wasKilled: boolean;
}

export interface SoakLoadOptions {
  /** Called for every request: the routers that a load balancer would use. */
  readonly routers: () => readonly LoadTarget[];
  /** Whether the engine with this id was killed, which cuts the answers it had begun. */
  readonly wasEngineKilled: (engine: string) => boolean;
  /** Concurrent conversations. */
  readonly clients: number;
  /** Pause after each answer. */
  readonly pauseMs: number;
  readonly client: LoadClient;
  readonly clock: Clock;
  readonly scheduler: Scheduler;
  readonly random: Random;
  /** Ends the load; waits for requests in flight. */
  readonly signal: AbortSignal;
}

/** Results of the load so far. */
export interface LoadCounts {
  sessions: number;
  requests: number;
  completed: number;
  /** Sent again because the connection was refused: nothing was listening. */
  retried: number;
  /** Cut because the answering process was killed, which no router can prevent. */
  cutByKills: number;
  /** The first failures as sentences; `failed` counts all. */
  readonly failures: string[];
  failed: number;
}

const turns = 6;
const outputTokens = 24;
const keptFailures = 50;
const maxAttempts = 3;
const failedHeader = "x-espalier-failed-engine";

/** Runs conversations of six turns, each turn at any router, until the signal ends them. */
export async function runSoakLoad(options: SoakLoadOptions, counts: LoadCounts): Promise<void> {
  const session = () => () => runSession(options, counts, counts.sessions++);
  await runClosedLoop(session, options.clients, options.signal);
}

export function createLoadCounts(): LoadCounts {
  return { sessions: 0, requests: 0, completed: 0, retried: 0, cutByKills: 0, failures: [], failed: 0 };
}

async function runSession(options: SoakLoadOptions, counts: LoadCounts, number: number): Promise<void> {
  const { scheduler, signal, pauseMs } = options;
  const [session] = chatSessions({
    ...{ users: 1, turns, firstMessageTokens: 512, newTokensPerTurn: 96, outputTokens, thinkTimeMeanMs: 0 },
    ...{ sharedPrefixTokens: 128, seed: number + 1 },
  });
  if (!session) return;
  const messages = [{ role: "system", content: session.systemText ?? "" }];
  for (let turn = 0; turn < turns && !signal.aborted; turn++) {
    messages.push({ role: "user", content: session.userText(turn) });
    const text = await sendTurn(options, counts, {
      ...{ model: benchModel, messages, max_tokens: outputTokens, ignore_eos: true, stream: true },
      stream_options: { include_usage: true },
    });
    messages.push({ role: "assistant", content: text });
    await pauseFor(pauseMs, scheduler);
  }
}

/** @returns the text of the answer; empty when there was none */
async function sendTurn(options: SoakLoadOptions, counts: LoadCounts, body: object): Promise<string> {
  counts.requests += 1;
  const text = JSON.stringify(body);
  for (let attempt = 1; ; attempt++) {
    const able = options.routers();
    const router = able[options.random.integer(Math.max(1, able.length))];
    if (!router) return fail(counts, "no router to send to");
    const request = {
      url: router.url,
      path: "/v1/chat/completions",
      body: text,
      keepText: true,
      keepHeaders: [failedHeader],
    };
    const answer = await options.client.send(request);
    if (answer.error === undefined) {
      counts.completed += 1;
      return answer.text;
    }
    if (answer.error.includes("ECONNREFUSED") && attempt < maxAttempts) {
      counts.retried += 1;
      continue;
    }
    if (router.wasKilled || wasCutByEngine(options, answer)) {
      counts.cutByKills += 1;
      return "";
    }
    return fail(counts, `${router.url}, engine ${answer.engine ?? "unknown"}: ${answer.error}`);
  }
}

/**
 * Whether the engine that had begun to answer was killed. Once the head of its answer had come, no other one is asked, and the
 * error names it.
 */
function wasCutByEngine(
  { wasEngineKilled }: SoakLoadOptions,
  { engine, firstTokenMs, headers, errorCode }: Answer,
): boolean {
  const failed = errorCode === "upstream_reset" ? headers?.[failedHeader] : undefined;
  const begun = Number.isNaN(firstTokenMs) ? failed : engine;
  return begun !== undefined && wasEngineKilled(begun);
}

function fail(counts: LoadCounts, why: string): string {
  counts.failed += 1;
  if (counts.failures.length < keptFailures) counts.failures.push(why);
  return "";
}
