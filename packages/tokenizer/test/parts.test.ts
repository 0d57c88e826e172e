import { createSeededRandom } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { canonicalChat } from "../src/modes/canonical-chat.ts";
import { createPromptHasher } from "../src/prompt/prompt-blocks.ts";
import { createMergeQueue } from "../src/text/bpe-model.ts";
import { createPairTable, createTextTrie } from "../src/text/pair-table.ts";
import { createTokenBuffer, createWordCache } from "../src/text/token-model.ts";
import { isWhiteSpace } from "../src/text/unicode.ts";

test("a pair table equals a map, while it grows and values are replaced", () => {
  const random = createSeededRandom(51);
  const table = createPairTable(4);
  const model = new Map<string, readonly [number, number]>();
  for (let step = 0; step < 20_000; step++) {
    const [first, second] = [random.integer(200), random.integer(300_000)];
    const value = [random.integer(2 ** 32), step] as const;
    table.set(first, second, ...value);
    model.set(`${first} ${second}`, value);
  }
  for (const [key, value] of model) {
    const [first, second] = key.split(" ").map(Number);
    const slot = table.find(first!, second!);
    expect([table.valueAt(slot), table.extraAt(slot)]).toEqual(value);
  }
  expect(table.find(201, 1)).toBe(-1);
  expect(table.find(0, 300_001)).toBe(-1);
});

test("a merge queue gives pairs by rank, then by position", () => {
  const random = createSeededRandom(52);
  const queue = createMergeQueue();
  for (let round = 0; round < 20; round++) {
    const entries = Array.from({ length: random.integer(700) }, () => ({
      rank: random.integer(round < 10 ? 20 : 2 ** 24),
      position: random.integer(2 ** 27),
    }));
    for (const { rank, position } of entries) queue.push(rank, position, rank + 1);
    entries.sort((one, other) => one.rank - other.rank || one.position - other.position);
    for (const { rank, position } of entries) {
      expect(queue.pop()).toBe(position);
      expect(queue.merged).toBe(rank + 1);
    }
    expect(queue.pop()).toBe(-1);
  }
});

test("a trie finds what was added and nothing else", () => {
  const trie = createTextTrie(2);
  const words = ["a", "ab", "abc", "b\u{1f642}", "\uffff"];
  for (const [index, word] of words.entries()) trie.add(word, index);
  const find = (text: string): number => {
    let node = 0;
    for (let at = 0; at < text.length && node >= 0; at++) node = trie.child(node, text.charCodeAt(at));
    return node < 0 ? -2 : trie.valueAt(node);
  };
  expect(words.map(find)).toEqual([0, 1, 2, 3, 4]);
  expect([find("abcd"), find("b"), find("c")]).toEqual([-2, -1, -2]);
  expect(["a", "b", "\uffff", "c"].map((text) => trie.starts(text.charCodeAt(0)))).toEqual([true, true, true, false]);
});

test("a token buffer grows, and hands out copies", () => {
  const buffer = createTokenBuffer();
  const wanted: number[] = [];
  for (let id = 0; id < 5_000; id++) {
    buffer.push(id);
    wanted.push(id);
    if (id % 100 === 0) {
      buffer.pushAll([1, 2, 3]);
      wanted.push(1, 2, 3);
    }
  }
  expect(buffer.length).toBe(wanted.length);
  const taken = buffer.take();
  buffer.push(99);
  expect([...taken]).toEqual(wanted);
  expect(buffer.takeList()).toEqual([99]);
  expect([...buffer.take(), ...buffer.takeList()]).toEqual([]);
});

test("white space is what Unicode calls so", () => {
  for (let unit = 0; unit < 0x1_0000; unit++) {
    expect(isWhiteSpace(unit), unit.toString(16)).toBe(/^\p{White_Space}$/u.test(String.fromCharCode(unit)));
  }
});

describe("the cache of words", () => {
  test("holds two generations of its limit and not one word more", () => {
    const cache = createWordCache(10);
    for (let word = 0; word < 100; word++) {
      cache.set(`word ${word}`, word);
      expect(cache.size).toBeLessThanOrEqual(20);
    }
    expect(cache.get("word 99")).toBe(99);
    expect(cache.get("word 0")).toBeUndefined();
  });

  test("keeps what is used", () => {
    const cache = createWordCache(10);
    cache.set("used", [1, 2]);
    for (let word = 0; word < 200; word++) {
      cache.set(`word ${word}`, word);
      expect(cache.get("used")).toEqual([1, 2]);
    }
  });
});

describe("a chat as one text", () => {
  const hasher = createPromptHasher();
  const text = (messages: readonly unknown[], fields: object = {}): string =>
    canonicalChat({ ...fields }, messages, hasher);

  test("starts with the text of the turn before, whatever messages hold", () => {
    const messages = [
      { role: "system", content: "be brief" },
      {
        role: "user",
        content: [
          { type: "text", text: "what is this?" },
          { type: "image_url", image_url: { url: "x".repeat(900) } },
        ],
      },
      { role: "assistant", content: null, tool_calls: [{ id: "1", function: { name: "f", arguments: '{"a":1}' } }] },
      { role: "tool", tool_call_id: "1", content: "done" },
      { role: "assistant", content: "It is a tree.", reasoning_content: "leaves" },
      "not even an object",
      { type: "function_call_output", output: "5" },
    ];
    const fields = { tools: [{ type: "function", function: { name: "f" } }], temperature: 1 };
    for (let count = 1; count < messages.length; count++) {
      expect(text(messages.slice(0, count + 1), fields).startsWith(text(messages.slice(0, count), fields))).toBe(true);
    }
  });

  test("tells chats apart by roles, contents, images, calls and tools, and by nothing that the prompt lacks", () => {
    const image = (url: string) => [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }];
    const different = [
      text([{ role: "user", content: "a" }]),
      text([{ role: "assistant", content: "a" }]),
      text([{ role: "user", content: "b" }]),
      text([
        { role: "user", content: "a" },
        { role: "user", content: "" },
      ]),
      text([{ role: "user", content: "a", name: "Ann" }]),
      text([{ role: "user", content: "a" }], { tools: [1] }),
      text([{ role: "user", content: "a" }], { system: "s" }),
      text(image("x".repeat(5_000))),
      text(image(`${"x".repeat(4_999)}y`)),
    ];
    expect(new Set(different).size).toBe(different.length);
    expect(text([{ role: "user", content: "a" }], { temperature: 0, tools: null })).toBe(different[0]);
    expect(text([{ role: "user", content: [{ type: "text", text: "a" }] }])).toBe(different[0]);
    expect(different.at(-1)?.length).toBeLessThan(100);
  });
});
