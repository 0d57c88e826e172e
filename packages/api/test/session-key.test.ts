import { describe, expect, test } from "vitest";
import {
  defaultSessionKeyLadder,
  findParentAgent,
  findSession,
  nameOfSource,
  prefixSource,
  type SessionKeySource,
} from "../src/index.ts";
import { anthropic, chat, smallChat, viewOf } from "./helpers.ts";

const nothing = viewOf(chat, smallChat);
const everything = viewOf(chat, { ...smallChat, session_id: "b-session", prompt_cache_key: "b-cache", user: "b-user" });
const allHeaders = { "x-espalier-session-id": "h-own", "x-session-id": "h-plain", "x-smg-routing-key": "h-smg" };

const keyOf = (...found: Parameters<typeof findSession>): string | undefined => findSession(...found)?.key;

/** Each source of the default ladder: what a request with a value there has, and the key that comes of it. */
const sources: readonly (readonly [source: string, headers: Record<string, string>, fields: object, key: string])[] = [
  ["header:x-espalier-session-id", { "x-espalier-session-id": "own" }, {}, "own"],
  ["header:x-session-id", { "x-session-id": "plain" }, {}, "plain"],
  ["header:x-smg-routing-key", { "x-smg-routing-key": "smg" }, {}, "smg"],
  [
    "header:x-claude-code-session-id/x-claude-code-agent-id",
    { "x-claude-code-session-id": "claude", "x-claude-code-agent-id": "a1", "x-claude-code-parent-agent-id": "a0" },
    {},
    "claude/a1",
  ],
  ["header:session-id/thread-id", { "session-id": "codex", "thread-id": "t1" }, {}, "codex/t1"],
  ["header:session_id/thread_id", { session_id: "codex before", thread_id: "t1" }, {}, "codex before/t1"],
  ["header:x-session-affinity", { "x-session-affinity": "opencode" }, {}, "opencode"],
  ["header:x-opencode-session", { "x-opencode-session": "zen" }, {}, "zen"],
  ["header:x-dynamo-session-id", { "x-dynamo-session-id": "dynamo" }, {}, "dynamo"],
  ["body:session_id", {}, { session_id: "body" }, "body"],
  [
    "body:vllm_xargs.agentic_context.program_id",
    {},
    { vllm_xargs: { agentic_context: { session_id: "vllm", agent_id: "a1", program_id: "program" } } },
    "program",
  ],
  [
    "body:vllm_xargs.agentic_context.session_id/vllm_xargs.agentic_context.agent_id",
    {},
    { vllm_xargs: { agentic_context: JSON.stringify({ session_id: "vllm", agent_id: "a1" }) } },
    "vllm/a1",
  ],
  ["body:agent_hint.session_id", {}, { agent_hint: { session_id: "hint" } }, "hint"],
  ["body:session_params.id", {}, { session_params: { id: "sglang", rid: "r" } }, "sglang"],
  ["body:prompt_cache_key", {}, { prompt_cache_key: "cache" }, "cache"],
  ["body:user", {}, { user: "ada" }, "ada"],
];

describe("the default ladder", () => {
  test("finds nothing where there is nothing", () => {
    expect(findSession(defaultSessionKeyLadder, {}, nothing)).toBeUndefined();
    expect(findSession(defaultSessionKeyLadder, {}, undefined)).toBeUndefined();
  });

  test("is in the documented order", () => {
    expect(defaultSessionKeyLadder.map(nameOfSource)).toEqual(sources.map(([source]) => source));
  });

  test.each(sources)("finds %s", (source, headers, fields, key) => {
    const found = findSession(defaultSessionKeyLadder, headers, viewOf(chat, { ...smallChat, ...fields }));
    expect([found?.key, found && nameOfSource(found.source)]).toEqual([key, source]);
  });

  test("prefers what stands higher, and each source is absent with its item", () => {
    // The last two of vLLM's come from one field.
    const given = sources.filter(([source]) => !source.startsWith("body:vllm_xargs.agentic_context.session_id"));
    for (let from = 0; from < given.length; from++) {
      const rest = given.slice(from);
      const headers = Object.assign({}, ...rest.map(([, sent]) => sent)) as Record<string, string>;
      const fields = Object.assign({ ...smallChat }, ...rest.map(([, , sent]) => sent)) as Record<string, unknown>;
      const view = viewOf(chat, fields);
      expect(keyOf(defaultSessionKeyLadder, headers, view)).toBe(rest[0]?.[3]);
      const without = defaultSessionKeyLadder.filter((one) => nameOfSource(one) !== rest[0]?.[0]);
      expect(keyOf(without, headers, view)).not.toBe(rest[0]?.[3]);
    }
  });

  test("takes Anthropic's metadata.user_id for the user", () => {
    const view = viewOf(anthropic, { ...smallChat, max_tokens: 1, metadata: { user_id: "u-9" } });
    expect(keyOf(defaultSessionKeyLadder, {}, view)).toBe("u-9");
  });
});

describe("an agent", () => {
  const headers = { "x-claude-code-session-id": "s", "session-id": "c", "thread-id": "c" };
  test("has a key of its own, apart from its session's and from those of others", () => {
    const keys = ["a1", "a2", "", undefined].map((agent) =>
      keyOf(defaultSessionKeyLadder, { ...headers, "x-claude-code-agent-id": agent }, nothing),
    );
    expect(keys).toEqual(["s/a1", "s/a2", "s", "s"]);
  });

  test("that is named like its session is the session's main thread", () => {
    expect(keyOf([{ from: "header", name: "session-id", agent: "thread-id" }], headers, nothing)).toBe("c");
  });

  test("shares its session's key where the ladder does not name it, and is nothing without a session", () => {
    const ladder: SessionKeySource[] = [{ from: "header", name: "x-claude-code-session-id" }];
    const agent = { "x-claude-code-agent-id": "a1" };
    expect(keyOf(ladder, { ...headers, ...agent }, nothing)).toBe("s");
    expect(findSession(defaultSessionKeyLadder, agent, nothing)).toBeUndefined();
  });
});

test.each<[string, Record<string, string>, string | undefined]>([
  ["the session's main agent", { "x-claude-code-session-id": "s", "x-claude-code-agent-id": "a" }, "s"],
  [
    "another agent",
    { "x-claude-code-session-id": "s", "x-claude-code-agent-id": "a", "x-claude-code-parent-agent-id": "b" },
    "s/b",
  ],
  ["nobody of a main agent", { "x-claude-code-session-id": "s" }, undefined],
  ["a thread", { "session-id": "s", "thread-id": "t", "x-codex-parent-thread-id": "s" }, "s"],
  ["nobody of a first thread", { "session-id": "s", "thread-id": "s" }, undefined],
  ["a session", { "x-session-id": "child", "x-parent-session-id": "s" }, "s"],
  ["nobody when it is itself", { "x-session-id": "s", "x-parent-session-id": "s" }, undefined],
  ["a session of Dynamo's", { "x-dynamo-session-id": "child", "x-dynamo-parent-session-id": "s" }, "s"],
])("the parent is %s", (_, headers, parent) => {
  expect(findSession(defaultSessionKeyLadder, headers, nothing)?.parent).toBe(parent);
});

test("vLLM Router's programs name their parents", () => {
  const context = { program_id: "child", parent_program_id: "p" };
  const view = viewOf(chat, { ...smallChat, vllm_xargs: { agentic_context: context } });
  expect(findSession(defaultSessionKeyLadder, {}, view)?.parent).toBe("p");
});

test("the source without a name gives no key", () => {
  expect(nameOfSource(prefixSource)).toBe("prefix");
  expect(findSession([prefixSource], allHeaders, everything)).toBeUndefined();
});

describe("a path", () => {
  const at = (name: string, fields: object) =>
    keyOf([{ from: "body", name }], {}, viewOf(chat, { ...smallChat, ...fields }));

  test("leads to a text at any depth", () => {
    expect(at("a.b.c.d", { a: { x: [1], b: { c: { d: "deep", c: "no" } } } })).toBe("deep");
    expect(at("a.b", { b: "no", a: { "a.b": "no", b: "yes" } })).toBe("yes");
  });

  test.each<[string, object]>([
    ["a.b", {}],
    ["a.b", { a: null }],
    ["a.b", { a: ["b"] }],
    ["a.b", { a: 1 }],
    ["a.b", { a: {} }],
    ["a.b", { a: { b: 1 } }],
    ["a.b", { a: { b: { c: "x" } } }],
    ["a.b", { a: "b" }],
    ["a.b", { a: '{"b":' }],
    ["a.b", { a: "[1]" }],
    ["a.b", { a: '{"b":{}}' }],
    ["a.constructor", { a: "{}" }],
    ["a.b.c", { a: '{"b":"c"}' }],
    ["a..b", { a: { b: "x" } }],
    [".", { a: "x" }],
  ])("%s leads nowhere in %j", (path, fields) => {
    expect(at(path, fields)).toBeUndefined();
  });

  test("goes on in JSON in a text of at most 16,384 bytes", () => {
    const encoded = (bytes: number) => `{"b":{"c":"x"}}`.padEnd(bytes);
    expect(at("a.b.c", { a: encoded(16_384) })).toBe("x");
    expect(at("a.b.c", { a: encoded(16_385) })).toBeUndefined();
    expect(at("a.b.c", { a: encoded(0) })).toBe("x");
  });
});

test.each([
  ["an empty header", { "x-session-id": "" }, "b-session"],
  ["a header without values", { "x-session-id": [] }, "b-session"],
  ["an undefined header", { "x-session-id": undefined }, "b-session"],
  ["a repeated header: the first value", { "x-session-id": ["one", "two"] }, "one"],
])("%s", (_, headers, expected) => {
  expect(keyOf(defaultSessionKeyLadder, headers, everything)).toBe(expected);
});

test("an empty ladder finds nothing", () => {
  expect(keyOf([], allHeaders, everything)).toBeUndefined();
});

test("a configured ladder looks where it says, and nowhere else", () => {
  const ladder = [
    { from: "body", name: "conversation" },
    { from: "header", name: "x-conversation" },
  ] as const;
  const view = viewOf(chat, { ...smallChat, conversation: "c-1", user: "u" });
  expect(keyOf(ladder, { "x-conversation": "h-1" }, view)).toBe("c-1");
  expect(keyOf(ladder, { "x-conversation": "h-1" }, everything)).toBe("h-1");
  expect(keyOf(ladder, allHeaders, everything)).toBeUndefined();
});

test.each([
  ["a number", 17],
  ["an object", { id: "x" }],
  ["null", null],
])("a configured body field that is %s is no key", (_, value) => {
  const view = viewOf(chat, { ...smallChat, conversation: value });
  expect(keyOf([{ from: "body", name: "conversation" }], {}, view)).toBeUndefined();
});

test.each(["constructor", "toString", "__proto__"])("a body field %s of Object.prototype is no key", (name) => {
  expect(keyOf([{ from: "body", name }], {}, nothing)).toBeUndefined();
});

describe("of a key, 1,024 characters count", () => {
  const longest = "k".repeat(1_024);
  test("in a header", () => {
    for (const key of [longest, `${longest}k`]) {
      expect(keyOf(defaultSessionKeyLadder, { "x-session-id": key }, nothing)).toBe(longest);
    }
  });

  test("in a configured body field", () => {
    const ladder: SessionKeySource[] = [{ from: "body", name: "conversation" }];
    for (const key of [longest, `${longest}k`]) {
      expect(keyOf(ladder, {}, viewOf(chat, { ...smallChat, conversation: key }))).toBe(longest);
    }
  });
});

test("an agent's key begins with its session's; who began it is what its client says", () => {
  const parentOf = (headers: Record<string, string>) => {
    const found = findSession(defaultSessionKeyLadder, headers, undefined)!;
    return [found.key, found.session, found.agent, findParentAgent(found, headers)];
  };
  const claude = (agent?: string, parent?: string) => ({
    "x-claude-code-session-id": "s",
    ...(agent !== undefined && { "x-claude-code-agent-id": agent }),
    ...(parent !== undefined && { "x-claude-code-parent-agent-id": parent }),
  });
  expect(parentOf(claude())).toEqual(["s", "s", undefined, undefined]);
  expect(parentOf(claude("a"))).toEqual(["s/a", "s", "a", undefined]);
  expect(parentOf(claude("a", "b"))).toEqual(["s/a", "s", "a", "b"]);
  for (const none of ["", "s", "a"]) expect(parentOf(claude("a", none))[3]).toBeUndefined();
  expect(parentOf(claude(undefined, "b"))[3]).toBeUndefined();
  const codex = { "session-id": "s", "x-codex-parent-thread-id": "t" };
  expect(parentOf({ ...codex, "thread-id": "u" })).toEqual(["s/u", "s", "u", "t"]);
  expect(parentOf({ ...codex, "thread-id": "s" })).toEqual(["s", "s", undefined, undefined]);
  expect(parentOf({ "x-session-id": "s", "x-claude-code-parent-agent-id": "b" })[3]).toBeUndefined();
});
