import { createBlockBuilder, noBlocks } from "../prompt/prompt-blocks.ts";
import { createEngineTokenizer } from "./engine-tokenizer.ts";
import type { ModelTokenizerOptions, PromptMode } from "./model-tokenizer.ts";
import { firstPartMessage } from "./prompt-request.ts";
import { viewOfBlocks } from "./prompt-view.ts";
import { defaultBudgetMs, withinBudget } from "./within-budget.ts";

/** An engine may take longer than the budget; its answer is then there for the next request. */
const timeoutMs = 10_000;

/**
 * Prompts as an engine's own tokenizer and template make them.
 *
 * @throws TypeError when `http` or `engineUrl` is absent
 */
export function createEngineMode(options: ModelTokenizerOptions): PromptMode {
  const { http, engineUrl, hasher, blockSize, model, scheduler, budgetMs = defaultBudgetMs } = options;
  if (!http || !engineUrl) throw new TypeError("the mode engine needs http and engineUrl");
  const builder = createBlockBuilder({ hasher, blockSize });
  const engine = createEngineTokenizer({
    http,
    engineUrl,
    model,
    hasher,
    timeoutMs,
    toBlocks: (tokens) => builder.append(noBlocks, [tokens]),
  });
  const view: PromptMode["view"] = (request, source) => {
    if (source.kind === "chat" && firstPartMessage(source.messages) >= 0) {
      throw new Error("the chat has parts that are not text");
    }
    const blocks = engine.encode(request, source);
    if (!(blocks instanceof Promise)) return viewOfBlocks(blocks, "engine", true);
    return withinBudget(
      blocks.then((known) => viewOfBlocks(known, "engine", true)),
      { scheduler, budgetMs, meanwhile: () => viewOfBlocks(noBlocks, "engine", false) },
    );
  };
  return { view };
}
