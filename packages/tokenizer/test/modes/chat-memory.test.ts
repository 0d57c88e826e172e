import { createSeededRandom, type JsonBody, type Random, scanBody } from "@espalier/core";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type ChatDialect, chatDialects } from "../../src/chat/chat-dialect.ts";
import { chatInputOf, termFields } from "../../src/chat/chat-input.ts";
import { type ChatRenderer, createChatRenderer } from "../../src/chat/chat-renderer.ts";
import type { RenderedChat } from "../../src/chat/chat-template.ts";
import { createChatMemory } from "../../src/modes/chat-memory.ts";
import { createBlockBuilder, createPromptHasher, noBlocks, type PromptBlocks } from "../../src/prompt/prompt-blocks.ts";
import { createPromptEncoder } from "../../src/prompt/prompt-encoder.ts";
import { TemplateError } from "../../src/template/template-error.ts";
import { createTextTokenizer } from "../../src/text/text-tokenizer.ts";
import { readModel } from "../support/models.ts";
import { goldenTokens, readTemplate, templateNames } from "../template/golden.ts";

const hasher = createPromptHasher();
const blockSize = 4;
const maxDepth = 64;
const specials = [
  ...[
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "[INST]",
    "[/INST]",
  ],
  ...["<|start|>", "<|end|>", "<|message|>", "<|user|>", "<|assistant|>", "<|User|>", "<|Assistant|>", "<|USER|>"],
  ...["<|SYSTEM|>", "<|BOT|>", "<|END|>", "<|sep|>", "<|eos|>", "<|tool|>", "<|/tool|>", "</s>"],
];

/** The shipped tokenizer with the special tokens of all templates. */
function tokenizerOfAll(): ReturnType<typeof createTextTokenizer> {
  const definition = readModel("espalier-tiny");
  const known = definition.added_tokens as readonly { readonly id: number }[];
  const first = Math.max(...known.map(({ id }) => id)) + 1;
  const added = specials.map((content, index) => ({
    ...{ id: first + index, content, special: true, normalized: false },
    ...{ lstrip: false, rstrip: false, single_word: false },
  }));
  return createTextTokenizer({ tokenizer: { ...definition, added_tokens: [...known, ...added] }, config: {} });
}

const tokenizer = tokenizerOfAll();
const builder = createBlockBuilder({ hasher, blockSize });
const clock = { nowMs: () => 0, wall: 0, wallMs: () => clock.wall };
const hourMs = 3_600_000;

interface Rig {
  /** What the memory makes of a body; undefined when it is to be read as a whole. */
  readonly remembered: (body: JsonBody, dialect?: ChatDialect) => PromptBlocks | undefined;
  /** What rendering it as a whole comes to; undefined when the whole is no text, or it is refused. */
  readonly whole: (bytes: Buffer, dialect?: ChatDialect) => PromptBlocks | undefined;
  /** How many chats went on from a state that is behind a message. */
  readonly resumed: () => number;
}

function rigOf(template: string, chatBytes?: number): Rig {
  const config = { chat_template: template, ...goldenTokens };
  const renderer = createChatRenderer({ config, chatTemplate: undefined, additionalTemplates: {} }, clock);
  let resumed = 0;
  const counting: ChatRenderer = {
    ...renderer,
    terms(fields, dialect) {
      const found = renderer.terms(fields, dialect);
      if (!found) return undefined;
      const resume: typeof found.template.resume = (terms, messages, from) => {
        const chat = found.template.resume(terms, messages, from);
        if (chat && from) resumed++;
        return chat;
      };
      return { ...found, template: { ...found.template, resume } };
    },
  };
  const encoder = createPromptEncoder({ tokenizer, hasher, blockSize });
  const memory = createChatMemory({ encoder, renderer: counting, ...(chatBytes === undefined ? {} : { chatBytes }) });
  const rendered = (bytes: Buffer, dialect?: ChatDialect): RenderedChat | undefined => {
    try {
      const fields = JSON.parse(bytes.toString()) as Readonly<Record<string, unknown>>;
      return renderer.render({ endpoint: "chat", fields, ...(dialect ? { dialect } : {}) });
    } catch (error) {
      if (error instanceof TemplateError) return undefined;
      throw error;
    }
  };
  return {
    remembered(body, dialect) {
      const plan = memory.plan({ endpoint: "chat", fields: {}, body, ...(dialect ? { dialect } : {}) });
      if (!plan) return undefined;
      const blocks = encoder.encode(plan.plan);
      plan.learn(blocks);
      return blocks;
    },
    whole(bytes, dialect) {
      const chat = rendered(bytes, dialect);
      if (!chat || chat.textUntil !== undefined) return undefined;
      return builder.append(noBlocks, [Uint32Array.from(tokenizer.encode(chat.text, { addSpecialTokens: false }))]);
    },
    resumed: () => resumed,
  };
}

function bodyOf(text: string | Buffer): JsonBody {
  const body = scanBody(Buffer.from(text), maxDepth);
  if (typeof body === "string") throw new TypeError(`the test's body is ${body}`);
  return body;
}

/** Templates that come to a chat's text by other ways, by what is special about them. */
const chatml = "{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') + '<|im_end|>' + '\\n' }}";
const opened = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const others: Readonly<Record<string, string>> = {
  "that has the date": `{{ strftime_now('%d %b %H') }}<|end|>{% for m in messages %}${chatml}{% endfor %}${opened}`,
  "that has the date at the end": `{% for m in messages %}${chatml}{% endfor %}{{ strftime_now('%H') }}`,
  "that has the date when tools are there": `{% for m in messages %}{% if m.role == 'tool' %}{{ strftime_now('%H') }}{% endif %}${chatml}{% endfor %}`,
  "that counts in a namespace": `{% set ns = namespace(n=0, last='', seen=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.seen = ns.seen + [m.role] %}{{ ns.n ~ ns.last ~ ns.seen|join(',') }}${chatml}{% set ns.last = m.role %}{% endfor %}{{ ns.n }}`,
  "that has two names for one namespace": `{% set a = namespace(n=0) %}{% set b = a %}{% for m in messages %}{% set a.n = a.n + 1 %}{{ b.n }}${chatml}{% endfor %}{{ a.n ~ b.n }}`,
  "that keeps messages in a namespace": `{% set ns = namespace(first=messages[0], rest=messages[1:]) %}{% for m in messages %}{{ ns.first.role }}{{ ns.rest[0].role }}${chatml}{% endfor %}{{ ns.rest|length }}`,
  "that skips the first": `{% set sys = messages[0].content %}{% set messages = messages[1:] %}{{ sys }}<|end|>{% for m in messages %}${chatml}{% endfor %}{{ messages|length }}${opened}`,
  "that looks one back": `{% for m in messages %}{% if not loop.first %}{{ loop.previtem.role ~ messages[loop.index0 - 1].role }}{% endif %}${chatml}{% endfor %}`,
  "that looks one ahead": `{% for m in messages %}{% if loop.nextitem %}{{ loop.nextitem.role }}{% endif %}${chatml}{% endfor %}`,
  "that looks one ahead by its place": `{% for m in messages %}{{ messages[loop.index0 + 1].role if not loop.last }}${chatml}{% endfor %}`,
  "that looks two ahead at times": `{% for m in messages %}{{ (messages[loop.index0 + 2] or {}).content if m.role == 'assistant' }}${chatml}{% endfor %}`,
  "that has the first two before": `{% for m in messages[0:2] %}{{ m.role }},{% endfor %}{% for m in messages %}${chatml}{% endfor %}`,
  "that knows whether there are four": `{% if messages[3:] %}many{% endif %}{% for m in messages %}${chatml}{% endfor %}`,
  "that knows the last": `{% for m in messages %}${chatml}{% if loop.last %}the last{% endif %}{% endfor %}`,
  "with macros": `{% macro show(m, tag='x') %}{{ tag ~ messages[0].role }}${chatml}{% endmacro %}{% for m in messages %}{{ show(m, loop.index) }}{% endfor %}`,
  "with a macro in a branch": `{% if tools %}{% macro show(m) %}T${chatml}{% endmacro %}{% else %}{% macro show(m) %}F${chatml}{% endmacro %}{% endif %}{% for m in messages %}{{ show(m) }}{% endfor %}`,
  "with break and else": `{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}${chatml}{% else %}none{% endfor %}${opened}`,
  "with continue and else": `{% for m in messages %}{% if m.role != 'tool' %}{% continue %}{% endif %}${chatml}{% else %}none{% endfor %}${opened}`,
  "with two loops": `{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}<|end|>{% break %}{% endif %}{% endfor %}{% for m in messages %}${chatml}{% endfor %}`,
  "with tools behind": `{% for m in messages %}${chatml}{% endfor %}{% for t in tools or [] %}{{ t|tojson }}{% endfor %}{{ x }}`,
  "with a truth": `{% if messages %}some{% endif %}{% for m in messages %}${chatml}{% endfor %}`,
  "with what changed": `{% for m in messages %}{% if loop.changed(m.role) %}!{% endif %}${chatml}{% endfor %}`,
  "with a cycler": `{% set c = cycler('a', 'b', 'c') %}{% for m in messages %}{{ c.next() }}${chatml}{% endfor %}`,
  "with a joiner": `{% set j = joiner('-') %}{% for m in messages %}{{ j() }}${chatml}{% endfor %}`,
  "with a namespace in another": `{% set inner = namespace(n=0) %}{% set ns = namespace(i=inner) %}{% for m in messages %}{% set inner.n = inner.n + 1 %}{{ ns.i.n }}${chatml}{% endfor %}`,
  "with messages in a list": `{% set all = [messages] %}{% for m in messages %}{{ all[0][0].role }}${chatml}{% endfor %}`,
  "with an iterator": `{% set roles = messages|map(attribute='role') %}{% for m in messages %}{{ roles|first }}${chatml}{% endfor %}`,
  "with a filter": `{% for m in messages if m.role != 'system' %}${chatml}{% endfor %}`,
  "with a loop in a branch": `{% if true %}{% for m in messages %}${chatml}{% endfor %}{% endif %}`,
  "that writes all messages": `{% for m in messages %}${chatml}{% endfor %}{{ messages|tojson }}{{ messages[::-1]|length }}`,
  "that strips what was thought": `{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if loop.index0 < ns.last %}old{% endif %}${chatml}{% endfor %}`,
};
const templates: readonly (readonly [name: string, source: string])[] = [
  ...templateNames.map((name) => [name, readTemplate(name)] as const),
  ...Object.entries(others),
];
/** Of these, the text of earlier messages may depend on later ones, or the renderer cannot tell that it does not. */
const wholes: ReadonlySet<string> = new Set([
  ...["with a macro in a branch", "with what changed", "with a cycler", "with a joiner", "with a namespace in another"],
  ...["with messages in a list", "with an iterator", "with a filter", "with a loop in a branch"],
  ...["that has the first two before"],
  ...["that strips what was thought", "qwen3-thinking", "deepseek", "mistral-tools"],
]);

const words = [
  "Hi",
  "a b",
  " ",
  "größer",
  "line\nbreak",
  "🙂",
  "<|im_end|>",
  "<|im_",
  "end|>",
  '"q"',
  "\ud83d",
  "0",
  "<|",
  "\\",
];
const wordsOf = (random: Random, most = 5): string =>
  Array.from({ length: random.integer(most) }, () => words[random.integer(words.length)]).join(" ");

function anyContent(random: Random): unknown {
  const text = { type: "text", text: wordsOf(random) };
  switch (random.integer(60)) {
    case 0:
      return null;
    case 1:
      return [text, { type: "image_url", image_url: { url: "x" } }];
    case 2:
      return 7;
    case 3:
    case 4:
      return [text, { ...text, text: wordsOf(random) }];
    default:
      return `${wordsOf(random, 12)} ${"so on ".repeat(random.integer(4))}`;
  }
}

/** A message as its client wrote it, which it does in the same way in each turn. */
function anyMessage(random: Random, role: string): string {
  if (random.integer(120) === 0) return ["null", "5", "[]", '"text"'][random.integer(4)]!;
  const message: Record<string, unknown> = { role, content: anyContent(random) };
  if (role === "tool") message.tool_call_id = "call";
  if (role === "assistant" && random.integer(3) === 0) {
    message.tool_calls = [{ id: "callaaaaa", type: "function", function: { name: "f", arguments: '{"a": 1.0}' } }];
  }
  if (role === "assistant" && random.integer(4) === 0) message.reasoning = wordsOf(random);
  const text = JSON.stringify(message, null, random.integer(6) === 0 ? 1 : undefined);
  return random.integer(8) === 0 ? text.replace('"role"', '"\\u0072ole"') : text;
}

interface Chat {
  readonly messages: readonly string[];
  readonly terms: Readonly<Record<string, unknown>>;
}

const tool = { type: "function", function: { name: "f", description: "d", parameters: { type: "object" } } };
const anyTerms = (random: Random): Chat["terms"] =>
  [
    ...[{}, {}, {}, { tools: [tool] }, { tools: [tool, tool], tool_choice: "none" }, { tools: [] }],
    ...[{ chat_template_kwargs: { x: 1 } }, { chat_template_kwargs: { x: 12 } }, { reasoning_effort: "low" }],
    ...[{ add_generation_prompt: false }, { documents: [{ title: "t", text: "x" }] }, { continue_final_message: true }],
  ][random.integer(12)]!;

const nextRole = ({ messages }: Chat, random: Random): string => {
  if (messages.length === 0 && random.integer(2) === 0) return "system";
  if (random.integer(12) === 0) return ["tool", "developer", "system", "unknown"][random.integer(4)]!;
  return messages.filter((message) => /ole": ?"(?:user|assistant)/.test(message)).length % 2 === 0
    ? "user"
    : "assistant";
};

function edited(chat: Chat, random: Random): Chat {
  const { messages } = chat;
  const at = random.integer(messages.length + 1);
  const added = (count: number): Chat => {
    let grown = chat;
    for (let each = 0; each < count; each++) {
      grown = { ...grown, messages: [...grown.messages, anyMessage(random, nextRole(grown, random))] };
    }
    return grown;
  };
  switch (random.integer(14)) {
    case 0:
      return { ...chat, messages: messages.slice(0, at) };
    case 1:
      return { ...chat, messages: messages.with(Math.min(at, messages.length - 1), anyMessage(random, "user")) };
    case 2:
      return { ...chat, messages: messages.toSpliced(at, 0, anyMessage(random, "assistant")) };
    case 3:
      return { ...chat, messages: messages.toSpliced(at, 1) };
    case 4:
      return { ...chat, terms: anyTerms(random) };
    case 5:
      return { ...chat, messages: messages.map((message) => message.replace('":', '" :')) };
    case 6:
      return chat;
    default:
      return added(1 + random.integer(3));
  }
}

/** A body with its members in any order, some of which say nothing of the prompt. */
function written({ messages, terms }: Chat, random: Random): Buffer {
  const space = random.integer(10) === 0 ? " " : "";
  const members = [
    `"messages":[${messages.join(`,${space}`)}]`,
    `"model":"m${random.integer(3)}"`,
    ...Object.entries(terms).map(([name, value]) => `"${name}":${space}${JSON.stringify(value)}`),
    ...(random.integer(2) === 0 ? [`"stream":true`, `"user":"${random.integer(1_000)}"`] : []),
  ];
  for (let at = members.length - 1; at > 0; at--) {
    const other = random.integer(at + 1);
    [members[at], members[other]] = [members[other]!, members[at]!];
  }
  return Buffer.from(`{${members.join(",")}}`);
}

const start: Chat = { messages: ['{"role":"user","content":"A first message that has some words in it"}'], terms: {} };

/** Chats that are edited at random, as those of many users and their retries are; what the memory said of how many. */
function compare(rig: Rig, random: Random, steps: number): number {
  const kept: Chat[] = [start];
  let said = 0;
  for (let step = 0; step < steps; step++) {
    const chat = edited(kept[random.integer(kept.length)]!, random);
    if (chat.messages.length > 14 || chat.messages.length === 0) continue;
    if (kept.push(chat) > 5) kept.shift();
    if (random.integer(30) === 0) clock.wall += hourMs;
    const bytes = written(chat, random);
    const dialect = random.integer(4) === 0 ? chatDialects[random.integer(chatDialects.length)] : undefined;
    const found = rig.remembered(bodyOf(bytes), dialect);
    if (!found) continue;
    said++;
    expect(found, `step ${step}: ${bytes.toString()}`).toEqual(rig.whole(bytes, dialect));
  }
  return said;
}

describe.each(templates)("chats with the template %s", (name, source) => {
  test("have the blocks of their whole texts, edited at random", () => {
    const rig = rigOf(source);
    for (let seed = 1; seed <= 4; seed++) compare(rig, createSeededRandom(seed * 7_919 + name.length), 150);
    if (wholes.has(name)) expect(rig.resumed()).toBe(0);
  });
});

test("a conversation that grows is gone on with, but for templates whose old part depends on the new one", () => {
  const known = templates.filter(([, source]) => {
    const rig = rigOf(source);
    const turns = Array.from({ length: 12 }, (_, index) =>
      JSON.stringify({
        role: index % 2 === 0 ? "user" : "assistant",
        content: `${index} and words for a cut to count`,
      }),
    );
    for (const count of [5, 7, 9, 11]) {
      const text = `{"messages":[${turns.slice(0, count).join(",")}]}`;
      expect(rig.remembered(bodyOf(text))).toEqual(rig.whole(Buffer.from(text)));
    }
    return rig.resumed() >= 2;
  });
  // Of a chat without tools one of them writes nothing.
  const names = templates
    .map(([name]) => name)
    .filter((name) => !wholes.has(name) && name !== "with continue and else");
  expect(known.map(([name]) => name)).toEqual(names);
});

const chatmlSource = `{% for m in messages %}${chatml}{% endfor %}${opened}`;
const message = (content: string, role = "user"): string => JSON.stringify({ role, content });
const chatOf = (messages: readonly string[], rest = ""): string =>
  `{"model":"m","messages":[${messages.join(",")}]${rest}}`;
const filler = "words that make a message long enough for a cut to count";

/** Whether the chat's beginning was known, and that its blocks are right. */
function wasKnown(rig: Rig, text: string): boolean {
  const before = rig.resumed();
  expect(rig.remembered(bodyOf(text))).toEqual(rig.whole(Buffer.from(text)));
  return rig.resumed() > before;
}

test("schemas of tools are rendered as they are written, at first and when the chat goes on", () => {
  const { remembered, resumed } = rigOf(
    "{{ tools | tojson }}{{ n }}{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}",
  );
  const parameters = '{"10": {"default": 1.0, "maximum": 1e5}, "9": 12345678901234567890}';
  const bodyWith = (messages: readonly string[]): JsonBody =>
    bodyOf(
      `{"messages":${JSON.stringify(messages.map((content) => ({ role: "user", content })))},` +
        `"chat_template_kwargs":{"n":2.0},"tools":[{"type":"function","function":{"name":"f","parameters":${parameters}}}]}`,
    );
  const head =
    '[{"type": "function", "function": {"name": "f", "description": null, "parameters": ' +
    '{"10": {"default": 1.0, "maximum": 100000.0}, "9": 12345678901234567890}}}]2.0';
  const blocksOf = (texts: readonly string[]): PromptBlocks => {
    const text = head + texts.map((content) => `<|im_start|>${content}<|im_end|>`).join("");
    return builder.append(noBlocks, [Uint32Array.from(tokenizer.encode(text, { addSpecialTokens: false }))]);
  };
  for (const texts of [["Hello there"], ["Hello there", "And", "now?"]]) {
    expect(remembered(bodyWith(texts))?.contents).toEqual(blocksOf(texts).contents);
  }
  expect(resumed()).toBe(1);
});

describe("a chat's beginning", () => {
  const [first, second, third] = [message(filler), message(`2 ${filler}`, "assistant"), message(`3 ${filler}`)];

  test("is known by the next turn, by the same turn again and by another end of it", () => {
    const rig = rigOf(chatmlSource);
    expect(wasKnown(rig, chatOf([first]))).toBe(false);
    expect(wasKnown(rig, chatOf([first, second, third]))).toBe(true);
    expect(wasKnown(rig, chatOf([first, second, third]))).toBe(true);
    expect(wasKnown(rig, chatOf([first, second, message("other")]))).toBe(true);
  });

  test("is known wherever it stands in the body, and whatever else does", () => {
    const rig = rigOf(chatmlSource);
    wasKnown(rig, `{"messages":[${first}],"model":"m","user":"1"}`);
    expect(wasKnown(rig, `{"user":"2","stream":true,"model":"other","messages":[${first},${second}]}`)).toBe(true);
  });

  test("is another one with other bytes, or with other fields that the prompt depends on", () => {
    const rig = rigOf(chatmlSource);
    wasKnown(rig, chatOf([first]));
    expect(wasKnown(rig, chatOf([first.replace(":", ": "), second]))).toBe(false);
    for (const name of termFields) expect(wasKnown(rig, chatOf([first, second], `,"${name}":null`)), name).toBe(false);
  });

  test("that two chats share is known to a third one, though none ended there", () => {
    const rig = rigOf(chatmlSource);
    wasKnown(rig, chatOf([first, second]));
    expect(wasKnown(rig, chatOf([first, third]))).toBe(false);
    expect(wasKnown(rig, chatOf([first, message(`4 ${filler}`)]))).toBe(true);
  });

  test.each([
    { about: "no messages", text: '{"model":"m"}' },
    { about: "an empty list of them", text: chatOf([]) },
    { about: "something else in their place", text: '{"messages":{"0":1}}' },
    { about: "them twice", text: `{"messages":[${first}],"messages":[${second}]}` },
    { about: "them twice, once in escapes", text: `{"messages":[${first}],"mess\\u0061ges":[${second}]}` },
    { about: "tools twice", text: chatOf([first], ',"tools":null,"tools":[]') },
    { about: "a message that is none", text: chatOf([first, "7"]) },
    { about: "an image", text: chatOf([first, '{"role":"user","content":[{"type":"image_url"}]}']) },
    {
      about: "an open end",
      text: chatOf([first, second], ',"continue_final_message":true,"add_generation_prompt":false'),
    },
  ])("with $about is read as a whole, and the next one is not", ({ text }) => {
    const rig = rigOf(chatmlSource);
    wasKnown(rig, chatOf([first]));
    expect(rig.remembered(bodyOf(text))).toBeUndefined();
    expect(wasKnown(rig, chatOf([first, second]))).toBe(true);
  });

  test("is known with members in escapes", () => {
    const rig = rigOf(chatmlSource);
    wasKnown(rig, chatOf([first]));
    expect(wasKnown(rig, `{"mess\\u0061ges":[${first},${second}]}`)).toBe(true);
  });

  test("is no longer known on the next day where the template writes the date, and is learned anew", () => {
    const rig = rigOf(others["that has the date"]!);
    wasKnown(rig, chatOf([first]));
    expect(wasKnown(rig, chatOf([first, second]))).toBe(true);
    clock.wall += 24 * hourMs;
    expect(wasKnown(rig, chatOf([first, second]))).toBe(false);
    expect(wasKnown(rig, chatOf([first, second, third]))).toBe(true);
  });

  test("has to go as far as was looked ahead before, in another rendering", () => {
    const ahead = "{% if m.role == 'assistant' %}{{ messages[loop.index0 + 2].content }}{% endif %}";
    const far = "{% if m.role == 'tool' and messages[loop.index0 + 3:] %}far{% endif %}";
    const length = "{% if m.role == 'system' %}{{ messages|length }}{% endif %}";
    const rig = rigOf(`{% for m in messages %}${ahead}${far}${length}${chatml}{% endfor %}`);
    const begin = [first, message(filler, "assistant"), message(filler, "tool")];
    const [one, other] = [message(`one ${filler}`, "system"), message(`other ${filler}`, "system")];
    expect(wasKnown(rig, chatOf([...begin, one]))).toBe(false);
    expect(wasKnown(rig, chatOf([...begin, one, third, third]))).toBe(true);
    wasKnown(rig, chatOf([...begin, other, third, third]));
  });

  test("is remembered within a bound: beyond it the oldest is forgotten, and new ones are known", () => {
    const rig = rigOf(chatmlSource, 40_000);
    const firsts = Array.from({ length: 60 }, (_, index) => message(`${index} ${filler}`));
    for (const one of firsts) wasKnown(rig, chatOf([one]));
    const known = firsts.map((one) => wasKnown(rig, chatOf([one, second])));
    expect(known[0]).toBe(false);
    expect(wasKnown(rig, chatOf([firsts.at(-1)!, second]))).toBe(true);
    const none = rigOf(chatmlSource, 0);
    wasKnown(none, chatOf([first]));
    expect(wasKnown(none, chatOf([first, second]))).toBe(false);
  });
});

test("fields that a prompt depends on are all those that are read", () => {
  const read = new Set<string | symbol>();
  for (const dialect of chatDialects) {
    const noting = new Proxy(
      { messages: [], tools: [tool], chat_template_kwargs: {}, reasoning_effort: "low" } as object,
      {
        get: (fields, name, receiver) => {
          read.add(name);
          return Reflect.get(fields, name, receiver) as unknown;
        },
      },
    );
    chatInputOf(noting as Readonly<Record<string, unknown>>, dialect);
  }
  expect([...read].sort()).toEqual(["messages", ...termFields].sort());
});

test("chats of any values have the blocks of their whole texts", () => {
  const rig = rigOf(chatmlSource);
  const part = fc.oneof(fc.record({ type: fc.constant("text"), text: fc.string() }), fc.jsonValue({ maxDepth: 1 }));
  const content = fc.oneof(fc.string({ unit: "binary" }), fc.array(part, { maxLength: 3 }), fc.constant(filler));
  const some = fc.oneof(
    { weight: 9, arbitrary: fc.record({ role: fc.constantFrom("user", "assistant", "tool", "system"), content }) },
    { weight: 1, arbitrary: fc.jsonValue({ maxDepth: 3 }) },
  );
  fc.assert(
    fc.property(fc.array(some, { minLength: 1, maxLength: 6 }), fc.nat(6), some, (messages, at, other) => {
      for (const list of [
        messages,
        [...messages, other],
        messages.toSpliced(at, 1, other),
        messages.toSpliced(at, 1),
      ]) {
        const scanned = scanBody(Buffer.from(JSON.stringify({ messages: list })), maxDepth);
        if (typeof scanned === "string") continue;
        const found = rig.remembered(scanned);
        if (found) expect(found).toEqual(rig.whole(scanned.bytes));
      }
    }),
    { numRuns: 300 },
  );
  expect(rig.resumed()).toBeGreaterThan(100);
});
