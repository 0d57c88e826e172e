import { createSessionInference } from "./block-chains.ts";
import type { LineFields, TraceFormatReader, TraceRow } from "./trace-line.ts";
import type { ChatMessage, Prompt, TraceAgent } from "./trace-request.ts";

const mooncakeBlockTokens = 512;

/**
 * Mooncake traces (kvcache-ai/Mooncake, FAST 2025): JSON lines of `timestamp` in ms, `input_length`, `output_length`
 * and `hash_ids` of 512-token blocks. They name no sessions, which are inferred from the blocks.
 */
export function createMooncakeReader(): TraceFormatReader {
  const inferSession = createSessionInference();
  return {
    readRows(line) {
      const row = line.object();
      const timestampMs = line.number("timestamp", row.timestamp);
      const inputTokens = line.count("input_length", row.input_length, 1);
      const outputTokens = line.count("output_length", row.output_length, 0);
      const blockIds = line.blockIds("hash_ids", row.hash_ids, inputTokens, mooncakeBlockTokens);
      const session = inferSession(blockIds.slice(0, Math.floor(inputTokens / mooncakeBlockTokens)));
      return [{ timestampMs, inputTokens, outputTokens, blockIds, blockTokens: mooncakeBlockTokens, session }];
    },
  };
}

const bailianBlockTokens = 16;

/** One request as a line of such a trace. */
export interface BailianRow {
  readonly chat: number;
  /** The chat that it continues; undefined for a session's first request. */
  readonly parent: number | undefined;
  readonly arrivalMs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Ids of the prompt's full blocks of 16 tokens, each a whole number below 2^52. */
  readonly blockIds: readonly number[];
  /** What readers of the format do not know, by name. */
  readonly others?: Readonly<Record<string, unknown>>;
}

/** The line of a request, without the newline. */
export function bailianLine(row: BailianRow): string {
  const { chat, parent, arrivalMs, inputTokens, outputTokens, blockIds, others } = row;
  return JSON.stringify({
    ...{ chat_id: chat, parent_chat_id: parent ?? -1, timestamp: arrivalMs / 1_000 },
    ...{ input_length: inputTokens, output_length: outputTokens, hash_ids: blockIds },
    ...others,
  });
}

/**
 * Qwen-Bailian traces (alibaba-edu/qwen-bailian-usagetraces-anon, ATC 2025): JSON lines of `chat_id`,
 * `parent_chat_id` (-1 for the first turn), `timestamp` in seconds, `input_length`, `output_length` and `hash_ids` of
 * 16-token blocks. A session is named by the first chat of its chain of parents, present in the trace or not.
 *
 * Recordings of routers have more: `agent` and `parent_agent` of the session, `after`, the chats above it whose answers a
 * request waited for, and `pause_ms`, how long after the last of them it came.
 */
export function createBailianReader(): TraceFormatReader {
  const sessionOf = new Map<string, string>();
  const readWait = createWaitReader();
  return {
    readRows(line) {
      const row = line.object();
      const chat = line.name("chat_id", row.chat_id);
      const parent = line.name("parent_chat_id", row.parent_chat_id);
      const session = parent === "-1" ? chat : (sessionOf.get(parent) ?? parent);
      sessionOf.set(chat, session);
      const inputTokens = line.count("input_length", row.input_length, 1);
      const timestampMs = line.number("timestamp", row.timestamp) * 1_000;
      const request: TraceRow = {
        timestampMs,
        inputTokens,
        outputTokens: line.count("output_length", row.output_length, 0),
        blockIds: line.blockIds("hash_ids", row.hash_ids, inputTokens, bailianBlockTokens),
        blockTokens: bailianBlockTokens,
        session: `chat-${session}`,
        ...(row.agent === undefined ? {} : { agent: readAgent(line, row) }),
      };
      return [row.after === undefined ? request : readWait(line, row, { chat, timestampMs, request })];
    },
  };
}

function readAgent(line: LineFields, { agent, parent_agent: parent }: Readonly<Record<string, unknown>>): TraceAgent {
  const name = line.name("agent", agent);
  return parent === undefined ? { name } : { name, parent: line.name("parent_agent", parent) };
}

interface ReadChat {
  readonly chat: string;
  readonly timestampMs: number;
  readonly request: TraceRow;
}

/** Reads what the requests of a recording wait for. */
function createWaitReader() {
  const rows = new Map<string, TraceRow>();
  /** Earliest times of sessions. */
  const begunMs = new Map<string, number>();
  return (
    line: LineFields,
    row: Readonly<Record<string, unknown>>,
    { chat, timestampMs, request }: ReadChat,
  ): TraceRow => {
    if (!Array.isArray(row.after)) return line.fail("after", "must be a list of chats");
    const after = row.after.map((earlier: unknown): TraceRow => {
      const found = rows.get(line.name("after", earlier));
      if (found?.session !== request.session || found!.timestampMs! > timestampMs)
        return line.fail("after", "must name earlier requests of the session, above it");
      return found!;
    });
    const pauseMs = line.number("pause_ms", row.pause_ms);
    if (pauseMs < 0) line.fail("pause_ms", "must be at least 0");
    const session = request.session!;
    begunMs.set(session, Math.min(timestampMs, begunMs.get(session) ?? timestampMs));
    const wait = {
      after,
      /** What waits for nothing comes so long after its session's first request, which may be further down. */
      get thinkMs() {
        return after.length > 0 ? pauseMs : timestampMs - begunMs.get(session)!;
      },
    };
    const waiting: TraceRow = { ...request, wait };
    rows.set(chat, waiting);
    return waiting;
  };
}

const header = "TIMESTAMP,ContextTokens,GeneratedTokens";

/** `2023-11-16 18:17:03.9799600` (2023 files) or `2024-05-10 00:00:00.009930+00:00` (2024 files), both in UTC. */
const timestamp = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(\.\d+)?(?:\+00:00|Z)?$/;

export function isAzureHeader(line: string): boolean {
  return line.trim() === header;
}

/** Azure LLM inference traces (Azure/AzurePublicDataset): lengths and times only, so each request is its own session. */
export function createAzureReader(): TraceFormatReader {
  return {
    readRows(line) {
      if (isAzureHeader(line.text)) return [];
      const [time = "", context, generated] = line.text.trim().split(",");
      const parts = timestamp.exec(time);
      if (parts === null) return line.fail("TIMESTAMP", "must be a time such as 2023-11-16 18:17:03.9799600");
      const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
      const wholeSecondMs = Date.UTC(year!, month! - 1, day!, hour!, minute!, second!);
      return [
        {
          timestampMs: wholeSecondMs + Number(parts[7] ?? 0) * 1_000,
          inputTokens: line.count("ContextTokens", numberOf(context), 1),
          outputTokens: line.count("GeneratedTokens", numberOf(generated), 0),
          blockIds: undefined,
          blockTokens: 512,
          session: undefined,
        },
      ];
    },
  };
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined || text.trim() === "" ? undefined : Number(text);
}

/** Output tokens for a line without `max_tokens`. */
const defaultOutputTokens = 128;

/** Bytes of text per token, a rule of thumb for English. */
const bytesPerToken = 4;

/**
 * Prompts as JSON lines: `{"prompt": "..."}` or `{"messages": [...]}`, and optionally `max_tokens`, `session` and
 * `timestamp` in ms. The number of input tokens is estimated from the bytes of the text.
 */
export function createPromptsReader(): TraceFormatReader {
  return {
    readRows(line) {
      const row = line.object();
      const prompt = promptOf(line, row);
      const inputTokens = Math.max(1, Math.ceil(Buffer.byteLength(textOf(prompt)) / bytesPerToken));
      const maxOutputTokens = row.max_tokens === undefined ? undefined : line.count("max_tokens", row.max_tokens, 1);
      return [
        {
          timestampMs: row.timestamp === undefined ? undefined : line.number("timestamp", row.timestamp),
          inputTokens,
          outputTokens: maxOutputTokens ?? defaultOutputTokens,
          ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
          blockIds: undefined,
          blockTokens: 512,
          session: row.session === undefined ? undefined : line.name("session", row.session),
          prompt,
        },
      ];
    },
  };
}

function promptOf(line: LineFields, row: Readonly<Record<string, unknown>>): Prompt {
  if ((row.prompt === undefined) === (row.messages === undefined)) {
    return line.fail("prompt", "a line has either prompt or messages");
  }
  if (row.messages === undefined) {
    return typeof row.prompt === "string" && row.prompt !== ""
      ? row.prompt
      : line.fail("prompt", "must be a text that is not empty");
  }
  const { messages } = row;
  if (!Array.isArray(messages) || messages.length === 0) return line.fail("messages", "must be a list of messages");
  return messages.every(isMessage) ? messages : line.fail("messages", "each must be an object with a role");
}

function isMessage(value: unknown): value is ChatMessage {
  return typeof value === "object" && value !== null && "role" in value && typeof value.role === "string";
}

function textOf(prompt: Prompt): string {
  if (typeof prompt === "string") return prompt;
  return prompt
    .map(({ content }) =>
      typeof content === "string" ? content : content === undefined ? "" : JSON.stringify(content),
    )
    .join("");
}
