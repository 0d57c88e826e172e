import { describe, expect, test } from "vitest";
import { defaultSessionKeyLadder, readSessionKey, type SessionKeySource } from "../src/index.ts";
import { anthropic, chat, smallChat, viewOf } from "./helpers.ts";

const nothing = viewOf(chat, smallChat);
const everything = viewOf(chat, { ...smallChat, session_id: "b-session", prompt_cache_key: "b-cache", user: "b-user" });
const allHeaders = { "x-espalier-session-id": "h-own", "x-session-id": "h-plain", "x-smg-routing-key": "h-smg" };

describe("the default ladder", () => {
  test("finds nothing where there is nothing", () => {
    expect(readSessionKey(defaultSessionKeyLadder, {}, nothing)).toBeUndefined();
  });

  test("goes down step by step as the higher ones are taken away", () => {
    const headers: Record<string, string> = { ...allHeaders };
    const fields: Record<string, unknown> = { ...everything.body.fields };
    const found: (string | undefined)[] = [];
    const look = () => found.push(readSessionKey(defaultSessionKeyLadder, headers, viewOf(chat, fields)));
    look();
    for (const name of Object.keys(allHeaders)) {
      delete headers[name];
      look();
    }
    for (const name of ["session_id", "prompt_cache_key", "user"]) {
      delete fields[name];
      look();
    }
    expect(found).toEqual(["h-own", "h-plain", "h-smg", "b-session", "b-cache", "b-user", undefined]);
  });

  test("takes Anthropic's metadata.user_id for the user", () => {
    const view = viewOf(anthropic, { ...smallChat, max_tokens: 1, metadata: { user_id: "u-9" } });
    expect(readSessionKey(defaultSessionKeyLadder, {}, view)).toBe("u-9");
  });
});

test.each([
  ["an empty header", { "x-session-id": "" }, "b-session"],
  ["a header without values", { "x-session-id": [] }, "b-session"],
  ["an undefined header", { "x-session-id": undefined }, "b-session"],
  ["a repeated header: the first value", { "x-session-id": ["one", "two"] }, "one"],
])("%s", (_, headers, expected) => {
  expect(readSessionKey(defaultSessionKeyLadder, headers, everything)).toBe(expected);
});

test("an empty ladder finds nothing", () => {
  expect(readSessionKey([], allHeaders, everything)).toBeUndefined();
});

test("a configured ladder looks where it says, and nowhere else", () => {
  const ladder = [
    { from: "body", name: "conversation" },
    { from: "header", name: "x-conversation" },
  ] as const;
  const view = viewOf(chat, { ...smallChat, conversation: "c-1", user: "u" });
  expect(readSessionKey(ladder, { "x-conversation": "h-1" }, view)).toBe("c-1");
  expect(readSessionKey(ladder, { "x-conversation": "h-1" }, everything)).toBe("h-1");
  expect(readSessionKey(ladder, allHeaders, everything)).toBeUndefined();
});

test.each([
  ["a number", 17],
  ["an object", { id: "x" }],
  ["null", null],
])("a configured body field that is %s is no key", (_, value) => {
  const view = viewOf(chat, { ...smallChat, conversation: value });
  expect(readSessionKey([{ from: "body", name: "conversation" }], {}, view)).toBeUndefined();
});

test.each(["constructor", "toString", "__proto__"])("a body field %s of Object.prototype is no key", (name) => {
  expect(readSessionKey([{ from: "body", name }], {}, nothing)).toBeUndefined();
});

describe("of a key, 1,024 characters count", () => {
  const longest = "k".repeat(1_024);
  test("in a header", () => {
    for (const key of [longest, `${longest}k`]) {
      expect(readSessionKey(defaultSessionKeyLadder, { "x-session-id": key }, nothing)).toBe(longest);
    }
  });

  test("in a configured body field", () => {
    const ladder: SessionKeySource[] = [{ from: "body", name: "conversation" }];
    for (const key of [longest, `${longest}k`]) {
      expect(readSessionKey(ladder, {}, viewOf(chat, { ...smallChat, conversation: key }))).toBe(longest);
    }
  });
});
