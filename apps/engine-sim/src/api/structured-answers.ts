import { isJsonObject, type JsonObject } from "@espalier/core";
import { generateSync, type JsonSchema } from "json-schema-faker";
import { optionalObject } from "../http/body-fields.ts";
import { ApiError, wrongField } from "../http/exchange.ts";
import type { GeneratedText } from "../text/generated-text.ts";
import type { ModelText } from "../text/model-text.ts";
import { createWrittenText } from "../text/written-text.ts";

/**
 * Writes the answer that a request prescribes.
 *
 * @param draw 32 bits, the same for the same prompt, seed and choice
 * @throws ApiError 400 when there is no such answer
 */
export type AnswerWriter = (draw: number) => GeneratedText & { readonly length: number };

/**
 * The answer that a chat prescribes by `tools` and `tool_choice`, or by `response_format`. With `auto`, the default, a
 * tool is called when the last message is not a tool's result, so that the loops of agents end.
 *
 * @returns undefined when any words will do
 * @throws ApiError 400 when these fields are malformed
 */
export function chatAnswer(text: ModelText, body: JsonObject): AnswerWriter | undefined {
  return toolCallAnswer(text, body) ?? jsonAnswer(text, body);
}

interface Tool {
  readonly name: string;
  readonly parameters: JsonObject;
}

function toolCallAnswer(text: ModelText, body: JsonObject): AnswerWriter | undefined {
  const tools = toolsOf(body);
  const choice = body.tool_choice ?? (tools.length === 0 ? "none" : "auto");
  if (choice === "none" || (choice === "auto" && isAfterResult(body))) return undefined;
  const named = isJsonObject(choice) && isJsonObject(choice.function) ? choice.function.name : undefined;
  if (named === undefined && choice !== "auto" && choice !== "required") {
    throw wrongField("tool_choice", "none, auto, required, or the name of a function");
  }
  const allowed = named === undefined ? tools : tools.filter(({ name }) => name === named);
  if (allowed.length === 0) {
    throw new ApiError(400, "The tool of `tool_choice` is not among the `tools` of the request.", "tool_choice");
  }
  const endReason = named === undefined ? "tool_calls" : "stop";
  return (draw) => {
    const { name, parameters } = allowed[draw % allowed.length] as Tool;
    const written = instanceOf({ type: "object", ...parameters }, draw, "tools");
    const id = `chatcmpl-tool-${draw.toString(16).padStart(8, "0")}`;
    const tokens = text.text(`{"name": ${JSON.stringify(name)}, "arguments": ${written}}`, false);
    return createWrittenText(written, tokens, { id, name, endReason });
  };
}

function toolsOf({ tools }: JsonObject): readonly Tool[] {
  if (tools === undefined || tools === null) return [];
  if (!Array.isArray(tools)) throw wrongField("tools", "a list of tools");
  return tools.flatMap((tool, at) => {
    if (!isJsonObject(tool) || (tool.type ?? "function") !== "function") return [];
    const { name, parameters } = isJsonObject(tool.function) ? tool.function : {};
    if (typeof name !== "string" || name === "") throw wrongField(`tools.${at}.function.name`, "a name");
    return [{ name, parameters: isJsonObject(parameters) ? parameters : {} }];
  });
}

function isAfterResult({ messages }: JsonObject): boolean {
  const last: unknown = Array.isArray(messages) ? messages.at(-1) : undefined;
  return isJsonObject(last) && (last.role === "tool" || last.role === "function");
}

/** What `json_object` allows is any object. */
const anyObject = { type: "object", properties: { answer: { type: "string" } }, required: ["answer"] };

/**
 * The answer that `response_format` prescribes.
 *
 * @returns undefined for plain text
 * @throws ApiError 400 when it is malformed
 */
export function jsonAnswer(text: ModelText, body: JsonObject): AnswerWriter | undefined {
  const { type = "text", json_schema: described } = optionalObject(body, "response_format") ?? {};
  if (type === "text") return undefined;
  const schema =
    type === "json_object" ? anyObject : type === "json_schema" && isJsonObject(described) && described.schema;
  if (!isJsonObject(schema)) throw wrongField("response_format", "text, json_object, or json_schema with a schema");
  return (draw) => {
    const written = instanceOf(schema, draw, "response_format");
    return createWrittenText(written, text.text(written, false));
  };
}

/** Characters of one answer. */
const maxLength = 262_144;

/** JSON that is valid by the schema, with every optional property. */
function instanceOf(schema: JsonObject, seed: number, field: string): string {
  let written: string | undefined;
  try {
    written = JSON.stringify(generateSync(schema as JsonSchema, { seed, alwaysFakeOptionals: true }));
  } catch (error) {
    throw new ApiError(400, `Unsupported schema: ${error instanceof Error ? error.message : error}`, field);
  }
  if (written !== undefined && written.length <= maxLength) return written;
  throw new ApiError(400, `The schema's shortest answer exceeds ${maxLength} characters.`, field);
}
