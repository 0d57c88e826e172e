/**
 * Whose rules turn a chat into a prompt: an engine's, named by a release that has them. Read in vLLM 0.23.0, 0.25.1, 0.27.1
 * and 0.32.0 (`entrypoints/openai/chat_completion/protocol.py`, `renderers/hf.py`, `renderers/chat_utils.py`) and in SGLang
 * 0.5.23 (`srt/entrypoints/openai/protocol.py` and `serving_chat.py`, `srt/parser/jinja_template_utils.py`).
 */
export type ChatDialect = "vllm-0.23" | "vllm-0.32" | "sglang-0.5.23";

export const chatDialects: readonly ChatDialect[] = ["vllm-0.23", "vllm-0.32", "sglang-0.5.23"];

/** Taken for an engine of which nothing is known. */
export const newestDialect: ChatDialect = "vllm-0.32";

/** 0.25.1 still passed fields of tools on that it does not know, 0.27.1 did not. */
const [firstMajor, firstMinor] = [0, 26];

/**
 * The rules of an engine.
 *
 * @param kind `vllm`, `sglang`, or anything else that does as vLLM does
 * @param version as the engine tells it, for instance `0.32.0`; the newest unless it is known
 */
export function chatDialectOf(kind: string | undefined, version?: string): ChatDialect {
  if (kind === "sglang") return "sglang-0.5.23";
  const [, major, minor] = /^v?(\d+)\.(\d+)/.exec(version ?? "") ?? [];
  if (major === undefined || minor === undefined) return newestDialect;
  const isOld = Number(major) === firstMajor && Number(minor) < firstMinor;
  return isOld ? "vllm-0.23" : newestDialect;
}
