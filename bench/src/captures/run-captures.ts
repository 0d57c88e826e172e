import { existsSync } from "node:fs";
import { basename, join } from "node:path";
import { systemClock } from "@espalier/core";
import { type ChatDialect, chatDialectOf, loadRequestTokens, type RequestTokens } from "@espalier/tokenizer";
import {
  type CapturedRequest,
  type CapturedSession,
  type CaptureFiles,
  captureFolders,
  readCaptureFiles,
  usageOf,
} from "./capture-files.ts";
import { compareReplays } from "./compare-replays.ts";
import { createEventFold, type EventFold } from "./event-fold.ts";

/** The results of one capture. */
export interface CaptureRow {
  readonly capture: string;
  /** Messages of KV events. */
  readonly frames: number;
  readonly undecoded: number;
  /** Requests for which the engine's own tokens are known. */
  readonly requests: number;
  /** Of these, requests whose cached tokens can be compared. */
  readonly compared: number;
  /** Of these, requests that were predicted exactly. */
  readonly exact: number;
  /** Requests for which our template and tokenizer give other tokens than the engine's. */
  readonly token_mismatches: number;
  /** Whether every replayed message equals the live one and leads to the same blocks. */
  readonly replay_equal: boolean;
  /** Why requests were not compared. */
  readonly not_compared: Readonly<Record<string, number>>;
  readonly inexact: readonly Inexact[];
}

interface Inexact {
  readonly id: number;
  readonly phase: string;
  readonly predicted: number;
  readonly reported: number;
}

export interface CapturesOptions {
  /** Folder that contains one folder per capture. */
  readonly dir: string;
  /** Folder that contains the models' folders. */
  readonly models: string;
}

/**
 * Runs every capture through decoder, tokenizer and index.
 *
 * @throws Error when there is no capture, or one cannot be read
 */
export async function runCaptures({ dir, models }: CapturesOptions): Promise<readonly CaptureRow[]> {
  const folders = captureFolders(dir);
  if (folders.length === 0) throw new Error(`no capture under ${dir}`);
  const tokens = createTokenizers(models);
  const rows: CaptureRow[] = [];
  for (const folder of folders) rows.push(await runCapture(readCaptureFiles(folder), tokens));
  return rows;
}

type Tokenizers = (session: CapturedSession) => Promise<RequestTokens>;

function createTokenizers(models: string): Tokenizers {
  const loaded = new Map<string, Promise<RequestTokens>>();
  return ({ model }) => {
    const folder = join(models, basename(model));
    if (!existsSync(folder)) throw new Error(`no folder for model ${model}: ${folder}`);
    const known = loaded.get(folder) ?? loadRequestTokens(folder, systemClock);
    loaded.set(folder, known);
    return known;
  };
}

async function runCapture(capture: CaptureFiles, tokenizers: Tokenizers): Promise<CaptureRow> {
  const run = new CaptureRun(capture);
  for (const session of capture.sessions) {
    const tokens = await tokenizers(session);
    for (const request of capture.requests)
      if (request.session === session.session) run.request(session, request, tokens);
  }
  run.finish();
  return {
    capture: capture.name,
    frames: capture.messages.length,
    undecoded: run.undecoded,
    requests: run.requests,
    compared: run.compared,
    exact: run.compared - run.inexact.length,
    token_mismatches: run.tokenMismatches,
    replay_equal: compareReplays(capture),
    not_compared: Object.fromEntries(run.notCompared),
    inexact: run.inexact,
  };
}

const resetPath = "/reset_prefix_cache";

class CaptureRun {
  readonly #capture: CaptureFiles;
  readonly #dialect: ChatDialect;
  readonly #folds = new Map<string, EventFold>();
  /** Messages up to here have been applied. */
  #applied = 0;
  /** Epochs in which vLLM was asked to empty its cache and has not yet reported that it did. */
  readonly #resetPending = new Set<number>();
  requests = 0;
  compared = 0;
  tokenMismatches = 0;
  readonly inexact: Inexact[] = [];
  readonly notCompared = new Map<string, number>();

  constructor(capture: CaptureFiles) {
    this.#capture = capture;
    // Captures are named by engine and release.
    const [kind, version] = capture.name.split("-");
    this.#dialect = chatDialectOf(kind, version);
  }

  get undecoded(): number {
    return [...this.#folds.values()].reduce((sum, fold) => sum + fold.undecoded, 0);
  }

  request(session: CapturedSession, request: CapturedRequest, tokensOf: RequestTokens): void {
    if (request.path === resetPath) this.#resetPending.add(session.session);
    const engineTokens = request.prompt_token_ids;
    if (!engineTokens || request.status !== 200) return;
    this.requests++;
    const endpoint = { "/v1/chat/completions": "chat", "/v1/completions": "completions", "/generate": "generate" };
    const ours = tokensOf({
      dialect: this.#dialect,
      endpoint: endpoint[request.path as keyof typeof endpoint] ?? "",
      fields: request.request ?? {},
    });
    if (!ours || !isSame(ours, engineTokens)) this.tokenMismatches++;
    const reason = this.#compare(session, request, Uint32Array.from(engineTokens));
    if (reason !== undefined) this.notCompared.set(reason, (this.notCompared.get(reason) ?? 0) + 1);
  }

  /** Applies what came after the last request. */
  finish(): void {
    this.#applyUntil(Number.POSITIVE_INFINITY);
  }

  /** @returns why it was not compared */
  #compare(session: CapturedSession, request: CapturedRequest, tokens: Uint32Array): string | undefined {
    const { id, phase, events_from: from } = request;
    if (from === null) return "it ran beside others";
    this.#applyUntil(from);
    const usage = usageOf(request);
    const wasReset = this.#resetPending.delete(session.session);
    if (request.aborted || !usage) return "its answer has no usage";
    if ((request.request?.n ?? 1) > 1) return "n > 1: one figure for several sequences";
    if (usage.prompt_tokens !== tokens.length) return "the engine's prompt is not the one that its tokenizer gives";
    if (typeof request.request?.extra_key === "string") return "extra_key is not in the events";
    if (wasReset) return "the cache was emptied, which the engine reports with its next step";
    const rank = this.#rankOf(session, request);
    if (rank === undefined) return "which rank served it is not known";
    const fold = this.#fold(session.session, rank);
    const { usable: predicted } = fold.match(tokens, {
      adapter: adapterOf(session, request),
      cacheSalt: request.request?.cache_salt,
    });
    const reported = usage.prompt_tokens_details?.cached_tokens ?? 0;
    this.compared++;
    if (predicted !== reported) this.inexact.push({ id, phase, predicted, reported });
    return undefined;
  }

  /** By the header that asked for it, else by the origin of its events. */
  #rankOf(session: CapturedSession, request: CapturedRequest): number | undefined {
    const { messages } = this.#capture;
    const ranks = new Set(messages.filter((one) => one.session === session.session).map(({ endpoint }) => endpoint));
    if (ranks.size <= 1) return [...ranks][0] ?? 0;
    const asked = Object.entries(request.request_headers ?? {}).find(
      ([name]) => name.toLowerCase() === "x-data-parallel-rank",
    );
    if (asked) return Number(asked[1]);
    const { events_from: from, events_to: to } = request;
    const during = messages.filter(({ n }) => from !== null && to !== null && n >= from && n < to);
    const heard = new Set(during.map(({ endpoint }) => endpoint));
    return heard.size === 1 ? [...heard][0] : undefined;
  }

  #applyUntil(end: number): void {
    const { messages } = this.#capture;
    for (; this.#applied < messages.length && messages[this.#applied]!.n < end; this.#applied++) {
      const { session, endpoint, frames } = messages[this.#applied]!;
      this.#fold(session, endpoint).apply(Buffer.from(frames[2] ?? "", "base64"));
    }
  }

  #fold(session: number, endpoint: number): EventFold {
    const key = `${session}/${endpoint}`;
    const known = this.#folds.get(key);
    if (known) return known;
    const { block_size: blockSize } = this.#capture.sessions.find((one) => one.session === session)!;
    const made = createEventFold(blockSize);
    this.#folds.set(key, made);
    return made;
  }
}

/** A listed model with a parent is an adapter. */
function adapterOf(session: CapturedSession, { request }: CapturedRequest): string | undefined {
  const listed = session["/v1/models"]?.data ?? [];
  const model = listed.find(({ id }) => id === request?.model);
  return typeof model?.parent === "string" ? model.id : undefined;
}

function isSame(ours: Uint32Array, engine: readonly number[]): boolean {
  return ours.length === engine.length && engine.every((token, at) => token === ours[at]);
}
