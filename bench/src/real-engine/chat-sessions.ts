import { type Scheduler, systemScheduler } from "@espalier/common";

/** What one turn of a conversation brought. */
export interface TurnResult {
  readonly session: number;
  readonly turn: number;
  readonly engine: string;
  readonly promptTokens: number;
  /** As the router said in its answer's header. */
  readonly predictedTokens: number;
  /** As the engine said in its usage. */
  readonly cachedTokens: number;
}

interface Message {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface ChatRunOptions {
  /** Of the router that the next request goes to; called once per request. */
  readonly url: () => string;
  readonly model: string;
  readonly sessions: number;
  /** Number of the first of them, so that they are others than those of an earlier run; 0 by default. */
  readonly firstSession?: number;
  /** Asked before each request; resolves when the router has heard of everything that happened before. */
  readonly settled: () => Promise<void>;
}

/** Conversations that go on over several calls. */
export interface ChatRun {
  /** Every session's next `turns` turns, one request at a time. */
  advance(turns: number): Promise<readonly TurnResult[]>;
}

const systemPrompt =
  "You keep the logbook of a lighthouse. Answer in short sentences, give dates in full, name the wind by its quarter " +
  "and its strength, and say when an entry is missing rather than guess what it may have been.";

const maxAnswerTokens = 24;

/** @throws Error when a request fails, or its answer does not say what is to be compared */
export function createChatRun({ url, model, sessions, firstSession = 0, settled }: ChatRunOptions): ChatRun {
  const histories: Message[][] = Array.from({ length: sessions }, () => [{ role: "system", content: systemPrompt }]);
  const turnsDone = new Array<number>(sessions).fill(0);
  const ask = async (index: number): Promise<TurnResult> => {
    const session = firstSession + index;
    const history = histories[index]!;
    const turn = turnsDone[index]!++;
    history.push({
      role: "user",
      content: `Session ${session}, question ${turn}: what does the page of the ${turn + 3}th of month ${session + 1} say of ships that passed, and of the lamp?`,
    });
    const response = await fetch(`${url()}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, messages: history, max_tokens: maxAnswerTokens, temperature: 0 }),
    });
    const answer = (await response.json()) as Answer;
    if (!response.ok) throw new Error(`status ${response.status}: ${JSON.stringify(answer).slice(0, 500)}`);
    history.push({ role: "assistant", content: answer.choices[0]?.message.content ?? "" });
    return {
      session,
      turn,
      engine: response.headers.get("x-espalier-worker") ?? "",
      promptTokens: answer.usage.prompt_tokens,
      predictedTokens: numberOf(response.headers.get("x-espalier-cache-hit-tokens")),
      cachedTokens: numberOf(answer.usage.prompt_tokens_details?.cached_tokens),
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

interface Answer {
  readonly choices: readonly { readonly message: { readonly content: string | null } }[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  };
}

function numberOf(value: string | number | null | undefined): number {
  const number = value === null || value === undefined ? Number.NaN : Number(value);
  if (Number.isNaN(number)) throw new Error("the answer does not say how much was predicted or found in the cache");
  return number;
}

/** Longest delay from an engine's event to its receipt that captures on a busy machine show, and some more. */
const eventDelayMs = 800;

/** Waits until events of what was done before must have come. */
export function afterEvents(scheduler: Scheduler = systemScheduler): Promise<void> {
  return new Promise((resolve) => scheduler.after(eventDelayMs, resolve));
}
