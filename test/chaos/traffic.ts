import { systemScheduler } from "@espalier/core";
import { onTestFinished } from "vitest";
import { tellChaos } from "./chaos-report.ts";
import type { RouterProcess } from "./router-process.ts";

export interface TrafficOptions {
  /** Asked for every request: who may be sent one now. */
  readonly routers: () => readonly RouterProcess[];
  /** Requests at a time. */
  readonly clients?: number;
  readonly pauseMs?: number;
  readonly maxTokens?: number;
  /** Asked for every failure: whether no router could have spared the client that. None unless given. */
  readonly isAllowed?: (failure: string) => boolean;
}

/** Streamed chats, one after the other from each client, the routers in turn. */
export interface Traffic {
  readonly completed: number;
  /** What went wrong and should not have, one sentence per request. */
  readonly failures: readonly string[];
  /** What went wrong and was allowed to. */
  readonly allowed: readonly string[];
  /** Lets the requests that are open end, and sends no more. */
  stop(): Promise<void>;
}

export function startTraffic(options: TrafficOptions): Traffic {
  const { routers, clients = 2, pauseMs = 20, maxTokens = 8, isAllowed = () => false } = options;
  const failures: string[] = [];
  const allowed: string[] = [];
  let completed = 0;
  let isRunning = true;
  let asked = 0;
  const client = async (number: number): Promise<void> => {
    for (let turn = 0; isRunning; turn++) {
      const able = routers();
      const router = able[asked++ % able.length];
      const wrong = router ? await askStream(router.url, chatOf(number, turn, maxTokens)) : "nobody to ask";
      if (wrong === undefined) completed += 1;
      else (isAllowed(wrong) ? allowed : failures).push(`${router?.id}: ${wrong}`);
      await pause(pauseMs);
    }
  };
  const ended = Promise.all(Array.from({ length: clients }, (_, number) => client(number)));
  onTestFinished(() => {
    isRunning = false;
  });
  return {
    get completed() {
      return completed;
    },
    failures,
    allowed,
    async stop() {
      isRunning = false;
      await ended;
      const reported = completed + failures.length + allowed.length;
      const counts = { completed, allowedFailures: allowed.length, failures: failures.length };
      tellChaos({ requests: asked, ...counts, lost: asked - reported });
    },
  };
}

/** A conversation that grows by a sentence per turn and begins anew after some. */
function chatOf(client: number, turn: number, maxTokens: number) {
  const round = Math.floor(turn / 6);
  const lines = Array.from({ length: 1 + (turn % 6) }, (_, line) => `Line ${line} of round ${round}.`);
  return {
    model: "tiny",
    messages: [{ role: "user", content: `Client ${client} tells a long story about ships. ${lines.join(" ")}` }],
    max_tokens: maxTokens,
    stream: true,
  };
}

/** @returns what went wrong; undefined for an answer that came to its end */
async function askStream(url: string, body: unknown): Promise<string | undefined> {
  try {
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const text = await response.text();
    if (response.status !== 200) return `status ${response.status}: ${text.slice(0, 300)}`;
    return text.endsWith("data: [DONE]\n\n") ? undefined : `cut after ${text.length} bytes: ${text.slice(-200)}`;
  } catch (error) {
    return error instanceof Error ? `${error.message} ${String(error.cause ?? "")}` : String(error);
  }
}

export function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => systemScheduler.after(delayMs, resolve));
}
