import { type HttpClient, parseJson, systemClock } from "@espalier/core";
import {
  type ChatDialect,
  chatDialectOf,
  createChatRenderer,
  createTextTokenizer,
  hardTexts,
  specialTokensOf,
  type TokenizerFiles,
  type VerifyCase,
  verifyTokenizer,
} from "@espalier/tokenizer";

interface Compared {
  readonly http: HttpClient;
  readonly url: string;
  /** The model's name at the engine. */
  readonly model: string;
  readonly files: TokenizerFiles;
  readonly note?: (text: string) => void;
  /** Compares some of the prompts. */
  readonly isSample?: boolean;
}

/** Of so many prompts one is in a sample. */
const sampleShare = 8;

/** Compares a model's tokenizer and chat template with an engine's. */
export async function compareTokenizer({ http, url, model, files, note, isSample = false }: Compared) {
  const tokenizer = createTextTokenizer(files);
  const renderer = createChatRenderer(files, systemClock);
  const hasTemplate = (files.chatTemplate ?? files.config.chat_template) !== undefined;
  const special = Object.values(specialTokensOf(files.config)).filter((token) => typeof token === "string");
  const dialect = await dialectOf(http, url);
  const cases = verifyCases(special, hasTemplate).filter((_, at) => !isSample || at % sampleShare === 0);
  note?.(`comparing ${cases.length} prompts with ${url} (${model}), by the rules of ${dialect}`);
  const render = (fields: Readonly<Record<string, unknown>>) =>
    renderer.render({ endpoint: "chat", fields, dialect }).text;
  return { rows: await verifyTokenizer({ tokenizer, render, http, url, model, cases, dialect }), hasTemplate };
}

/** SGLang reports its release in its server information; vLLM has a separate path for it. */
async function dialectOf(http: HttpClient, url: string): Promise<ChatDialect> {
  const isSglang = (await versionAt(http, `${url}/server_info`)) !== undefined;
  return isSglang ? chatDialectOf("sglang") : chatDialectOf("vllm", await versionAt(http, `${url}/version`));
}

export async function versionAt(http: HttpClient, url: string): Promise<string | undefined> {
  const { version } = ((await readJson(http, url)) ?? {}) as { version?: unknown };
  return typeof version === "string" ? version : undefined;
}

/** Undefined without an answer, or for one that is not JSON. */
export async function readJson(http: HttpClient, url: string): Promise<unknown> {
  const { status, body } = await http({ url, timeoutMs: 5_000, maxBytes: 1_048_576 });
  return status === 200 ? parseJson(body) : undefined;
}

/** User text in a chat whose text does not matter. */
export const plainText = "What is the tide table of the harbour for the third of May?";

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

/** Fields that clients add to those of the API. */
const decorated = ({ type, function: described }: typeof weatherTool) => ({
  type,
  function: { strict: true, ...described, examples: ["at noon"] },
  cache_control: { type: "ephemeral" },
});

/** Number of hard texts that are also sent as chats. */
const chatsOfHardTexts = 40;

/**
 * Prompts for which a tokenizer or template is likely to differ from an engine's.
 *
 * @param specialTokens of the model, inserted into users' texts
 * @param withChats whether the model has a chat template
 */
export function verifyCases(specialTokens: readonly string[], withChats: boolean): readonly VerifyCase[] {
  // Engines refuse lone surrogates.
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
