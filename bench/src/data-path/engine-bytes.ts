import { benchModel } from "../support/bench-model.ts";

const server = "date: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n";
const id = "chatcmpl-0a1b2c3d4e5f60718293a4b5c6d7e8f9";
const created = 1_767_225_600;
const usage = { prompt_tokens: 1_024, total_tokens: 1_088, completion_tokens: 64, prompt_tokens_details: null };

/** A whole answer of known length. */
export function sizedAnswer(contentType: string, body: string): Buffer {
  const length = Buffer.byteLength(body);
  return Buffer.from(
    `HTTP/1.1 200 OK\r\n${server}content-length: ${length}\r\ncontent-type: ${contentType}\r\n\r\n${body}`,
  );
}

/** The answer of vLLM 0.11 to a chat completion of 64 tokens: all its fields, about 700 bytes. */
export const chatAnswer: Buffer = sizedAnswer(
  "application/json",
  JSON.stringify({
    id,
    object: "chat.completion",
    created,
    model: benchModel,
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: "The answer has a few words in it. ".repeat(6).trimEnd(),
          refusal: null,
          annotations: null,
          audio: null,
          function_call: null,
          tool_calls: [],
          reasoning_content: null,
        },
        logprobs: null,
        finish_reason: "length",
        stop_reason: null,
        token_ids: null,
      },
    ],
    service_tier: null,
    system_fingerprint: null,
    usage,
    prompt_logprobs: null,
    prompt_token_ids: null,
    kv_transfer_params: null,
  }),
);

export const modelsAnswer: Buffer = sizedAnswer(
  "application/json",
  JSON.stringify({
    object: "list",
    data: [{ id: benchModel, object: "model", created, owned_by: "vllm", root: benchModel, max_model_len: 131_072 }],
  }),
);

/** The signals that routers read, from an idle engine. */
export const engineMetrics = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="${benchModel}"} 0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="${benchModel}"} 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="${benchModel}"} 0
`;

const streamHead = `HTTP/1.1 200 OK\r\n${server}content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n`;

/**
 * A streamed answer in the pieces that an engine writes, one per token. The first piece adds the head and the event
 * with the role. The last one adds the finish reason, the usage if requested, and `[DONE]`. Each event is a separate
 * HTTP chunk, as uvicorn writes them.
 *
 * @returns exactly `tokens` pieces
 */
export function streamPieces(tokens: number, withUsage: boolean): readonly Buffer[] {
  const pieces = Array.from({ length: tokens }, (_, index) => deltaEvent({ content: ` word${index}` }, null));
  const end = [
    deltaEvent({}, "stop"),
    ...(withUsage ? [dataEvent({ ...chunkFields, choices: [], usage })] : []),
    httpChunk("data: [DONE]\n\n"),
    "0\r\n\r\n",
  ];
  return pieces.map((piece, index) => {
    const before = index === 0 ? streamHead + deltaEvent({ role: "assistant", content: "" }, null) : "";
    return Buffer.from(before + piece + (index === tokens - 1 ? end.join("") : ""));
  });
}

const chunkFields = { id, object: "chat.completion.chunk", created, model: benchModel };

function deltaEvent(delta: object, finishReason: string | null): string {
  return dataEvent({
    ...chunkFields,
    choices: [{ index: 0, delta, logprobs: null, finish_reason: finishReason, token_ids: null }],
  });
}

const dataEvent = (data: object): string => httpChunk(`data: ${JSON.stringify(data)}\n\n`);

const httpChunk = (data: string): string => `${data.length.toString(16)}\r\n${data}\r\n`;
