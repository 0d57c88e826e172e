import { type JsonBody, scanBody } from "@espalier/core";
import { describe, expect, test } from "vitest";
import { type MessagesRules, messagesChat, responsesChat } from "../../src/chat/api-chats.ts";
import { createChatRenderer } from "../../src/chat/chat-renderer.ts";
import { goldenClock } from "../template/golden.ts";

const rules: MessagesRules = { mergesSystem: false, disabledEffort: () => "none" };
const user = { role: "user", content: "Hi" };
const text = (value: string) => ({ type: "text", text: value });

/**
 * Agents speak these two APIs, and none of their prompts was found in a cache (predicted over four turns: 0, 96, 160, 224
 * of 0, 160, 256, 384): they were matched by their bytes, though what vLLM makes of them is public. Its source is read in
 * `entrypoints/anthropic/serving.py` and `entrypoints/openai/responses/utils.py` of 0.32.0.
 */
describe("the chat that vLLM makes of POST /v1/messages", () => {
  test("has the system's texts in one message, but for what agents write for billing", () => {
    const system = [text("x-anthropic-billing-header: a=1"), text("Be brief."), text(" Be kind.")];
    expect(messagesChat({ system, messages: [user] }, rules)).toEqual({
      messages: [{ role: "system", content: "Be brief. Be kind." }, user],
    });
    expect(messagesChat({ system: "", messages: [user] }, rules)).toEqual({ messages: [user] });
  });

  test("leaves later messages of the system where they are, or merges them where the template refuses them", () => {
    const messages = [user, { role: "system", content: [text("Late.")] }, { role: "system", content: "" }];
    const late = { role: "system", content: "Late." };
    expect(messagesChat({ messages }, rules)).toEqual({ messages: [user, late] });
    expect(messagesChat({ system: "S", messages }, { ...rules, mergesSystem: true })).toEqual({
      messages: [{ role: "system", content: "SLate." }, user],
    });
  });

  test("has calls with their input, thoughts, and results of tools before what the user says", () => {
    const messages = [
      user,
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "s" },
          { type: "redacted_thinking", data: "x" },
          text("So."),
          { type: "tool_use", id: "t1", name: "f", input: { a: 1 } },
        ],
      },
      {
        role: "user",
        content: [
          { type: "tool_result", tool_use_id: "t1", content: [text("x"), text("y")] },
          { type: "tool_result", tool_use_id: "t2", content: "z" },
          text("And?"),
          text("Now?"),
        ],
      },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "t3" }] },
    ];
    const calls = [{ id: "t1", type: "function", function: { name: "f", arguments: { a: 1 } } }];
    expect(messagesChat({ messages }, rules)?.messages).toEqual([
      user,
      { role: "assistant", content: "So.", reasoning: "hm", tool_calls: calls },
      { role: "tool", tool_call_id: "t1", content: "x\ny" },
      { role: "tool", tool_call_id: "t2", content: "z" },
      { role: "user", content: [text("And?"), text("Now?")] },
      { role: "tool", tool_call_id: "t3", content: "" },
    ]);
  });

  test("has images as URLs, those of results in a message of their own", () => {
    const source = { type: "base64", media_type: "image/png", data: "AA" };
    const image = { type: "image", source };
    const url = { type: "image_url", image_url: { url: "data:image/png;base64,AA" } };
    const result = { type: "tool_result", tool_use_id: "t", content: [image, text("x")] };
    expect(messagesChat({ messages: [{ role: "user", content: [result, image] }] }, rules)?.messages).toEqual([
      { role: "tool", tool_call_id: "t", content: "x" },
      { role: "user", content: [url] },
      { role: "user", content: [url] },
    ]);
  });

  test("has tools as functions, whose parameters are an object where they do not say", () => {
    const tools = [{ name: "f", input_schema: { properties: {} }, cache_control: { type: "ephemeral" } }];
    const chat = messagesChat({ messages: [user], tools }, rules);
    expect(chat?.tools).toEqual([
      { type: "function", function: { name: "f", parameters: { properties: {}, type: "object" } } },
    ]);
  });

  test.each([
    [{ thinking: { type: "disabled" } }, "none"],
    [{ thinking: { type: "disabled" }, output_config: { effort: "high" } }, "none"],
    [{ thinking: { type: "enabled", budget_tokens: 2_000 }, output_config: { effort: "high" } }, "high"],
    [{ thinking: { type: "adaptive" } }, undefined],
  ])("has the effort of %j: %s", (fields, effort) => {
    expect(messagesChat({ messages: [user], ...fields }, rules)?.reasoning_effort).toBe(effort);
  });

  test.each([
    { messages: "Hi" },
    { messages: [5] },
    { messages: [{ role: "user", content: 5 }] },
    { messages: [{ role: "user", content: ["Hi"] }] },
    { messages: [{ role: "system", content: [{ type: "tool_removal", tool: {} }] }] },
    { messages: [user], tools: [{ name: "f" }] },
    { messages: [{ role: "assistant", content: [{ type: "tool_result", content: "x" }] }] },
  ])("is not known of %j", (fields) => {
    expect(messagesChat(fields, rules)).toBeUndefined();
  });
});

describe("what a template takes of messages", () => {
  test("has numbers of schemas as they are written", () => {
    const files = {
      config: { chat_template: "{{ tools | tojson }}" },
      chatTemplate: undefined,
      additionalTemplates: {},
    };
    const renderer = createChatRenderer(files, goldenClock);
    const body = scanBody(
      Buffer.from(
        '{"messages":[{"role":"user","content":"Hi"}],"tools":[{"name":"f","input_schema":{"default":1.0}}]}',
      ),
      64,
    ) as JsonBody;
    const chat = renderer.asChat({ endpoint: "messages", fields: body.fields, body })!;
    expect(renderer.render(chat).text).toContain('"default": 1.0');
    const tools = Buffer.from('{"messages":[],"tools":[{"function":{"name":"f","parameters":{"default":1.0}}}]}');
    const whole = scanBody(tools, 64) as JsonBody;
    expect(renderer.render({ endpoint: "chat", fields: whole.fields, body: whole }).text).toContain('{"default": 1.0}');
  });

  test.each([
    ["{% for m in messages %}{{ m.content }}{% endfor %}", "none? Hi late"],
    [
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}" +
        "{{ m.content }}{% endfor %}",
      "late none? Hi",
    ],
  ])("is probed on the template as vLLM does: %s", (source) => {
    const renderer = createChatRenderer(
      { config: { chat_template: source }, chatTemplate: undefined, additionalTemplates: {} },
      goldenClock,
    );
    const messages = [user, { role: "system", content: "late" }];
    const fieldsOf = (dialect: "vllm-0.23" | "vllm-0.32") =>
      renderer.asChat({ endpoint: "messages", fields: { messages }, dialect })?.fields.messages;
    const merged = [{ role: "system", content: "late" }, user];
    expect(fieldsOf("vllm-0.32")).toEqual(source.includes("raise") ? merged : messages);
    expect(fieldsOf("vllm-0.23")).toEqual(merged);
  });

  test.each([
    ["{{ 'off' if enable_thinking is defined and not enable_thinking }}", "none"],
    ["{{ messages[0].content }}", "low"],
  ])("says %s to no thinking", (source, effort) => {
    const files = { config: { chat_template: source }, chatTemplate: undefined, additionalTemplates: {} };
    const fields = { messages: [user], thinking: { type: "disabled" } };
    const chat = createChatRenderer(files, goldenClock).asChat({ endpoint: "messages", fields });
    expect(chat?.fields.reasoning_effort).toBe(effort);
  });
});

describe("the chat that vLLM makes of POST /v1/responses", () => {
  test("has instructions first, and the input as the user's", () => {
    const fields = { instructions: "Be brief.", input: "Hi", reasoning: { effort: "low" } };
    expect(responsesChat(fields)).toEqual({
      messages: [{ role: "system", content: "Be brief." }, user],
      reasoning_effort: "low",
    });
  });

  test("joins the items of one turn of the assistant", () => {
    const input = [
      { role: "user", content: [{ type: "input_text", text: "Hi" }] },
      { type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: "hm" }] },
      { type: "message", role: "assistant", content: [{ type: "output_text", text: "So." }] },
      { type: "function_call", call_id: "c1", name: "f", arguments: '{"a":1}' },
      { type: "function_call", call_id: "c2", name: "g", arguments: "{}" },
      { type: "function_call_output", call_id: "c1", output: "x" },
      { type: "message", role: "assistant", content: "Well." },
      { type: "message", role: "assistant", content: "Then." },
    ];
    const call = (id: string, name: string, given: string) => ({
      ...{ id, type: "function" },
      function: { name, arguments: given },
    });
    expect(responsesChat({ input })?.messages).toEqual([
      input[0],
      {
        ...{ role: "assistant", reasoning: "hm", content: "So." },
        tool_calls: [call("c1", "f", '{"a":1}'), call("c2", "g", "{}")],
      },
      { role: "tool", content: "x", tool_call_id: "c1" },
      { role: "assistant", content: "Well." },
      { role: "assistant", content: "Then." },
    ]);
    expect(input[0], "the request itself is left as it is").toEqual({
      role: "user",
      content: [{ type: "input_text", text: "Hi" }],
    });
  });

  test("leaves an answer open that is not finished", () => {
    const input = [user, { type: "message", role: "assistant", status: "incomplete", content: "One, " }];
    expect(responsesChat({ input })).toMatchObject({ add_generation_prompt: false, continue_final_message: true });
    expect(responsesChat({ input: [user] })).not.toHaveProperty("continue_final_message");
  });

  test("shows the model functions alone", () => {
    const tools = [{ type: "web_search" }, { type: "function", name: "f", parameters: {}, strict: true }];
    expect(responsesChat({ input: "Hi", tools })?.tools).toEqual([
      { type: "function", function: { name: "f", parameters: {}, strict: true } },
    ]);
  });

  test.each([
    { input: 5 },
    { input: [5] },
    { input: [{ type: "item_reference", id: "x" }] },
    { input: [{ type: "reasoning", summary: [], encrypted_content: "x" }] },
    { input: "Hi", previous_response_id: "r" },
    { input: "Hi", tools: [{ type: "custom", name: "c" }] },
    { input: "Hi", tools: "f" },
  ])("is not known of %j", (fields) => {
    expect(responsesChat(fields)).toBeUndefined();
  });
});
