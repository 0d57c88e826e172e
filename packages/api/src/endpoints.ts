/** The API whose errors, streams and usage an endpoint speaks. */
export type ApiFamily = "openai" | "anthropic" | "sglang";

/**
 * How the value of a prompt field is laid out.
 * - `messages`: a non-empty array of objects with a `content`.
 * - `text`: a string, an array of strings, an array of token ids, or an array of such arrays.
 * - `items`: like `text`, or an array of objects with `content` or `text`.
 * - `ids`: an array of token ids, or an array of such arrays.
 * - `json`: a string, an array or an object.
 */
type PromptShape = "messages" | "text" | "items" | "ids" | "json";

export interface PromptField {
  readonly name: string;
  readonly shape: PromptShape;
}

/** A path that is passed on to an engine, and what the router needs to know of it. Aliases share an `id`. */
export interface Endpoint {
  readonly id:
    | "chat"
    | "completions"
    | "embeddings"
    | "responses"
    | "rerank"
    | "score"
    | "messages"
    | "count_tokens"
    | "generate"
    | "token_generate"
    | "tokenize"
    | "detokenize"
    | "images"
    | "speech";
  readonly method: "POST";
  readonly path: string;
  readonly family: ApiFamily;
  readonly kind: "generate" | "embed" | "rank" | "tokenize" | "media";
  /** Whether a body with `"stream": true` is answered with server-sent events. */
  readonly streams: boolean;
  /** Whether the engine reports usage in the stream only when `stream_options.include_usage` asks for it. */
  readonly usageInjectable: boolean;
  /** Fields that may contain the prompt; at least one must be present. */
  readonly promptFields: readonly PromptField[];
  /** Fields that a chat template adds to the prompt; counted by their JSON bytes. */
  readonly contextFields: readonly string[];
  /** Top-level fields that bound the output in tokens, in order of precedence. */
  readonly outputLimitFields: readonly string[];
}

const defaults = {
  method: "POST",
  family: "openai",
  streams: false,
  usageInjectable: false,
  contextFields: [],
  outputLimitFields: [],
} as const;

const chat: Endpoint = {
  ...defaults,
  id: "chat",
  path: "/v1/chat/completions",
  kind: "generate",
  streams: true,
  usageInjectable: true,
  promptFields: [{ name: "messages", shape: "messages" }],
  contextFields: ["tools", "functions"],
  outputLimitFields: ["max_completion_tokens", "max_tokens"],
};

const completions: Endpoint = {
  ...defaults,
  id: "completions",
  path: "/v1/completions",
  kind: "generate",
  streams: true,
  usageInjectable: true,
  // vLLM accepts `prompt_embeds` instead of a prompt.
  promptFields: [
    { name: "prompt", shape: "text" },
    { name: "prompt_embeds", shape: "json" },
  ],
  outputLimitFields: ["max_tokens"],
};

const embeddings: Endpoint = {
  ...defaults,
  id: "embeddings",
  path: "/v1/embeddings",
  kind: "embed",
  // vLLM also accepts chat messages, and SGLang objects with text and image.
  promptFields: [
    { name: "input", shape: "items" },
    { name: "messages", shape: "messages" },
  ],
};

const responses: Endpoint = {
  ...defaults,
  id: "responses",
  path: "/v1/responses",
  kind: "generate",
  streams: true,
  promptFields: [{ name: "input", shape: "items" }],
  contextFields: ["instructions", "tools"],
  outputLimitFields: ["max_output_tokens"],
};

const rerank: Endpoint = {
  ...defaults,
  id: "rerank",
  path: "/v1/rerank",
  kind: "rank",
  // llama.cpp also takes the field of Text Embeddings Inference.
  promptFields: [
    { name: "documents", shape: "json" },
    { name: "texts", shape: "json" },
  ],
  contextFields: ["query"],
};

const score: Endpoint = {
  ...defaults,
  id: "score",
  path: "/v1/score",
  kind: "rank",
  // The spellings of vLLM (text_1, queries, data_1 and their partners) and of SGLang (query, items).
  promptFields: ["text_1", "text_2", "queries", "documents", "query", "items", "data_1", "data_2"].map((name) => ({
    name,
    shape: "json",
  })),
};

const messages: Endpoint = {
  ...defaults,
  id: "messages",
  path: "/v1/messages",
  family: "anthropic",
  kind: "generate",
  streams: true,
  promptFields: [{ name: "messages", shape: "messages" }],
  contextFields: ["system", "tools"],
  outputLimitFields: ["max_tokens"],
};

/**
 * Counts the tokens of a `/v1/messages` request and generates nothing; Anthropic's clients and coding agents call it.
 */
const countTokens: Endpoint = {
  ...messages,
  id: "count_tokens",
  path: "/v1/messages/count_tokens",
  kind: "tokenize",
  streams: false,
  outputLimitFields: [],
};

const generate: Endpoint = {
  ...defaults,
  id: "generate",
  path: "/generate",
  family: "sglang",
  kind: "generate",
  streams: true,
  promptFields: [
    { name: "text", shape: "text" },
    { name: "input_ids", shape: "ids" },
    { name: "input_embeds", shape: "json" },
  ],
};

/** vLLM's API of token ids, for RL frameworks; SkyRL's engines have it at a path of their own as well. */
const tokenGenerate: Endpoint = {
  ...defaults,
  id: "token_generate",
  path: "/inference/v1/generate",
  kind: "generate",
  streams: true,
  promptFields: [{ name: "token_ids", shape: "ids" }],
};

const tokenize: Endpoint = {
  ...defaults,
  id: "tokenize",
  path: "/tokenize",
  kind: "tokenize",
  promptFields: [
    { name: "prompt", shape: "text" },
    { name: "messages", shape: "messages" },
    // llama.cpp's name for it.
    { name: "content", shape: "text" },
  ],
};

const detokenize: Endpoint = {
  ...defaults,
  id: "detokenize",
  path: "/detokenize",
  kind: "tokenize",
  promptFields: [{ name: "tokens", shape: "ids" }],
};

/** Images of a text, as OpenAI, SGLang and vLLM-Omni make them. */
const images: Endpoint = {
  ...defaults,
  id: "images",
  path: "/v1/images/generations",
  kind: "media",
  streams: true,
  promptFields: [{ name: "prompt", shape: "text" }],
};

/** Speech of a text. The answer is audio, as it is made, or events with pieces of it. */
const speech: Endpoint = {
  ...defaults,
  id: "speech",
  path: "/v1/audio/speech",
  kind: "media",
  promptFields: [{ name: "input", shape: "text" }],
};

/** Every path whose requests are routed to an engine by their body. */
export const endpoints: readonly Endpoint[] = [
  chat,
  completions,
  embeddings,
  responses,
  rerank,
  { ...rerank, path: "/rerank" },
  { ...rerank, path: "/v2/rerank" },
  score,
  { ...score, path: "/score" },
  messages,
  countTokens,
  generate,
  tokenGenerate,
  { ...tokenGenerate, path: "/skyrl/v1/generate" },
  tokenize,
  detokenize,
  images,
  speech,
];
