import { type Expression, type ForNode, type Node, walkNodes } from "../template/parse.ts";

/**
 * The engine whose rules turn a chat into a prompt, with a release that has these rules. Taken from vLLM 0.23.0,
 * 0.25.1, 0.27.1 and 0.32.0 (`entrypoints/openai/chat_completion/protocol.py`, `renderers/hf.py`,
 * `renderers/chat_utils.py`) and SGLang 0.5.23 (`srt/entrypoints/openai/protocol.py` and `serving_chat.py`,
 * `srt/parser/jinja_template_utils.py`).
 */
export type ChatDialect = "vllm-0.23" | "vllm-0.32" | "sglang-0.5.23";

export const chatDialects: readonly ChatDialect[] = ["vllm-0.23", "vllm-0.32", "sglang-0.5.23"];

/** Used for an engine of unknown version. */
export const newestDialect: ChatDialect = "vllm-0.32";

/** 0.25.1 still passed on unknown fields of tools; 0.27.1 did not. */
const [firstMajor, firstMinor] = [0, 26];

/**
 * The rules of an engine.
 *
 * @param kind `vllm`, `sglang`, or any other engine that behaves like vLLM
 * @param version as the engine reports it, for instance `0.32.0`; defaults to the newest
 */
export function chatDialectOf(kind: string | undefined, version?: string): ChatDialect {
  if (kind === "sglang") return "sglang-0.5.23";
  const [, major, minor] = /^v?(\d+)\.(\d+)/.exec(version ?? "") ?? [];
  if (major === undefined || minor === undefined) return newestDialect;
  const isOld = Number(major) === firstMajor && Number(minor) < firstMinor;
  return isOld ? "vllm-0.23" : newestDialect;
}

/**
 * The content of a message that a template expects: a string, or a list of parts as in the OpenAI API. vLLM converts
 * between them before rendering.
 */
export type ContentFormat = "string" | "openai";

/**
 * Detects the content format as vLLM 0.23 to 0.32 does (`vllm/renderers/hf.py`). A template takes parts if it loops
 * over a message's content, where a message is an item of a loop over `messages` or over a variable derived from it.
 */
export function detectContentFormat(program: Node): ContentFormat {
  const loops: ForNode[] = [];
  const assignments: { readonly target: Expression; readonly value: Expression }[] = [];
  walkNodes(program, (node) => {
    if (node.type === "For") loops.push(node);
    if (node.type === "Set" && node.value) assignments.push({ target: node.assignee, value: node.value });
  });
  const lists = new Set(["messages"]);
  for (const list of lists) {
    for (const { target, value } of assignments) {
      if (!isFrom(value, list)) continue;
      if (target.type !== "Identifier") return "string";
      lists.add(target.value);
    }
  }
  const messages = new Set<string>();
  for (const loop of loops) {
    if (![...lists].some((list) => isFrom(iterated(loop), list))) continue;
    // Here vLLM gives up on a loop with several variables and assumes a template of strings.
    if (loop.loopvar.type !== "Identifier") return "string";
    messages.add(loop.loopvar.value);
  }
  const loop = loops.find((one) => [...messages].some((name) => isFrom(iterated(one), name, "content")));
  return loop?.loopvar.type === "Identifier" ? "openai" : "string";
}

/** Words in a template from which SGLang concludes that it takes parts. */
const mediaWords = ["image", "audio", "video", "vision"];

/**
 * Detects the content format as SGLang 0.5.23 does (`srt/parser/jinja_template_utils.py`). A template takes parts if it
 * names a medium, or loops over the content of `message`, `msg` or `m`.
 */
export function detectSglangFormat(source: string, program: Node): ContentFormat {
  let takesParts = mediaWords.some((word) => source.includes(word));
  walkNodes(program, (node) => {
    if (node.type !== "For") return;
    takesParts ||= ["message", "msg", "m"].some((name) => isFrom(iterated(node), name, "content"));
  });
  return takesParts ? "openai" : "string";
}

const iterated = (loop: ForNode): Expression =>
  loop.iterable.type === "SelectExpression" ? loop.iterable.lhs : loop.iterable;

/** Whether the expression is the variable, or its named attribute, possibly filtered, tested or sliced. */
function isFrom(node: Expression, variable: string, attribute?: string): boolean {
  if (node.type === "FilterExpression" || node.type === "TestExpression") {
    return isFrom(node.operand, variable, attribute);
  }
  if (node.type === "MemberExpression" && node.property.type === "SliceExpression") {
    return isFrom(node.object, variable, attribute);
  }
  if (attribute === undefined) return node.type === "Identifier" && node.value === variable;
  if (node.type !== "MemberExpression" || node.object.type !== "Identifier") return false;
  const { property, computed } = node;
  const key = property.type === (computed ? "StringLiteral" : "Identifier") ? property.value : undefined;
  return node.object.value === variable && key === attribute;
}
