import type { Conversation, TemplateMessage } from "./conversation.ts";

/**
 * A conversation for a template that does not name the role `developer`, as vLLM 0.23 to 0.32 passes it on
 * (`renderers/hf.py`): its messages become those of the system, and of several ones that are not just the first message
 * one is made, at the front.
 *
 * @param source of the template
 */
export function withoutDevelopers(conversation: Conversation, source: string): Conversation {
  const { messages, firstWithParts } = conversation;
  if (namesDevelopers(source) || messages.every(({ role }) => role !== "developer")) return conversation;
  const converted = messages.map((message) => (message.role === "developer" ? asSystem(message) : message));
  if (converted.every(({ role }, at) => role !== "system" || at === 0)) return { messages: converted, firstWithParts };
  const others = converted.filter(({ role }) => role !== "system");
  const texts = converted.filter(({ role }) => role === "system").map(({ content }) => textOf(content));
  const merged = { role: "system", content: texts.filter((text) => text !== "").join("\n\n") };
  const withParts = firstWithParts === undefined ? -1 : others.indexOf(converted[firstWithParts]!);
  // Parts of a message of the system are lost in the merged one.
  const place = withParts < 0 ? firstWithParts && 0 : withParts + 1;
  return { messages: [merged, ...others], firstWithParts: place };
}

/** Whether a template has a rule for messages of the role `developer`. */
export const namesDevelopers = (source: string): boolean =>
  source.includes('"developer"') || source.includes("'developer'");

function asSystem({ tools: _tools, ...message }: TemplateMessage): TemplateMessage {
  return { ...message, role: "system" };
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  const texts = content.map((part: unknown) => (part as TemplateMessage).text);
  return texts.filter((text) => typeof text === "string").join("\n");
}
