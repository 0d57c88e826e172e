import { isJsonObject, type JsonObject } from "@espalier/core";
import type { RequestReport } from "@espalier/engine-model";
import { maxInputs, optionalInteger, optionalString, required, textList } from "../http/body-fields.ts";
import type { Exchange } from "../http/exchange.ts";
import { wrongField } from "../http/exchange.ts";
import { deliver } from "../serving/deliver.ts";
import type { EngineContext } from "../serving/engine-context.ts";
import { hashTokens, unitDraw } from "../text/generated-text.ts";
import { promptsOf } from "./completions.ts";
import { modelOf, planPooling } from "./planning.ts";

const defaultDimensions = 384;
/** Largest number of dimensions that a request may ask for. */
const maxDimensions = 8_192;

/** `POST /v1/embeddings`: unit vectors that depend on the tokens of the input only. */
export function embeddings(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const dimensions = optionalInteger(body, "dimensions", 1, maxDimensions) ?? defaultDimensions;
  const encoding = optionalString(body, "encoding_format") ?? "float";
  if (encoding !== "float" && encoding !== "base64") throw wrongField("encoding_format", "float or base64");
  const prompts = promptsOf(context, body, "input");
  pool(context, exchange, body, prompts, ({ model, created, usage }) => ({
    id: `embd-${exchange.requestId}`,
    object: "list",
    created,
    model,
    data: prompts.map((prompt, index) => {
      const vector = unitVector(hashTokens(prompt), dimensions);
      const embedding = encoding === "float" ? Array.from(vector) : Buffer.from(vector.buffer).toString("base64");
      return { index, object: "embedding", embedding };
    }),
    usage,
  }));
}

/** `POST /v1/rerank`: the documents by a score that depends on query and document only. */
export function rerank(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const query = required(optionalString(body, "query"), "query");
  const documents = textList({ documents: documentTexts(body.documents) }, "documents");
  const best = optionalInteger(body, "top_n", 0, Number.MAX_SAFE_INTEGER) ?? 0;
  const prompts = documents.map((document) => context.text.pair(query, document));
  pool(context, exchange, body, prompts, ({ model, usage }) => {
    const results = prompts
      .map((prompt, index) => ({
        index,
        document: { text: documents[index], multi_modal: null },
        relevance_score: scoreOf(prompt),
      }))
      .sort((a, b) => b.relevance_score - a.relevance_score);
    return {
      id: `rerank-${exchange.requestId}`,
      model,
      usage,
      results: best > 0 ? results.slice(0, best) : results,
    };
  });
}

/** `POST /v1/score`: one score for each pair; a single first text pairs with every second one. */
export function score(context: EngineContext, exchange: Exchange, body: JsonObject): void {
  const first = textList(body, "text_1");
  const second = textList(body, "text_2");
  if (first.length !== 1 && first.length !== second.length)
    throw wrongField("text_1", "one text, or as many as text_2");
  const prompts = second.map((text, at) => context.text.pair(first[first.length === 1 ? 0 : at] as string, text));
  pool(context, exchange, body, prompts, ({ model, created, usage }) => ({
    id: `score-${exchange.requestId}`,
    object: "list",
    created,
    model,
    data: prompts.map((prompt, index) => ({ index, object: "score", score: scoreOf(prompt) })),
    usage,
  }));
}

interface PoolingFacts {
  readonly model: string;
  /** Unix seconds. */
  readonly created: number;
  readonly usage: JsonObject;
}

function pool(
  context: EngineContext,
  exchange: Exchange,
  body: JsonObject,
  prompts: readonly Uint32Array[],
  answer: (facts: PoolingFacts) => JsonObject,
): void {
  const model = modelOf(context, body);
  const created = Math.floor(context.clock.wallMs() / 1000);
  const format = {
    token: () => "",
    end: () => "",
    whole: (reports: readonly RequestReport[]) => JSON.stringify(answer({ model, created, usage: usageOf(reports) })),
  };
  deliver(context, exchange, {
    model,
    stream: false,
    sequences: planPooling(context, exchange, body, prompts),
    format,
  });
}

function usageOf(reports: readonly RequestReport[]): JsonObject {
  const sum = (pick: (report: RequestReport) => number) => reports.reduce((total, report) => total + pick(report), 0);
  const promptTokens = sum((report) => report.promptTokens);
  return {
    prompt_tokens: promptTokens,
    total_tokens: promptTokens,
    completion_tokens: 0,
    prompt_tokens_details: { cached_tokens: sum((report) => report.cachedTokens) },
  };
}

/** Documents may be texts, objects with a text, or one object with a list of such parts. */
function documentTexts(documents: unknown): unknown {
  if (isJsonObject(documents)) return documentTexts(documents.content);
  if (!Array.isArray(documents) || documents.length > maxInputs) return documents;
  return documents.map((document) => (isJsonObject(document) ? document.text : document));
}

const scorePurpose = 2;

const scoreOf = (prompt: Uint32Array): number => unitDraw(hashTokens(prompt), scorePurpose);

function unitVector(hash: number, dimensions: number): Float32Array {
  const vector = Float32Array.from({ length: dimensions }, (_, at) => unitDraw(hash, at) - 0.5);
  const length = Math.hypot(...vector);
  return vector.map((value) => value / length);
}
