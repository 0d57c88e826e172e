import type { HttpClient } from "@espalier/common";
import { fetchTokens, tokenizeBody } from "../modes/engine-tokenizer.ts";
import { promptSource } from "../modes/prompt-request.ts";
import type { ChatDialect } from "../template/chat-dialect.ts";
import type { TextTokenizer } from "../text/text-tokenizer.ts";

/** A prompt that both sides tokenise. */
export type VerifyCase =
  | { readonly name: string; readonly prompt: string }
  | {
      readonly name: string;
      readonly messages: readonly unknown[];
      readonly tools?: readonly unknown[];
      readonly tool_choice?: unknown;
      readonly reasoning_effort?: string;
    };

export interface VerifyOptions {
  readonly tokenizer: TextTokenizer;
  /** The text of a chat by the model's template; without it chats are left out. */
  readonly render?: (fields: Readonly<Record<string, unknown>>) => string;
  readonly http: HttpClient;
  /** The base URL of an engine. */
  readonly url: string;
  /** The model's name at that engine. */
  readonly model: string;
  readonly cases: readonly VerifyCase[];
  /** Whose rules the engine goes by; the newest vLLM's unless given. */
  readonly dialect?: ChatDialect;
  /** For each answer (10 s). */
  readonly timeoutMs?: number;
}

export interface VerifyRow {
  readonly case: string;
  readonly ok: boolean;
  readonly tokens: number;
  /** The place of the first token that differs, and what stands there; absent on either side when it is over. */
  readonly firstDifference?: {
    readonly at: number;
    readonly ours: number | undefined;
    readonly engine: number | undefined;
  };
  /** Why there was nothing to compare. */
  readonly error?: string;
}

const defaultTimeoutMs = 10_000;

/**
 * Compares tokens with those of an engine's `POST /tokenize`, case by case. A case that cannot be compared is a row that
 * is not ok, with the reason.
 */
export async function verifyTokenizer(options: VerifyOptions): Promise<readonly VerifyRow[]> {
  const rows: VerifyRow[] = [];
  for (const one of options.cases) {
    if ("messages" in one && !options.render) continue;
    try {
      rows.push(await verifyCase(one, options));
    } catch (error) {
      rows.push({
        case: one.name,
        ok: false,
        tokens: 0,
        error: error instanceof Error ? error.message : String(error),
      });
    }
  }
  return rows;
}

async function verifyCase(one: VerifyCase, options: VerifyOptions): Promise<VerifyRow> {
  const { name, ...fields } = one;
  const { tokenizer, http, url, model, dialect, timeoutMs = defaultTimeoutMs } = options;
  const request = { endpoint: "chat", fields, ...(dialect && { dialect }) };
  const isChat = "messages" in one;
  const body = isChat ? tokenizeBody(model, request, promptSource(request)) : JSON.stringify({ model, ...fields });
  const ours = isChat
    ? tokenizer.encode(options.render?.(fields) ?? "", { addSpecialTokens: false })
    : tokenizer.encode(one.prompt, { addSpecialTokens: true });
  const engine = await fetchTokens({ http, url, timeoutMs, body });
  const length = Math.max(ours.length, engine.length);
  let at = 0;
  while (at < length && ours[at] === engine[at]) at++;
  if (at === length) return { case: name, ok: true, tokens: length };
  return { case: name, ok: false, tokens: ours.length, firstDifference: { at, ours: ours[at], engine: engine[at] } };
}
