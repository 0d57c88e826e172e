import { hardTexts, type VerifyCase } from "@espalier/tokenizer";

/** Texts of a chat's user, beside those on which tokenizers are likely to differ. */
const plainText = "What is the tide table of the harbour for the third of May?";

const weatherTool = {
  type: "function",
  function: {
    name: "tide_at",
    description: "Height of the tide at a place and time.",
    parameters: {
      type: "object",
      properties: { place: { type: "string" }, hour: { type: "integer", minimum: 0 } },
      required: ["place"],
    },
  },
};

const laterTool = { type: "function", function: { name: "sail", parameters: {} }, defer_loading: true };

/** Fields that clients write beside those of the API. */
const decorated = ({ type, function: described }: typeof weatherTool) => ({
  type,
  function: { strict: true, ...described, examples: ["at noon"] },
  cache_control: { type: "ephemeral" },
});

/** Chats that are told apart by what stands in them: how many texts become chats of their own. */
const chatsOfHardTexts = 40;

/**
 * Prompts on which a tokenizer or template is likely to differ from an engine's.
 *
 * @param specialTokens of the model, to stand in texts of users
 * @param withChats whether the model has a chat template
 */
export function verifyCases(specialTokens: readonly string[], withChats: boolean): readonly VerifyCase[] {
  // Engines refuse halves of surrogate pairs.
  const texts = hardTexts({ tokens: specialTokens }).filter(
    ({ text }) => text !== "" && Buffer.from(text).toString() === text,
  );
  const prompts = texts.map(({ name, text }) => ({ name, prompt: text }));
  if (!withChats) return prompts;
  const user = { role: "user", content: plainText };
  const chats: VerifyCase[] = [
    { name: "chat: one turn", messages: [user] },
    { name: "chat: system prompt", messages: [{ role: "system", content: " Be brief. \n" }, user] },
    {
      name: "chat: several turns",
      messages: [user, { role: "assistant", content: "High water at 05:12.\n" }, { role: "user", content: "And low?" }],
    },
    { name: "chat: parts of text", messages: [{ role: "user", content: [{ type: "text", text: plainText }] }] },
    { name: "chat: tools", messages: [user], tools: [weatherTool] },
    { name: "chat: tools with fields of a client", messages: [user], tools: [decorated(weatherTool)] },
    { name: "chat: two tools, one of which is loaded later", messages: [user], tools: [weatherTool, laterTool] },
    { name: "chat: tools, none of which may be called", messages: [user], tools: [weatherTool], tool_choice: "none" },
    {
      name: "chat: two tools, one of which is chosen",
      messages: [user],
      tools: [weatherTool, laterTool],
      tool_choice: { type: "function", function: { name: "tide_at" } },
    },
    { name: "chat: developer", messages: [{ role: "developer", content: "Be brief." }, user] },
    {
      name: "chat: developer between turns",
      messages: [{ role: "system", content: "Be kind." }, user, { role: "developer", content: "Be brief." }, user],
    },
    { name: "chat: effort of reasoning", messages: [user], reasoning_effort: "low" },
    { name: "chat: no reasoning", messages: [user], reasoning_effort: "none" },
    ...texts.slice(0, chatsOfHardTexts).map(({ name, text }) => ({
      name: `chat: ${name}`,
      messages: [{ role: "user", content: text }],
    })),
  ];
  return [...prompts, ...chats];
}
