import { createSeededRandom } from "@espalier/core";
import { type Json, post } from "./client.ts";
import type { Sim } from "./rig.ts";

/** What a client learns of one request and of the cache it met. */
export interface Turn {
  readonly status: number;
  readonly engine: string;
  readonly attempts: number;
  readonly promptTokens: number;
  /** As the router predicted; NaN when it did not. */
  readonly predicted: number;
  /** As the engine reported. */
  readonly cached: number;
  /** The generated text. */
  readonly text: string;
}

/** A router, or whichever is in its place. */
export interface Served {
  readonly url: string;
}

/** Sends one request that is not streamed, in any of the APIs. */
export async function ask(router: Served, path: string, body: Json, headers = {}): Promise<Turn> {
  const answer = await post(router.url + path, { model: "tiny", ...body }, headers);
  const usage = (answer.json.usage ?? {}) as Json;
  const details = (usage.prompt_tokens_details ?? usage.input_tokens_details ?? {}) as Json;
  return {
    status: answer.status,
    engine: String(answer.headers["x-espalier-engine"]),
    attempts: Number(answer.headers["x-espalier-attempts"]),
    promptTokens: Number(usage.prompt_tokens ?? usage.input_tokens),
    predicted: Number(answer.headers["x-espalier-cache-hit-tokens"] ?? Number.NaN),
    cached: Number(details.cached_tokens ?? usage.cache_read_input_tokens ?? 0),
    text: textOf(answer.json),
  };
}

function textOf({ choices, content, output }: Json): string {
  const [choice] = (choices ?? []) as readonly { readonly text?: string; readonly message?: { content: string } }[];
  const [block] = (content ?? []) as readonly { readonly text: string }[];
  const [item] = (output ?? []) as readonly { readonly content: readonly { readonly text: string }[] }[];
  return choice?.message?.content ?? choice?.text ?? block?.text ?? item?.content[0]?.text ?? "";
}

/** The same token ids for the same seed. */
export function tokensOf(seed: number, count: number): number[] {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, () => 300 + random.integer(3_000));
}

const vocabulary = "the tide of harbour is low when moon and stone lie far beyond seven old boats".split(" ");

/** The same words for the same seed. */
export function wordsOf(seed: number, count: number): string {
  const random = createSeededRandom(seed);
  return Array.from({ length: count }, () => vocabulary[random.integer(vocabulary.length)]).join(" ");
}

/** Someone who goes on talking: every request has all that was said before. */
export interface Conversation {
  /** @param fields of the request beside its prompt and the length of its answer */
  turn(fields?: Json): Promise<Turn>;
}

export interface ConversationOptions {
  /** The words of its user, different for each. */
  readonly seed: number;
  /** What it begins with; words of its own when absent. */
  readonly system?: string;
  readonly answerTokens?: number;
}

/** What prompts are made of. */
export type Form = "chat" | "text" | "tokens";
export const forms: readonly Form[] = ["chat", "text", "tokens"];

/** @param anyEngine where generated text becomes tokens again, for prompts that are tokens */
export function converse(
  router: Served,
  form: Form,
  { seed, system = wordsOf(-1 - seed, 80), answerTokens = 23 }: ConversationOptions,
  anyEngine: Sim,
): Conversation {
  const history = histories[form](system, anyEngine);
  let turns = 0;
  return {
    async turn(fields = {}) {
      const body = await history.say(wordsOf(1_000 * seed + turns++, 40));
      const turn = await ask(router, history.path, { ...body, max_tokens: answerTokens, ...fields });
      await history.hear(turn.text);
      return turn;
    },
  };
}

interface History {
  readonly path: string;
  /** The prompt of the next request. */
  say(text: string): Json | Promise<Json>;
  hear(text: string): void | Promise<void>;
}

const histories: Readonly<Record<Form, (system: string, engine: Sim) => History>> = {
  chat: (system) => {
    const messages = [{ role: "system", content: system }];
    return {
      path: "/v1/chat/completions",
      say(content) {
        messages.push({ role: "user", content });
        return { messages };
      },
      hear: (content) => void messages.push({ role: "assistant", content }),
    };
  },
  text: (system) => {
    let prompt = system;
    return {
      path: "/v1/completions",
      say(text) {
        prompt += `\n\n${text}\n\n`;
        return { prompt };
      },
      hear(text) {
        prompt += text;
      },
    };
  },
  tokens: (system, engine) => {
    const prompt: number[] = [];
    const append = async (text: string): Promise<void> => {
      const { json } = await post(`${engine.url}/tokenize`, { prompt: text, add_special_tokens: false });
      prompt.push(...(json.tokens as number[]));
    };
    return {
      path: "/v1/completions",
      async say(text) {
        if (prompt.length === 0) await append(system);
        await append(text);
        return { prompt };
      },
      hear: append,
    };
  },
};
