import { describe, expect, test } from "vitest";
import { compileChatTemplate } from "../../src/chat/chat-template.ts";
import {
  type FamilyCase,
  type GoldenConversation,
  goldenClock,
  goldenTokens,
  readGolden,
  readTemplate,
  renderCompiled,
  renderInterpreted,
  templateNames,
  variablesOf,
} from "./golden.ts";

const conversations = readGolden("conversations.json") as Record<string, GoldenConversation>;
const cases = readGolden("families.json") as FamilyCase[];

test("the golden file has a result for each family and conversation", () => {
  expect(templateNames.length).toBeGreaterThanOrEqual(10);
  expect(cases.length).toBe(templateNames.length * Object.keys(conversations).length);
});

describe.each(templateNames)("%s", (name) => {
  const source = readTemplate(name);
  const own = cases.filter(({ template }) => template === name);

  test.each(own)("renders $conversation as Python does", ({ conversation, expected, error, message }) => {
    const result = renderCompiled(source, variablesOf(conversations[conversation]!));
    if (error === "value") expect(result.error).toBe("value");
    else expect(result).toEqual(error ? { error, message } : { expected });
  });

  test("agrees with the interpreter of the library where that renders what Python does", () => {
    const agreeing = own.filter(({ conversation, expected }) => {
      if (expected === undefined) return false;
      return renderInterpreted(source, variablesOf(conversations[conversation]!)) === expected;
    });
    // The library reads the date from the system, so it agrees in no chat of a template that writes today's.
    expect(agreeing.length > 0).toBe(!source.includes("strftime_now"));
  });

  test.each(own.filter(({ conversation }) => conversation !== "parts"))(
    "a chat of $conversation renders the same",
    ({ conversation, expected, message }) => {
      const given = conversations[conversation]!;
      const template = compileChatTemplate(source, {
        clock: goldenClock,
        specialTokens: goldenTokens,
        contentFormat: "string",
      });
      const render = () =>
        template.render({
          messages: withTextArguments(given.messages),
          tools: given.tools ?? null,
          documents: given.documents ?? null,
          addGenerationPrompt: given.add_generation_prompt ?? true,
          ...(given.variables && { variables: given.variables }),
        });
      if (expected === undefined) expect(render).toThrow(message);
      else expect(render()).toBe(expected);
    },
  );
});

/** Requests carry the arguments of tool calls as JSON text. */
function withTextArguments(messages: readonly unknown[]): unknown[] {
  return JSON.parse(JSON.stringify(messages), (key, value: unknown) =>
    key === "arguments" ? JSON.stringify(value) : value,
  ) as unknown[];
}
