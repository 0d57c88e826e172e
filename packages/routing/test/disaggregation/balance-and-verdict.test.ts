import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { cacheVerdict, createRoleBalance, transferVerdict } from "../../src/disaggregation/index.ts";

describe("the balance of roles", () => {
  test("a worked example: 10,000 prompt tokens are as much work as 2,000 of output", () => {
    const balance = createRoleBalance({ clock: createVirtualTime().clock });
    expect(balance.prefillShare()).toBeNaN();
    expect(balance.prefillEngines(8)).toBe(0);
    balance.observe({ uncachedTokens: 10_000, outputTokens: 2_000 });
    expect(balance.prefillShare()).toBe(0.5);
    expect(balance.prefillEngines(8)).toBe(4);
    balance.observe({ uncachedTokens: 20_000, outputTokens: 0 });
    expect(balance.prefillShare()).toBe(0.75);
    expect(balance.prefillEngines(8)).toBe(6);
  });

  test("either role keeps an engine where there are two", () => {
    const balance = createRoleBalance({ clock: createVirtualTime().clock });
    balance.observe({ uncachedTokens: 1_000_000, outputTokens: 0 });
    expect([0, 1, 2, 10].map((count) => balance.prefillEngines(count))).toEqual([0, 0, 1, 9]);
    const other = createRoleBalance({ clock: createVirtualTime().clock });
    other.observe({ uncachedTokens: 0, outputTokens: 1_000_000 });
    expect([0, 1, 2, 10].map((count) => other.prefillEngines(count))).toEqual([0, 0, 1, 1]);
  });

  test("what came long ago is forgotten", async () => {
    const time = createVirtualTime();
    const balance = createRoleBalance({ clock: time.clock });
    balance.observe({ uncachedTokens: 100_000, outputTokens: 0 });
    await time.advance(3_600_000);
    balance.observe({ uncachedTokens: 0, outputTokens: 1_000 });
    expect(balance.prefillShare()).toBeLessThan(0.01);
  });

  test("rates that are known count", () => {
    const clock = createVirtualTime().clock;
    const balance = createRoleBalance({ clock, prefillMsPerToken: 1, decodeMsPerToken: 1 });
    balance.observe({ uncachedTokens: 300, outputTokens: 100 });
    expect(balance.prefillShare()).toBe(0.75);
  });

  test("a request that computed nothing, or less, adds nothing", () => {
    const balance = createRoleBalance({ clock: createVirtualTime().clock });
    balance.observe({ uncachedTokens: -5, outputTokens: 10 });
    expect(balance.prefillShare()).toBe(0);
  });
});

describe("an engine declines a request of which caches hold too little", () => {
  const verdict = (text: string, isStream: boolean, ended = false) => cacheVerdict(Buffer.from(text), isStream, ended);
  const role = 'data: {"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n';

  test.each<[string, string, boolean, boolean, "pass" | "decline" | "more"]>([
    ["a whole answer", '{"choices":[{"text":"","finish_reason":"cache_threshold"}]}', false, true, "decline"],
    ["before its end", '{"choices":[{"text":"","finish_reason" : "cache_threshold"', false, false, "decline"],
    ["any other reason", '{"choices":[{"text":"a","finish_reason":"stop"}]}', false, true, "pass"],
    ["half an answer", '{"choices":[{"text":"a', false, false, "more"],
    ["an end without a reason", '{"choices":[{"text":"a', false, true, "pass"],
    ["a stream's first event", role, true, false, "more"],
    ["its first word", `${role}data: {"choices":[{"delta":{"content":"a"}`, true, false, "pass"],
    ["its first text", 'data: {"choices":[{"text":"a"', true, false, "pass"],
    ["its first call", `${role}data: {"choices":[{"delta":{"tool_calls":[{"index":0`, true, false, "pass"],
    ["its end", `${role}data: {"choices":[{"delta":{},"finish_reason":"cache_threshold"}]}`, true, false, "decline"],
    ["the words themselves", '{"choices":[{"text":"\\"finish_reason\\":\\"cache_threshold\\""', false, false, "more"],
    ["nothing", "", true, true, "pass"],
  ])("%s", (_, text, isStream, ended, expected) => {
    expect(verdict(text, isStream, ended)).toBe(expected);
  });
});

describe("an engine that could not get the blocks", () => {
  const verdict = (text: string, status = 200, isStream = true, ended = false) =>
    transferVerdict(status, Buffer.from(text), isStream, ended);

  test.each([500, 502, 503, 504])("says so with %i", (status) => {
    expect([verdict("", status), verdict("{}", status, false, true)]).toEqual(["decline", "decline"]);
  });

  test.each([
    ['data: {"error":{"message":"x"}}\n\n', "decline"],
    ['data: { "error" : {}}', "decline"],
    ['event: error\ndata: {"error":', "decline"],
    ['data: {"id":"a","error":null', "pass"],
    ['data: {"error_code":1', "pass"],
    ["data: {", "more"],
    ["dat", "more"],
    ['data: {"err', "more"],
    [`: ${"x".repeat(300)}`, "pass"],
  ])("or in the first event of a stream: %s", (text, expected) => {
    expect(verdict(text)).toBe(expected);
  });

  test("a stream that ends before it tells, an answer in one piece and a refusal pass", () => {
    expect(verdict("data: {", 200, true, true)).toBe("pass");
    expect(verdict('{"error":', 200, false)).toBe("pass");
    expect(verdict('data: {"error":{}}', 400)).toBe("pass");
  });
});
