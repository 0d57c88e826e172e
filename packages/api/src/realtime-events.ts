import { isJsonObject, parseJson } from "@espalier/core";
import { FrameScanner, opcodes } from "@espalier/core/websocket";
import { findUsageReport, joinUsage, type Usage } from "./answer/usage.ts";

/** Most bytes of an event of the realtime API that is read. */
const maxReadEventBytes = 65_536;

const deltaStart = Buffer.from('{"type":"transcription.delta"');
const doneStart = Buffer.from('{"type":"transcription.done"');

/**
 * Follows the frames of an engine of vLLM's realtime API. Its events begin with their type, so that only those with usage are parsed;
 * each delta counts as a token.
 */
export class RealtimeFrames {
  tokensSeen = 0;
  readonly #scanner = new FrameScanner(maxReadEventBytes, (opcode, payload) => this.#read(opcode, payload));
  #usage: Usage | undefined;

  push(chunk: Buffer): void {
    this.#scanner.push(chunk);
  }

  /** See `FrameScanner`. */
  get isBetweenFrames(): boolean {
    return this.#scanner.isBetweenFrames;
  }

  get isClosed(): boolean {
    return this.#scanner.isClosed;
  }

  /** Of all utterances so far; undefined before the first one has ended. */
  usage(): Usage | undefined {
    return this.#usage;
  }

  #read(opcode: number, payload: Buffer | undefined): void {
    if (opcode !== opcodes.text || !payload) return;
    if (startsWith(payload, deltaStart)) this.tokensSeen += 1;
    else if (startsWith(payload, doneStart))
      this.#add(joinUsage(undefined, findUsageReport(parseJson(payload.toString("utf8")))));
  }

  #add(usage: Usage | undefined): void {
    if (!usage) return;
    const { promptTokens, completionTokens, cachedTokens } = usage;
    this.#usage = {
      promptTokens: promptTokens + (this.#usage?.promptTokens ?? 0),
      completionTokens: completionTokens + (this.#usage?.completionTokens ?? 0),
      cachedTokens:
        cachedTokens === undefined ? this.#usage?.cachedTokens : cachedTokens + (this.#usage?.cachedTokens ?? 0),
    };
  }
}

const startsWith = (bytes: Buffer, start: Buffer): boolean => bytes.subarray(0, start.length).equals(start);

/** A client's `session.update`. */
export interface SessionUpdate {
  /** The model that it names: vLLM's clients do so at the top, OpenAI's in `session`. Undefined if it names none. */
  readonly model: string | undefined;
  /** The same event for another model. */
  readonly withModel: (model: string) => string;
}

/** @returns undefined for any other event */
export function readSessionUpdate(payload: Buffer): SessionUpdate | undefined {
  const event = parseJson(payload.toString("utf8"));
  if (!isJsonObject(event) || event.type !== "session.update") return undefined;
  const { session } = event;
  const isInside = isJsonObject(session) && typeof session.model === "string" && event.model === undefined;
  const written = isInside ? session.model : event.model;
  return {
    model: typeof written === "string" ? written : undefined,
    withModel: (model) => JSON.stringify(isInside ? { ...event, session: { ...session, model } } : { ...event, model }),
  };
}
