import type { ChatDialect } from "./chat-dialect.ts";
import type { TemplateMessage } from "./conversation.ts";
import { isFields } from "./fields.ts";
import { valueError } from "./template-error.ts";

type Fields = Readonly<Record<string, unknown>>;

/**
 * Tools as an engine passes them to the template.
 *
 * @throws TemplateError for a tool that the engine would refuse
 */
export function toTools(tools: readonly unknown[], dialect: ChatDialect): TemplateMessage[] {
  return tools.map((tool) => {
    if (!isFields(tool) || !isFields(tool.function)) throw valueError("a tool has no function");
    return dialect === "sglang-0.5.23" ? sglangTool(tool, tool.function) : vllmTool(tool, tool.function, dialect);
  });
}

/** The fields of vLLM's own model come first, whether the request has them or not; 0.32 drops all others. */
function vllmTool(tool: Fields, described: Fields, dialect: ChatDialect): TemplateMessage {
  const { type = "function", function: _function, defer_loading: isDeferred, ...others } = tool;
  const { name, description = null, parameters = null, strict, defer_loading: isOwnDeferred, ...rest } = described;
  const keepsOthers = dialect === "vllm-0.23";
  const fields = {
    ...{ name, description, parameters },
    ...(keepsOthers ? {} : given({ strict })),
    ...given({ defer_loading: isOwnDeferred ?? isDeferred }),
    ...(keepsOthers ? unchanged({ strict }, rest) : {}),
  };
  return { type, function: fields, ...given({ defer_loading: isDeferred }), ...(keepsOthers ? others : {}) };
}

/** Fields of the function stay in the request's order; what the tool has beside it is written always, be it null. */
function sglangTool(tool: Fields, described: Fields): TemplateMessage {
  const { type = "function", defer_loading: isDeferred = null } = tool;
  const { name, description = null, parameters = null, strict, defer_loading: isOwnDeferred } = described;
  const known: Fields = {
    ...{ description, name, parameters },
    ...given({ strict, defer_loading: isOwnDeferred ?? isDeferred }),
  };
  const order = Object.keys(described).filter((key) => Object.hasOwn(known, key));
  const ordered = Object.fromEntries([...order, ...Object.keys(known)].map((key) => [key, known[key]]));
  return { type, function: ordered, defer_loading: isDeferred };
}

/**
 * The tools that a request's choice leaves in the prompt. vLLM leaves all there whatever is chosen; SGLang takes those away
 * that the model may not call.
 *
 * @returns null for none
 */
export function chosenTools(tools: unknown, choice: unknown, dialect: ChatDialect): readonly unknown[] | null {
  if (!Array.isArray(tools) || tools.length === 0) return null;
  if (dialect !== "sglang-0.5.23") return tools;
  if (choice === "none") return null;
  if (!isFields(choice)) return tools;
  const wanted = isFields(choice.function) ? choice.function.name : undefined;
  const chosen = tools.filter((tool) => isFields(tool) && isFields(tool.function) && tool.function.name === wanted);
  return chosen.length > 0 ? chosen : null;
}

/** The fields that are neither absent nor null. */
function given(fields: Fields): Fields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null));
}

/** A field that is present stays, null or not, before the others. */
function unchanged(first: Fields, rest: Fields): Fields {
  return { ...Object.fromEntries(Object.entries(first).filter(([, value]) => value !== undefined)), ...rest };
}
