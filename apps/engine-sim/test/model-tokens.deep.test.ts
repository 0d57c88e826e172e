import { systemClock } from "@espalier/core";
import { createRecordingLogger, randomRuns } from "@espalier/testing";
import { hardTexts, loadRequestTokens, shippedModelFolder } from "@espalier/tokenizer";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { followEvents } from "./event-feed.ts";
import { modelFolder, templates, thinkingTemplate } from "./model-folders.ts";
import { at, type Json, startSim, type TestSim, tokensOf } from "./sim-client.ts";

const chat = "/v1/chat/completions";

const startTiny = (more: object = {}): Promise<TestSim> =>
  startSim({ tokenizer: "espalier-tiny", parameters: { blockSize: 16, blockCount: 5_000 }, ...more });

describe("prompts", () => {
  test("texts and chats have the tokens of the model's tokenizer and template", async () => {
    const sim = await startTiny();
    const reference = await loadRequestTokens(shippedModelFolder(), systemClock);
    const tools = [
      { type: "function", function: { name: "look", description: "Looks.", parameters: { type: "object" } } },
    ];
    for (const { name, text } of hardTexts({ tokens: ["<|im_end|>", "<|call|>"], mixtures: 60 })) {
      const expected = Array.from(reference({ endpoint: "completions", fields: { prompt: text } }) ?? []);
      expect(await tokensOf(sim, { prompt: text }), name).toEqual(expected);
      const fields = {
        messages: [
          { role: "system", content: "Be brief." },
          { role: "user", content: text },
        ],
        tools,
      };
      const rendered = Array.from(reference({ endpoint: "chat", fields }) ?? []);
      expect(await tokensOf(sim, fields)).toEqual(rendered);
    }
  });

  // Symptom: 400 "a tool has no function". Mechanism: Codex sends namespaces and searches beside functions.
  test("tools of Codex are in them as functions, those that the model does not see are not", async () => {
    const sim = await startTiny();
    const look = { type: "function", name: "look", description: "Looks.", parameters: { type: "object" } };
    const spawn = { ...look, name: "spawn" };
    const tools = [look, { type: "namespace", name: "agents", tools: [spawn] }, { type: "web_search" }];
    const { status, text, json } = await sim.post("/v1/responses", { input: "Hi", tools, max_output_tokens: 2 });
    expect(status, text).toBe(200);
    const functions = [look, { ...spawn, name: "agents__spawn" }].map(({ type, ...described }) => ({
      ...{ type, function: described },
    }));
    const asChat = await tokensOf(sim, { messages: [{ role: "user", content: "Hi" }], tools: functions });
    expect(at(json, "usage", "input_tokens")).toBe(asChat.length);
  });

  test("numbers of schemas are in them as the client writes them", async () => {
    const sim = await startTiny();
    const schema = '{"type":"object","default":1.0}';
    const tools = `[{"type":"function","function":{"name":"look","parameters":${schema}}}]`;
    const body = `{"messages":[{"role":"user","content":"Hi"}],"tools":${tools}}`;
    const answer = await fetch(`${sim.url}/tokenize`, { method: "POST", body });
    const { tokens } = (await answer.json()) as { tokens: readonly number[] };
    const { prompt } = (await sim.post("/detokenize", { tokens })).json;
    expect(prompt).toContain('"default": 1.0');
  });

  test("usage counts them, whole and streamed", async () => {
    const sim = await startTiny();
    const messages = [{ role: "user", content: "What is kept behind the archive door?" }];
    const count = (await tokensOf(sim, { messages })).length;
    const body = { messages, max_tokens: 9 };
    expect((await sim.post(chat, body)).json.usage).toMatchObject({ prompt_tokens: count, completion_tokens: 9 });
    const prompt = "What is kept behind the archive door?";
    const alone = (await tokensOf(sim, { prompt })).length;
    expect((await sim.post("/v1/completions", { prompt, max_tokens: 1 })).json.usage).toMatchObject({
      prompt_tokens: alone,
    });
    expect((await sim.post("/generate", { text: prompt })).json.meta_info).toMatchObject({ prompt_tokens: alone });
  });

  test("completions get the tokens around the text that the model wants, chats do not", async () => {
    const post_processor = {
      type: "TemplateProcessing",
      single: [{ SpecialToken: { id: "<|endoftext|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
      pair: [],
      special_tokens: { "<|endoftext|>": { id: "<|endoftext|>", ids: [4_096], tokens: ["<|endoftext|>"] } },
    };
    const sim = await startSim({ tokenizer: modelFolder({}, { post_processor }) });
    const plain = await startTiny();
    const bare = await tokensOf(plain, { prompt: "so it is" });
    expect(await tokensOf(sim, { prompt: "so it is" })).toEqual([4_096, ...bare]);
    expect(await tokensOf(sim, { prompt: "so it is", add_special_tokens: false })).toEqual(bare);
    const messages = [{ role: "user", content: "so it is" }];
    expect(await tokensOf(sim, { messages })).toEqual(await tokensOf(plain, { messages }));
    expect(await tokensOf(sim, { messages, add_special_tokens: true })).toEqual([
      4_096,
      ...(await tokensOf(plain, { messages })),
    ]);
    const counted = async (body: Json) =>
      at(
        (await sim.post("/v1/completions", { prompt: "so it is", max_tokens: 1, ...body })).json,
        "usage",
        "prompt_tokens",
      );
    expect(await counted({})).toBe(bare.length + 1);
    expect(await counted({ add_special_tokens: false })).toBe(bare.length);
    const compared = await sim.post("/v1/score", { text_1: "so it is", text_2: "so it is" });
    expect(at(compared.json, "usage", "prompt_tokens")).toBe(2 * bare.length + 1);
  });

  test("fields of the template reach it: an open turn or none, tools, variables", async () => {
    const chat_template =
      "{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}{% if think %}(think){% endif %}" +
      "{% if add_generation_prompt %}<|im_start|>{% endif %}";
    const sim = await startSim({ tokenizer: modelFolder({ chat_template }) });
    const messages = [{ role: "user", content: "go" }];
    const text = async (body: Json): Promise<unknown> => {
      const tokens = await tokensOf(sim, { messages, ...body });
      return (await sim.post("/detokenize", { tokens })).json.prompt;
    };
    expect(await text({})).toBe("go<|im_end|><|im_start|>");
    expect(await text({ add_generation_prompt: false })).toBe("go<|im_end|>");
    expect(await text({ chat_template_kwargs: { think: true } })).toBe("go<|im_end|>(think)<|im_start|>");
  });

  test("the other APIs make chats of their conversations", async () => {
    const sim = await startTiny();
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: [{ type: "text", text: "What is this?" }] },
    ];
    const count = (await tokensOf(sim, { messages })).length;
    const anthropic = { system: "Be brief.", messages: messages.slice(1), max_tokens: 1 };
    expect(at((await sim.post("/v1/messages", anthropic)).json, "usage", "input_tokens")).toBe(count);
    const response = { instructions: "Be brief.", input: "What is this?", max_output_tokens: 1 };
    expect(at((await sim.post("/v1/responses", response)).json, "usage", "input_tokens")).toBe(count);
  });

  test("what the template refuses is a 400 with its own words", async () => {
    const chat_template = "{{ raise_exception('roles must alternate') }}";
    const sim = await startSim({ tokenizer: modelFolder({ chat_template }) });
    const answer = await sim.post(chat, { messages: [{ role: "user", content: "go" }] });
    expect(answer.status).toBe(400);
    expect(at(answer.json, "error", "message")).toContain("roles must alternate");
    const none = await startSim({ tokenizer: modelFolder({ chat_template: null }) });
    expect((await none.post(chat, { messages: [{ role: "user", content: "go" }] })).status).toBe(400);
    expect((await none.post("/v1/completions", { prompt: "go", max_tokens: 3 })).status).toBe(200);
  });

  test("a model for texts takes no images", async () => {
    const sim = await startTiny();
    const content = [{ type: "image_url", image_url: { url: "data:image/png;base64,Y2F0" } }];
    const answer = await sim.post(chat, { messages: [{ role: "user", content }] });
    expect(answer.status).toBe(400);
    expect(at(answer.json, "error", "message")).toContain("image");
  });
});

describe("decoding", () => {
  test("gives back the text, special tokens by name, and some text for any ids", async () => {
    const sim = await startTiny();
    const decode = async (tokens: readonly number[]) => (await sim.post("/detokenize", { tokens })).json.prompt;
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: "grapheme", maxLength: 60 }), async (text) => {
        const prompt = text.normalize("NFC");
        expect(await decode(await tokensOf(sim, { prompt }))).toBe(prompt);
      }),
      { numRuns: randomRuns(40) },
    );
    const messages = [{ role: "user", content: "so it is" }];
    expect(await decode(await tokensOf(sim, { messages }))).toBe(
      "<|im_start|>user\nso it is<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(await decode([4_294_967_295])).toBe("");
    expect(await decode([])).toBe("");
  });

  const spell = [
    { type: "Replace", pattern: { String: "\u2581" }, content: " " },
    { type: "ByteFallback" },
    { type: "Fuse" },
    { type: "Strip", content: " ", start: 1, stop: 0 },
  ];

  test.each([
    ["as SentencePiece does", { type: "Sequence", decoders: spell }, "the caf\u00E9 \uFFFD\uFFFDthe"],
    ["with its space kept", { type: "Metaspace", replacement: "\u2581", prepend_scheme: "never" }, undefined],
    ["with its first space dropped", { type: "Metaspace", replacement: "\u2581", prepend_scheme: "first" }, undefined],
    ["as words, when nothing says how", null, undefined],
  ] as const)("a vocabulary of another kind is decoded %s", async (what, decoder, expected) => {
    const names = ["\u2581the", "\u2581caf", "<0xC3>", "<0xA9>", "\u2581", "<0xE2>", "<0x82>"];
    const vocab = Object.fromEntries(names.map((name, id) => [name, id]));
    const words = Object.fromEntries(
      ["so", "it", "is", "of", "to", "in", "on", "at", "by"].map((word, at) => [`\u2581${word}`, names.length + at]),
    );
    const letters = "abcdefghijklmnopqrstuvwxyz".split("").map((letter, index) => [letter, 100 + index]);
    const model = {
      type: "Unigram",
      unk_id: 0,
      byte_fallback: false,
      vocab: unigramVocabulary({ ...vocab, ...words, ...Object.fromEntries(letters) }),
    };
    const pre_tokenizer = { type: "Metaspace", replacement: "\u2581", prepend_scheme: "always", split: true };
    const normalizer = null;
    const folder = modelFolder({}, { model, decoder, pre_tokenizer, normalizer, added_tokens: [] });
    const sim = await startSim({ tokenizer: folder });
    const tokens = [0, 1, 2, 3, 4, 5, 6, 0];
    const text = (await sim.post("/detokenize", { tokens })).json.prompt;
    if (expected !== undefined) expect(text, what).toBe("the caf\u00E9 \uFFFD\uFFFD the");
    else if (decoder === null) expect(text).toBe(tokens.map((id) => names[id]).join(" "));
    else {
      const kept = tokens
        .map((id) => names[id])
        .join("")
        .replaceAll("\u2581", " ");
      expect(text).toBe(decoder.prepend_scheme === "never" ? kept : kept.slice(1));
    }
  });
});

/** A list of pairs with holes filled, as Unigram models have it. */
function unigramVocabulary(ids: Readonly<Record<string, number>>): [string, number][] {
  const list: [string, number][] = Array.from({ length: 126 }, (_, id) => [`<unused-${id}>`, -100]);
  for (const [name, id] of Object.entries(ids)) list[id] = [name, name.length > 1 ? -1 : -10];
  return list;
}

/** A question and how long the answer to it is. */
const turns = fc.array(
  fc.record({
    question: fc.string({ unit: "grapheme", minLength: 1, maxLength: 80 }),
    answerTokens: fc.integer({ min: 1, max: 60 }),
  }),
  { minLength: 1, maxLength: 4 },
);

describe("answers", () => {
  test.each(Object.entries(templates))(
    "come back as the tokens that were generated: %s",
    async (_name, chat_template) => {
      const logger = createRecordingLogger();
      const folder = modelFolder({ chat_template });
      const sim = await startSim({ tokenizer: folder, logger, parameters: { blockSize: 16, blockCount: 5_000 } });
      expect(logger.lines).toEqual([]);
      const reference = await loadRequestTokens(folder, systemClock);
      await fc.assert(
        fc.asyncProperty(turns, fc.nat(1_000), async (conversation, seed) => {
          const messages: Json[] = [];
          await sim.post("/reset_prefix_cache", "");
          let known: number[] = [];
          for (const { question, answerTokens } of conversation) {
            messages.push({ role: "user", content: question });
            const prompt = Array.from(reference({ endpoint: "chat", fields: { messages } }) ?? []);
            expect(prompt.slice(0, known.length)).toEqual(known);
            const { json } = await sim.post(chat, { messages, max_tokens: answerTokens, seed });
            const text = at(json, "choices", 0, "message", "content") as string;
            // All but the last generated token are in the cache, and at least one token is computed again.
            const reusable = Math.min(Math.max(0, known.length - 1), prompt.length - 1);
            expect(at(json, "usage", "prompt_tokens_details", "cached_tokens")).toBe(reusable - (reusable % 16));
            messages.push({ role: "assistant", content: text });
            const { tokens } = await generated(sim, messages, prompt, answerTokens);
            known = [...prompt, ...tokens];
          }
        }),
        { numRuns: randomRuns(12) },
      );
    },
    30_000,
  );

  test("a template that changes them is told once, and they are words all the same", async () => {
    const logger = createRecordingLogger();
    const sim = await startSim({ tokenizer: modelFolder({ chat_template: thinkingTemplate }), logger, engines: 3 });
    expect(logger.lines.map(({ level, message }) => [level, message])).toEqual([
      ["warn", expect.stringContaining("sent back")],
    ]);
    const { json } = await sim.post(chat, { messages: [{ role: "user", content: "go" }], max_tokens: 30 });
    expect(at(json, "choices", 0, "message", "content")).toMatch(/^( [a-z]+){30}$/);
  });

  test("differ between prompts and seeds, and are the same for the same ones", async () => {
    const sim = await startTiny();
    const answer = async (content: string, seed: number) => {
      const { json } = await sim.post(chat, { messages: [{ role: "user", content }], max_tokens: 20, seed });
      return at(json, "choices", 0, "message", "content");
    };
    expect(await answer("one", 1)).toBe(await answer("one", 1));
    expect(await answer("one", 1)).not.toBe(await answer("one", 2));
    expect(await answer("one", 1)).not.toBe(await answer("two", 1));
  });

  test("are published in events as the tokens that the next turn looks up", async () => {
    const sim = await startTiny({ kvEvents: { dialect: "vllm-0.32" } });
    const events = await followEvents(sim);
    const messages: Json[] = [{ role: "user", content: "What is kept behind the archive door?" }];
    const first = await sim.post(chat, { messages, max_tokens: 60 });
    messages.push(at(first.json, "choices", 0, "message") as Json, { role: "user", content: "And who may see it?" });
    const prompt = await tokensOf(sim, { messages });
    await events.caughtUp();
    const predicted = events.holdings.match(prompt, { limit: prompt.length - 1 });
    const second = await sim.post(chat, { messages, max_tokens: 1 });
    expect(predicted).toBeGreaterThan(60);
    expect(at(second.json, "usage", "prompt_tokens_details", "cached_tokens")).toBe(predicted);
  });
});

/** The tokens of the last answer, as the engine said it made them: those of SGLang's own API for the same prompt. */
async function generated(sim: TestSim, messages: readonly Json[], prompt: readonly number[], count: number) {
  const all = await tokensOf(sim, { messages, add_generation_prompt: false });
  const tokens = all.slice(prompt.length, prompt.length + count);
  expect(all.slice(0, prompt.length)).toEqual(prompt);
  expect(tokens).toHaveLength(count);
  const { json } = await sim.post("/detokenize", { tokens });
  expect([json.prompt, (json.prompt as string).trimStart()]).toContain(messages.at(-1)?.content);
  return { tokens };
}

test.each([
  ["/nonexistent/folder", "tokenizer.json"],
  ["", "tokenizer.json"],
])("refuses the folder %j", async (tokenizer, word) => {
  await expect(startSim({ tokenizer })).rejects.toThrow(RangeError);
  await expect(startSim({ tokenizer })).rejects.toThrow(word);
});

test("refuses a vocabulary without words, and a decoder that it does not know", async () => {
  const model = { type: "BPE", vocab: { a: 0, b: 1 }, merges: [] };
  await expect(startSim({ tokenizer: modelFolder({}, { model, added_tokens: [] }) })).rejects.toThrow("words");
  const decoder = { type: "CTC" };
  await expect(startSim({ tokenizer: modelFolder({}, { decoder }) })).rejects.toThrow("CTC");
});
