import { systemScheduler } from "@espalier/core";
import { type ChatStyle, chatStyles, instructionsOf, type Message, readAnswer, requestOf } from "./chat-styles.ts";

/** The result of one turn of a conversation. */
export interface TurnResult {
  readonly session: number;
  readonly style: ChatStyle | "completion";
  readonly turn: number;
  readonly engine: string;
  readonly promptTokens: number;
  /** From the router's response header. */
  readonly predictedTokens: number;
  /** From the engine's usage. */
  readonly cachedTokens: number;
}

export interface ChatRunOptions {
  /** URL of the router for the next request; called once per request. */
  readonly url: () => string;
  readonly model: string;
  readonly sessions: number;
  /** Number of the first session, so that sessions differ from those of an earlier run; 0 by default. */
  readonly firstSession?: number;
  /** Called before each request; resolves when the router has received all earlier events. */
  readonly settled: () => Promise<void>;
}

/** Conversations that continue over several calls, each in its own style. */
export interface ChatRun {
  /** Every session's next `turns` turns, one request at a time. */
  advance(turns: number): Promise<readonly TurnResult[]>;
}

const systemPrompt =
  "You keep the logbook of a lighthouse. Answer in short sentences, give dates in full, name the wind by its quarter " +
  "and its strength, and say when an entry is missing rather than guess what it may have been.";

/** @throws Error when a request fails, or its answer lacks what is compared */
export function createChatRun({ url, model, sessions, firstSession = 0, settled }: ChatRunOptions): ChatRun {
  const histories: Message[][] = Array.from({ length: sessions }, () => []);
  const turnsDone = new Array<number>(sessions).fill(0);
  const ask = async (index: number): Promise<TurnResult> => {
    const session = firstSession + index;
    const history = histories[index]!;
    const turn = turnsDone[index]!++;
    const style = chatStyles[index % chatStyles.length]!;
    history.push(...instructionsOf(style, systemPrompt, turn), {
      role: "user",
      content: `Session ${session}, question ${turn}: what does the page of the ${turn + 3}th of month ${session + 1} say of ships that passed, and of the lamp?`,
    });
    const { path, body } = requestOf(style, model, history);
    const response = await fetch(url() + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer: unknown = await response.json();
    if (!response.ok) throw new Error(`status ${response.status}: ${JSON.stringify(answer).slice(0, 500)}`);
    const { text, promptTokens, cachedTokens } = readAnswer(style, answer);
    history.push({ role: "assistant", content: text });
    return {
      ...{ session, style, turn, promptTokens },
      engine: response.headers.get("x-espalier-engine") ?? "",
      predictedTokens: numberOf(response.headers.get("x-espalier-cache-hit-tokens")),
      cachedTokens: numberOf(cachedTokens),
    };
  };
  return {
    async advance(turns) {
      const results: TurnResult[] = [];
      for (let turn = 0; turn < turns; turn++) {
        for (let index = 0; index < sessions; index++) {
          await settled();
          results.push(await ask(index));
        }
      }
      return results;
    },
  };
}

function numberOf(value: string | number | null | undefined): number {
  const number = value === null || value === undefined ? Number.NaN : Number(value);
  if (Number.isNaN(number)) throw new Error("the answer does not say how much was predicted or found in the cache");
  return number;
}

/** The longest delay from an engine's event to its receipt in captures on a busy machine, plus a margin. */
const eventDelayMs = 800;

/** Waits until the events of earlier requests must have arrived. */
export function afterEvents(delayMs: number = eventDelayMs): Promise<void> {
  return new Promise((resolve) => systemScheduler.after(delayMs, resolve));
}
