import { type ApiFamily, errorStreamFrame } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { answerHeaders, dropHeader } from "@espalier/engines";
import type { AnswerSource } from "./answer-source.ts";
import { type ClientResponse, ResponseSink } from "./response-sink.ts";

/**
 * The answer that one client gets. Withholds an engine's head until the first byte of its body passes: engines send
 * headers when they accept a request, long before the prompt is processed, and another engine can take over until a
 * byte was sent.
 */
export class ClientAnswer {
  readonly #sink: ResponseSink;
  /** Of the present attempt's answer; 0 before its headers. */
  status = 0;
  #rawHeaders: readonly Buffer[] = [];
  /** The beginning of a body without a verdict yet. */
  #held: Buffer | undefined;
  /** Whether the head of an answer was sent to the client. */
  hasBegun = false;
  /** Whether the body is an event stream to which a frame of our own can be added. */
  takesFrames = false;

  constructor(response: ClientResponse) {
    this.#sink = new ResponseSink(response);
  }

  /** Bytes of the body that were written. */
  get bytes(): number {
    return this.#sink.bytes;
  }

  /** Another attempt is made. */
  reset(): void {
    this.status = 0;
    this.#held = undefined;
  }

  /** The head of an attempt's answer came. */
  head(status: number, rawHeaders: readonly Buffer[]): void {
    this.status = status;
    this.#rawHeaders = rawHeaders;
  }

  /** The head of an answer came that is to go on with the stream. @returns whether it can */
  goesOn(status: number, rawHeaders: readonly Buffer[]): boolean {
    const { contentType, encoded } = answerHeaders(rawHeaders);
    this.status = status;
    return status === 200 && isEventStream(contentType) && !encoded;
  }

  /** Keeps the beginning of a body until more of it is there. */
  hold(beginning: Buffer): void {
    this.#held = Buffer.from(beginning);
  }

  /** Returns what was held, and what came after it; undefined for neither. */
  beginningWith(chunk: Buffer | undefined): Buffer | undefined {
    const held = this.#held;
    this.#held = undefined;
    return held && chunk ? Buffer.concat([held, chunk]) : (held ?? chunk);
  }

  /**
   * Writes the engine's status and headers.
   *
   * @param method the request's
   * @returns the answer's headers, or why they cannot be written: then nothing was written
   */
  begin(method: string, source: AnswerSource): readonly string[] | EspalierError {
    const { status } = this;
    const { pairs, contentType, encoded } = answerHeaders(this.#rawHeaders);
    const isEvents = isEventStream(contentType);
    const bodiless = method === "HEAD" || status === 204 || status === 304;
    // A compressed body cannot be read, and a filter that looks for the end of an event would hold all of it back.
    const filter = bodiless || encoded ? undefined : source.reader.filter(status, contentType);
    // A stream may need an error frame at its end.
    if (filter?.changesLength || isEvents) dropHeader(pairs, "content-length");
    source.editHeaders(pairs);
    try {
      this.#sink.begin(status, pairs, filter);
    } catch (thrown) {
      return new EspalierError("upstream_protocol_error", undefined, { cause: thrown });
    }
    this.takesFrames = isEvents && !encoded;
    this.hasBegun = true;
    return pairs;
  }

  /** @returns false when the client is behind: wait for the response's `drain` */
  write(chunk: Buffer): boolean {
    return this.#sink.write(chunk);
  }

  /** The client has the whole answer. */
  end(): void {
    this.#sink.end();
  }

  /** Ends an answer that has begun with an error, in whichever way is possible. */
  cut(family: ApiFamily, error: EspalierError): void {
    if (this.takesFrames) this.#sink.endWithFrame(errorStreamFrame(family, error));
    else this.#sink.destroy();
  }

  destroy(): void {
    this.#sink.destroy();
  }
}

const isEventStream = (contentType: string): boolean => contentType.startsWith("text/event-stream");
