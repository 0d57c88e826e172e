import { describe, expect, test } from "vitest";
import { followEvents } from "./event-feed.ts";
import { modelFolder } from "./model-folders.ts";
import { at, startSim, type TestSim, tokensOf } from "./sim-client.ts";

const chat = "/v1/chat/completions";
const blockSize = 16;

/** Writes parts in their order, an image as vision models of Qwen do: a placeholder between two special tokens. */
const chat_template =
  "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}" +
  "{% if part.type == 'text' %}{{ part.text }}{% else %}<|call|><|image|><|call|>{% endif %}{% endfor %}<|im_end|>\n" +
  "{% endfor %}<|im_start|>assistant\n";
const imageToken = 4_100;
const callToken = 4_099;

const startVision = (more: object = {}): Promise<TestSim> =>
  startSim({ tokenizer: modelFolder({ chat_template }), parameters: { blockSize, blockCount: 5_000 }, ...more });

const text = (content: string) => ({ type: "text", text: content });
const image = (data: string, more: object = {}) => ({
  type: "image_url",
  image_url: { url: `data:image/png;base64,${data}` },
  ...more,
});
const question = text("What is in this picture, and where was it taken? Describe the light as well, please.");
const cachedTokens = async (sim: TestSim, content: readonly object[], more: object = {}): Promise<unknown> => {
  const {
    status,
    json,
    text: body,
  } = await sim.post(chat, {
    messages: [{ role: "user", content }],
    max_tokens: 1,
    ...more,
  });
  expect(status, body).toBe(200);
  return at(json, "usage", "prompt_tokens_details", "cached_tokens");
};

describe("chats with images", () => {
  test("an image has as many placeholders as the option says, where the template has one", async () => {
    const sim = await startVision({ mediaTokens: 5 });
    const tokens = await tokensOf(sim, { messages: [{ role: "user", content: [image("AAAA"), text("go")] }] });
    const first = tokens.indexOf(callToken);
    expect(tokens.slice(first, first + 7)).toEqual([callToken, ...Array(5).fill(imageToken), callToken]);
    expect(tokens.filter((token) => token === imageToken)).toHaveLength(5);
    const none = await startVision({ mediaTokens: 0 });
    const refused = await none.post(chat, { messages: [{ role: "user", content: [image("AAAA")] }], max_tokens: 1 });
    expect(refused.status).toBe(400);
    await expect(startVision({ mediaTokens: 1.5 })).rejects.toThrow("media-tokens");
  });

  test("the cache knows images by their bytes, a client's identifier and the processor's arguments", async () => {
    const sim = await startVision();
    expect(await cachedTokens(sim, [image("AAAA"), question])).toBe(0);
    const whole = await cachedTokens(sim, [image("AAAA"), question]);
    expect(whole).toBeGreaterThanOrEqual(48);
    expect(await cachedTokens(sim, [image("BBBB"), question])).toBe(0);
    const asJpeg = { type: "image_url", image_url: { url: "data:image/jpeg;base64,AAAA" } };
    expect(await cachedTokens(sim, [asJpeg, question])).toBe(whole);
    expect(await cachedTokens(sim, [image("AAAA"), question], { mm_processor_kwargs: { size: 3 } })).toBe(0);
    // Nobody compares the bytes with the identifier.
    expect(await cachedTokens(sim, [image("AAAA", { uuid: "one" }), question])).toBe(0);
    expect(await cachedTokens(sim, [image("BBBB", { uuid: "one" }), question])).toBe(whole);
    expect(await cachedTokens(sim, [{ type: "image_url", image_url: null, uuid: "one" }, question])).toBe(whole);
    expect(await cachedTokens(sim, [image("AAAA"), question], { cache_salt: "tenant" })).toBe(0);
  });

  test("events name each block's images with their offsets", async () => {
    const sim = await startVision({ mediaTokens: 20, kvEvents: { dialect: "vllm-0.32" } });
    const feed = await followEvents(sim);
    await cachedTokens(sim, [text("go"), image("", { uuid: "a" }), image("", { uuid: "b" }), question]);
    await feed.caughtUp();
    const tokens = await tokensOf(sim, {
      messages: [{ role: "user", content: [text("go"), image("", { uuid: "a" }), image("", { uuid: "b" }), question] }],
    });
    const first = tokens.indexOf(imageToken);
    const second = first + 20 + 2;
    const expected = [0, 1, 2, 3].map((block) => {
      const start = block * blockSize;
      const keys = [
        ["a", first - start],
        ["b", second - start],
      ] as const;
      const inside = keys.filter(([, offset]) => offset < blockSize && offset + 20 > 0);
      return inside.map(([id, offset]) => `${`${id}@${offset}`.length}:${id}@${offset}`).join("") || undefined;
    });
    expect(expected.filter(Boolean)).toHaveLength(3);
    expect(feed.events()[0]?.blockKeys?.slice(0, 4)).toEqual(expected);
  });
});
