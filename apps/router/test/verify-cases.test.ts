import { hardTexts } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { verifyCases } from "../src/doctor/compare-tokenizer.ts";

const special = ["<|im_end|>", "</s>"];
/** With the flag, pairs are characters of their own and do not match. */
const halfOfPair = /\p{Surrogate}/u;

/** The text of a case, of a chat that of its last message. */
function textOf(one: ReturnType<typeof verifyCases>[number]): string {
  if ("prompt" in one) return one.prompt;
  const { content } = one.messages.at(-1) as { content: string | { text: string }[] };
  return typeof content === "string" ? content : content.map(({ text }) => text).join("");
}

test("every case has a name of its own: rows are told apart by it", () => {
  const names = verifyCases(special, true).map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

test("no text is empty or holds half of a surrogate pair, which engines refuse", () => {
  const texts = verifyCases(special, true).map(textOf);
  expect(texts.length).toBeGreaterThan(100);
  for (const text of texts) {
    expect(text).not.toBe("");
    expect(text).not.toMatch(halfOfPair);
  }
});

test("nothing but such texts is left out of the hard ones", () => {
  const kept = new Set(verifyCases(special, false).map(textOf));
  const left = hardTexts({ tokens: special }).filter(({ text }) => !kept.has(text));
  expect(left.length).toBeGreaterThan(0);
  for (const { text } of left) expect(text === "" || halfOfPair.test(text)).toBe(true);
});

test.each(special)("the model's %s stands alone, between letters and cut in two", (token) => {
  const texts = verifyCases(special, false).map(textOf);
  for (const text of [token, `a${token}b`, token.slice(0, -1), token.slice(1)]) expect(texts).toContain(text);
});

test("without a template there are no chats, with one all kinds of them besides the same prompts", () => {
  const prompts = verifyCases(special, false);
  const all = verifyCases(special, true);
  expect(prompts.every((one) => "prompt" in one)).toBe(true);
  expect(all.slice(0, prompts.length)).toEqual(prompts);
  const chats = all.slice(prompts.length);
  expect(chats.every((one) => "messages" in one && one.name.startsWith("chat: "))).toBe(true);
  const rolesOf = (name: string) => {
    const chat = chats.find((one) => one.name === `chat: ${name}`);
    return chat && "messages" in chat ? (chat.messages as { role: string }[]).map(({ role }) => role) : [];
  };
  expect(rolesOf("one turn")).toEqual(["user"]);
  expect(rolesOf("system prompt")).toEqual(["system", "user"]);
  expect(rolesOf("several turns")).toEqual(["user", "assistant", "user"]);
  expect(chats.filter((one) => "tools" in one).map(({ name }) => name)).toEqual([
    "chat: tools",
    "chat: tools with fields of a client",
    "chat: two tools, one of which is loaded later",
    "chat: tools, none of which may be called",
    "chat: two tools, one of which is chosen",
  ]);
  expect(rolesOf("developer between turns")).toEqual(["system", "user", "developer", "user"]);
});

test("chats of hard texts are the first ones, not more than forty, and hold them unchanged", () => {
  const all = verifyCases(special, true);
  const prompts = all.filter((one) => "prompt" in one);
  const chats = all.filter((one) => "messages" in one && !("tools" in one)).slice(-40);
  expect(chats.map(({ name }) => name)).toEqual(prompts.slice(0, 40).map(({ name }) => `chat: ${name}`));
  expect(chats.map(textOf)).toEqual(prompts.slice(0, 40).map(textOf));
});

test("the same cases every time, so that two runs can be compared", () => {
  expect(verifyCases(special, true)).toEqual(verifyCases(special, true));
});
