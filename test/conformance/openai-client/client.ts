import { type ClientOptions, OpenAI } from "openai";
import type { RunningRouter } from "../../integration/rig.ts";

/** The official client, pointed at a router. It does not retry unless told to. */
export function openAiClient(router: RunningRouter, options: ClientOptions = {}): OpenAI {
  return new OpenAI({ baseURL: `${router.url}/v1`, apiKey: "any-key", maxRetries: 0, ...options });
}

/** What a promise is rejected with. */
export async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

export async function collect<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const collected: Item[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}
