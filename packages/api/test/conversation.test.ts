import { expect, test } from "vitest";
import { findConversation, maxComparedBytes } from "../src/request/conversation.ts";
import { anthropic, chat, completions, responses, viewOf } from "./helpers.ts";

const system = { role: "system", content: "You are an agent. ".repeat(40) };
const user = (content: string) => ({ role: "user", content });
const assistant = (content: string) => ({ role: "assistant", content });

const find = (messages: readonly object[], known: readonly number[] = [], scope = "s", rest: object = {}) =>
  findConversation(viewOf(chat, { model: "m", messages, ...rest }), scope, (digest) => known.includes(digest));
const digestOf = (messages: readonly object[], scope?: string): number => find(messages, [], scope)!.digest;

const first = [system, user("Fix the bug.")];
const second = [...first, assistant("I look."), { role: "tool", content: "main.c", tool_call_id: "c1" }];

test("continues the shortest beginning that was a whole request, whatever comes after the answer", () => {
  const begun = digestOf(first);
  expect(find(first)).toEqual({ digest: begun, isContinued: false });
  expect(find(second, [begun])).toEqual({ digest: begun, isContinued: true });
  const third = [...second, assistant("I fix."), user("Thanks.")];
  expect(find(third, [begun, digestOf(second)])).toMatchObject({ digest: begun, isContinued: true });
  expect(find(third, [digestOf(second)])).toMatchObject({ digest: digestOf(second), isContinued: true });
  expect(find(second)).toMatchObject({ digest: digestOf(second), isContinued: false });
});

test("a beginning without an answer behind it is not continued", () => {
  const shared = digestOf([system]);
  expect(find(first, [shared])).toMatchObject({ isContinued: false });
  expect(find(first, [digestOf(first)])).toMatchObject({ isContinued: false });
  expect(find([...second.slice(0, 3), assistant("More.")], [digestOf(second.slice(0, 3))])).toMatchObject({
    isContinued: false,
  });
});

test("another scope, system prompt, text or its other end is another conversation", () => {
  const long = (middle: string) => [user(`${"a".repeat(4_200)}${middle}${"z".repeat(4_200)}`)];
  const all = [first, [user("Fix the bug.")], [system, user("Fix the bug!")], long("1"), long("12")];
  expect(new Set([...all.map((messages) => digestOf(messages)), digestOf(first, "t")]).size).toBe(all.length + 1);
  const ofSystem = (text: string) =>
    findConversation(
      viewOf(anthropic, { model: "m", max_tokens: 1, system: text, messages: first.slice(1) }),
      "",
      () => false,
    );
  expect(ofSystem("a")!.digest).not.toBe(ofSystem("b")!.digest);
});

test("takes Codex's items, whose calls have no role", () => {
  const input = [
    user("Fix."),
    { type: "reasoning" },
    { type: "function_call", name: "shell" },
    { type: "function_call_output" },
  ];
  const at = (items: readonly object[], known: readonly number[] = []) =>
    findConversation(viewOf(responses, { model: "m", input: items }), "", (digest) => known.includes(digest))!;
  const begun = at(input.slice(0, 1)).digest;
  expect(at(input, [begun])).toMatchObject({ digest: begun, isContinued: true });
  expect(at([user("Fix."), { type: "message", role: "assistant" }], [begun]).isContinued).toBe(true);
});

test("prompts that are no lists of messages are none", () => {
  const none = (): boolean => false;
  expect(findConversation(viewOf(completions, { model: "m", prompt: "a" }), "", none)).toBeUndefined();
  expect(findConversation(viewOf(responses, { model: "m", input: "a" }), "", none)).toBeUndefined();
  expect(findConversation(viewOf(responses, { model: "m", input: ["a"] }), "", none)).toBeUndefined();
});

test("more than the compared bytes without a known beginning are none; the next one is", () => {
  const turns = Array.from({ length: maxComparedBytes / 4_096 }, (_, at) => [
    user(`${at}${"x".repeat(2_030)}`),
    assistant("y".repeat(2_030)),
  ]).flat();
  expect(find(turns)).toBeUndefined();
  expect(find(turns, [digestOf(turns.slice(0, 1))])).toMatchObject({ isContinued: true });
  expect(find(turns.slice(0, -2))).toMatchObject({ isContinued: false });
});
