import { systemScheduler } from "@espalier/core";
import { onTestFinished } from "vitest";
import { tellChaos } from "./chaos-report.ts";
import type { RouterProcess } from "./router-process.ts";

export interface TrafficOptions {
  /** Asked for every request: who may be sent one now. */
  readonly routers: () => readonly RouterProcess[];
  /** Requests at a time. */
  readonly clients?: number;
  /** How often clients that have their answer ask again, in milliseconds. */
  readonly everyMs?: number;
  readonly maxTokens?: number;
  /** Asked for every failure: whether no router could have spared the client that. None unless given. */
  readonly isAllowed?: (failure: string) => boolean;
}

/** Streamed chats at a steady pace, one after the other from each client, the routers in turn. */
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
  const { routers, clients = 2, everyMs = 20, maxTokens = 8, isAllowed = () => false } = options;
  const failures: string[] = [];
  const allowed: string[] = [];
  let completed = 0;
  let asked = 0;
  const askNext = async (client: number, turn: number): Promise<void> => {
    const able = routers();
    const router = able[asked++ % able.length];
    const wrong = router ? await askStream(router.url, chatOf(client, turn, maxTokens)) : "nobody to ask";
    if (wrong === undefined) completed += 1;
    else (isAllowed(wrong) ? allowed : failures).push(`${router?.id}: ${wrong}`);
  };
  const turns = Array<number>(clients).fill(0);
  const open = new Map<number, Promise<void>>();
  const end = systemScheduler.every(everyMs, () => {
    for (const [client, turn] of turns.entries()) {
      if (open.has(client)) continue;
      turns[client] = turn + 1;
      open.set(
        client,
        askNext(client, turn).finally(() => open.delete(client)),
      );
    }
  });
  onTestFinished(end);
  return {
    get completed() {
      return completed;
    },
    failures,
    allowed,
    async stop() {
      end();
      await Promise.all(open.values());
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
