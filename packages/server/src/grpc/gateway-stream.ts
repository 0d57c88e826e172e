import { EspalierError } from "@espalier/core";
import {
  type BodyMode,
  bodyModes,
  type CommonResponse,
  type HeaderValue,
  type HttpBody,
  type HttpHeaders,
  type MetadataStruct,
  type MetadataValue,
  type ProcessingRequest,
  type ProcessingResponse,
} from "./messages.ts";

/** Names of the endpoint picker protocol (Gateway API Inference Extension, proposal 004). */
export const destinationKey = "x-gateway-destination-endpoint";
const servedKey = `${destinationKey}-served`;
const scoresKey = `${destinationKey}-scores`;
const subsetKey = `${destinationKey}-subset`;
const loadBalancing = "envoy.lb";
const subsetNamespace = `${loadBalancing}.subset_hint`;

/** The head of one HTTP request. */
export interface RequestHead {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly authority: string;
  /** By name in lower case, without pseudo headers; repeated ones are joined by commas. */
  readonly headers: Readonly<Record<string, string>>;
  /** Flat names and values, as they came. */
  readonly rawHeaders: readonly string[];
  /** Whether the body will be shown before an answer is due. */
  readonly showsBody: boolean;
  /** Whether the answer's body will be shown. */
  readonly showsAnswer: boolean;
  /** Endpoints, as `ip:port` or `ip`, that the gateway allows; undefined for all. */
  readonly subset: ReadonlySet<string> | undefined;
}

/** Where a request goes, and what changes in it. */
export interface Route {
  /** `ip:port`; the first usable one gets the request. Never empty. */
  readonly destinations: readonly string[];
  /** The score of each endpoint, higher is better, for `x-gateway-destination-endpoint-scores`; undefined to tell none. */
  readonly scores: Readonly<Record<string, number>> | undefined;
  /** Flat names, in lower case, and values. */
  readonly setHeaders: readonly string[];
  readonly removeHeaders: readonly string[];
  /** The whole body; ignored if the body is not shown. */
  readonly body: Iterable<Buffer>;
  readonly isBodyChanged: boolean;
}

/** How an exchange ended. */
export type StreamEnd =
  /** The whole answer passed, or the picker answered itself. */
  | "finished"
  /** The gateway went on and shows nothing more of it. */
  | "unseen"
  /** The client or the gateway gave up. */
  | "aborted";

/** Follows one stream. Nothing follows `closed`. */
export interface StreamOwner {
  head(head: RequestHead): void;
  /** A piece of the request's body. */
  piece(chunk: Buffer): void;
  /** The request is complete, as far as it is shown: call `route` or `refuse`, now or later. */
  complete(): void;
  /**
   * The answer's head. Call `answerHeaders` before this returns.
   *
   * @param rawHeaders names and values, alternating, without pseudo headers
   * @param served the endpoint that got the request, as `ip:port`; undefined if the gateway does not say
   */
  answered(status: number, rawHeaders: readonly Buffer[], served: string | undefined): void;
  /** @returns false to pause the exchange until `resume` */
  received(chunk: Buffer): boolean;
  ended(): void;
  /** The gateway is ready for more of the answer. */
  drained(): void;
  closed(how: StreamEnd): void;
}

/** The gRPC stream of one stream. */
export interface MessageStream {
  /** @returns false when the gateway is behind: `drained` follows */
  write(message: ProcessingResponse): boolean;
  end(): void;
  /** Ends it with a gRPC error; the gateway gives up the HTTP request. */
  fail(message: string): void;
  pause(): void;
  resume(): void;
}

/**
 * - `head`, `body`: the request arrives. - `deciding`: it is complete. - `routed`: the gateway has its answer.
 * - `answering`: the engine's answer passes. - `over`.
 */
type Phase = "head" | "body" | "deciding" | "routed" | "answering" | "over";

/**
 * Pieces of a body to Envoy. gRPC messages may have 4 MiB at receivers with default settings; llm-d's picker sends
 * 62,000 bytes.
 */
const pieceBytes = 256 * 1024;
const noBytes = Buffer.alloc(0);
const noStream: MessageStream = { write: () => true, end() {}, fail() {}, pause() {}, resume() {} };
const overwrite = 2;

/**
 * One HTTP request of a gateway and its answer: the order of messages of `ExternalProcessor/Process`. Envoy sends each
 * part to the picker, and waits for an answer to it or takes what the picker sends instead, depending on how it is
 * configured. All of that is hidden here.
 */
export class GatewayStream {
  /** Of nothing once the exchange is over: the request may be followed for long after that. */
  #stream: MessageStream;
  #owner: StreamOwner | undefined;
  #phase: Phase = "head";
  #requestMode: BodyMode = bodyModes.fullDuplexStreamed;
  #answerMode: BodyMode = bodyModes.fullDuplexStreamed;
  /** Whether the request has neither body nor trailers. */
  #isBodiless = false;
  #hasTrailers = false;
  /** Whether the head of the answer was passed on. */
  #hasAnswerHead = false;
  /** What the owner writes while it handles one message. */
  #written: Buffer[] = [];
  #isEnding = false;
  #isHandling = false;

  constructor(stream: MessageStream) {
    this.#stream = stream;
  }

  /** Must be called before the first message. */
  follow(owner: StreamOwner): void {
    this.#owner = owner;
  }

  /** Whether the request has arrived, as far as it is shown. */
  get isComplete(): boolean {
    return this.#phase !== "head" && this.#phase !== "body";
  }

  get isOver(): boolean {
    return this.#phase === "over";
  }

  /** Whether the gateway still waits for `route` or `refuse`. */
  get isUnanswered(): boolean {
    return this.#phase === "head" || this.#phase === "body" || this.#phase === "deciding";
  }

  /**
   * Handles one message of the gateway.
   *
   * @throws EspalierError `bad_request` for a message out of order
   */
  accept(message: ProcessingRequest): void {
    if (this.#phase === "over" || message.observabilityMode) return;
    this.#isHandling = true;
    try {
      if (message.requestHeaders) this.#acceptHead(message.requestHeaders, message);
      else if (message.requestBody) this.#acceptBody(message.requestBody);
      else if (message.requestTrailers) this.#acceptTrailers();
      else if (message.responseHeaders) this.#acceptAnswer(message.responseHeaders, message);
      else if (message.responseBody) this.#acceptAnswerBody(message.responseBody);
      else if (message.responseTrailers) this.#acceptAnswerTrailers();
    } finally {
      this.#isHandling = false;
    }
    if (this.#isEnding) this.#finish();
  }

  /**
   * The stream has ended. Envoy 1.40 resets it as soon as it has nothing more to show, long before the answer is over; it
   * closes it when the client goes away.
   *
   * @param isReset whether it was reset rather than closed
   */
  close(isReset: boolean): void {
    const isShown = this.#answerMode !== bodyModes.none;
    const isPassed = this.#phase === "answering" || (this.#phase === "routed" && isReset);
    this.#over(isPassed && !isShown ? "unseen" : "aborted");
  }

  route({ destinations, scores, setHeaders, removeHeaders, body, isBodyChanged }: Route): void {
    if (!this.isUnanswered) return;
    const response: CommonResponse = {
      headerMutation: {
        setHeaders: settings([destinationKey, destinations.join(","), ...setHeaders]),
        removeHeaders: [...removeHeaders],
      },
      // The route may depend on headers that were changed.
      clearRouteCache: true,
    };
    const fields: Record<string, MetadataValue> = { [destinationKey]: { stringValue: destinations.join(",") } };
    if (scores) fields[scoresKey] = { structValue: { fields: numbers(scores) } };
    const dynamicMetadata: MetadataStruct = {
      fields: { [loadBalancing]: { structValue: { fields } } },
    };
    this.#phase = "routed";
    if (this.#requestMode === bodyModes.buffered && !this.#isBodiless) {
      const bodyMutation = isBodyChanged ? { bodyMutation: { body: Buffer.concat([...body]) } } : {};
      this.#stream.write({ requestBody: { response: { ...response, ...bodyMutation } }, dynamicMetadata });
      return;
    }
    this.#stream.write({ requestHeaders: { response }, dynamicMetadata });
    if (this.#requestMode === bodyModes.fullDuplexStreamed && !this.#isBodiless) this.#sendBody(body);
  }

  /** Answers the client instead of an engine. @param headers flat names and values */
  refuse(status: number, headers: readonly string[], body: Buffer, details: string): void {
    if (this.#phase === "over" || this.#hasAnswerHead) return;
    const setHeaders = settings(headers);
    this.#stream.write({ immediateResponse: { status: { code: status }, headers: { setHeaders }, body, details } });
    this.#stream.end();
    this.#over("finished");
  }

  /** Lets the head of the answer pass. @param setHeaders flat names, in lower case, and values */
  answerHeaders(setHeaders: readonly string[], removeHeaders: readonly string[]): void {
    if (this.#phase !== "answering" || this.#hasAnswerHead) return;
    this.#hasAnswerHead = true;
    const headerMutation = { setHeaders: settings(setHeaders), removeHeaders: [...removeHeaders] };
    this.#stream.write({ responseHeaders: { response: { headerMutation } } });
  }

  /** Sends a piece of the answer on to the client. @returns false when the gateway is behind */
  write(chunk: Buffer): boolean {
    if (this.#phase === "over") return true;
    if (this.#isHandling) {
      this.#written.push(chunk);
      return true;
    }
    return this.#sendAnswerBody([chunk], false);
  }

  /** The answer is complete. */
  end(): void {
    if (this.#phase === "over") return;
    this.#isEnding = true;
    if (!this.#isHandling) {
      if (this.#answerMode === bodyModes.fullDuplexStreamed) this.#sendAnswerBody([], true);
      this.#finish();
    }
  }

  /** Breaks the answer off, so that its reader notices. */
  destroy(): void {
    if (this.#phase === "over") return;
    this.#stream.fail("the answer was broken off");
    this.#over("aborted");
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  #acceptHead({ headers, endOfStream = false }: HttpHeaders, message: ProcessingRequest): void {
    if (this.#phase !== "head") throw outOfOrder("request headers");
    const { protocolConfig } = message;
    if (protocolConfig) {
      this.#requestMode = protocolConfig.requestBodyMode ?? bodyModes.none;
      this.#answerMode = protocolConfig.responseBodyMode ?? bodyModes.none;
    }
    const mode = this.#requestMode;
    const showsBody = mode === bodyModes.fullDuplexStreamed || mode === bodyModes.buffered;
    this.#isBodiless = endOfStream;
    this.#phase = "body";
    const showsAnswer = this.#answerMode !== bodyModes.none;
    this.#owner?.head(readHead(headers?.headers ?? [], { showsBody, showsAnswer, subset: readSubset(message) }));
    if (endOfStream || !showsBody) this.#complete();
    // Envoy sends no body before that, and takes changes of headers with the answer to the body.
    else if (mode === bodyModes.buffered && this.#isIn("body")) this.#stream.write({ requestHeaders: {} });
  }

  #acceptBody({ body, endOfStream = false }: HttpBody): void {
    if (this.#phase === "routed" && this.#requestMode !== bodyModes.fullDuplexStreamed) {
      // A part of a body that is not read: it passes unchanged.
      this.#stream.write({ requestBody: {} });
      return;
    }
    // Envoy has been seen to send the end of a long body twice.
    if (this.#phase !== "body") return;
    if (body && body.length > 0) this.#owner?.piece(asBuffer(body));
    if (endOfStream) this.#complete();
  }

  #acceptTrailers(): void {
    if (this.#phase === "body") {
      this.#hasTrailers = true;
      this.#complete();
    } else if (this.#phase === "routed") this.#stream.write({ requestTrailers: {} });
  }

  /** The owner may have refused the request meanwhile. */
  #complete(): void {
    if (this.#phase !== "body") return;
    this.#phase = "deciding";
    this.#owner?.complete();
  }

  #acceptAnswer({ headers, endOfStream = false }: HttpHeaders, message: ProcessingRequest): void {
    if (this.#phase !== "routed") throw outOfOrder("response headers");
    this.#phase = "answering";
    let status = 0;
    const raw: Buffer[] = [];
    for (const header of headers?.headers ?? []) {
      if (header.key === ":status") status = Number(textOf(header));
      else if (!header.key.startsWith(":")) raw.push(Buffer.from(header.key, "latin1"), bytesOf(header));
    }
    this.#owner?.answered(status, raw, servedBy(message));
    this.answerHeaders([], []);
    if (endOfStream) this.#owner?.ended();
  }

  #acceptAnswerBody({ body, endOfStream = false }: HttpBody): void {
    if (this.#phase !== "answering") return;
    const chunk = body && body.length > 0 ? asBuffer(body) : undefined;
    if (chunk && this.#owner && !this.#owner.received(chunk) && this.#isIn("answering")) this.#stream.pause();
    if (endOfStream) this.#owner?.ended();
    const written = this.#written;
    this.#written = [];
    if (!this.#isIn("answering")) return;
    if (this.#answerMode === bodyModes.fullDuplexStreamed) {
      if (written.length > 0 || this.#isEnding) this.#sendAnswerBody(written, this.#isEnding);
      return;
    }
    const isSame = written.length === 1 ? written[0] === chunk : written.length === 0 && !chunk;
    const bodyMutation = { body: written.length === 1 ? written[0]! : Buffer.concat(written) };
    this.#stream.write({ responseBody: isSame ? {} : { response: { bodyMutation } } });
  }

  #acceptAnswerTrailers(): void {
    if (this.#phase !== "answering") return;
    this.#owner?.ended();
    const written = this.#written;
    this.#written = [];
    if (!this.#isIn("answering")) return;
    if (written.length > 0 && this.#answerMode === bodyModes.fullDuplexStreamed) this.#sendAnswerBody(written, false);
    this.#stream.write({ responseTrailers: {} });
  }

  #sendBody(body: Iterable<Buffer>): void {
    let last: Buffer = noBytes;
    for (const part of body) {
      for (let from = 0; from < part.length; from += pieceBytes) {
        if (last.length > 0) this.#sendPiece(last, false);
        last = part.subarray(from, from + pieceBytes);
      }
    }
    this.#sendPiece(last, !this.#hasTrailers);
    if (this.#hasTrailers) this.#stream.write({ requestTrailers: {} });
  }

  #sendPiece(body: Buffer, endOfStream: boolean): void {
    const bodyMutation = { streamedResponse: { body, endOfStream } };
    this.#stream.write({ requestBody: { response: { bodyMutation } } });
  }

  #sendAnswerBody(parts: readonly Buffer[], endOfStream: boolean): boolean {
    const body = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
    const bodyMutation = { streamedResponse: { body, endOfStream } };
    return this.#stream.write({ responseBody: { response: { bodyMutation } } });
  }

  /** Everything that is shown has passed. */
  #finish(): void {
    if (this.#phase === "over") return;
    this.#stream.end();
    this.#over("finished");
  }

  #over(how: StreamEnd): void {
    if (this.#phase === "over") return;
    this.#phase = "over";
    this.#stream = noStream;
    const owner = this.#owner;
    this.#owner = undefined;
    owner?.closed(how);
  }

  /** The owner may have ended the exchange; a method call keeps the compiler from assuming otherwise. */
  #isIn(phase: Phase): boolean {
    return this.#phase === phase;
  }
}

function outOfOrder(what: string): EspalierError {
  return new EspalierError("bad_request", `The gateway sent ${what} out of order.`);
}

function readHead(
  values: readonly HeaderValue[],
  others: Pick<RequestHead, "showsBody" | "showsAnswer" | "subset">,
): RequestHead {
  const headers: Record<string, string> = Object.create(null);
  const rawHeaders: string[] = [];
  const pseudo: Record<string, string> = { ":method": "GET", ":path": "/", ":authority": "" };
  for (const header of values) {
    const text = textOf(header);
    if (header.key.startsWith(":")) {
      pseudo[header.key] = text;
      continue;
    }
    const name = header.key.toLowerCase();
    rawHeaders.push(header.key, text);
    headers[name] = headers[name] === undefined ? text : `${headers[name]}, ${text}`;
  }
  return {
    method: pseudo[":method"]!,
    path: pseudo[":path"]!,
    authority: pseudo[":authority"]!,
    headers,
    rawHeaders,
    showsBody: others.showsBody,
    showsAnswer: others.showsAnswer,
    subset: others.subset,
  };
}

/**
 * The endpoints that the gateway allows, from its metadata: a list of `ip:port`, or one text with commas. An address
 * without a port stands for all its ports. An empty list allows none.
 */
function readSubset({ metadataContext }: ProcessingRequest): ReadonlySet<string> | undefined {
  const value = metadataContext?.filterMetadata?.[subsetNamespace]?.fields?.[subsetKey];
  if (!value) return undefined;
  const listed = value.listValue?.values?.map(({ stringValue }) => stringValue ?? "") ?? [value.stringValue ?? ""];
  return new Set(
    listed
      .flatMap((text) => text.split(","))
      .map((text) => text.trim())
      .filter((text) => text !== ""),
  );
}

function servedBy({ metadataContext }: ProcessingRequest): string | undefined {
  return metadataContext?.filterMetadata?.[loadBalancing]?.fields?.[servedKey]?.stringValue ?? undefined;
}

function settings(pairs: readonly string[]) {
  const set: { header: HeaderValue; appendAction: number }[] = [];
  for (let at = 0; at + 1 < pairs.length; at += 2) {
    const rawValue = Buffer.from(pairs[at + 1]!, "latin1");
    set.push({ header: { key: pairs[at]!, rawValue }, appendAction: overwrite });
  }
  return set;
}

function numbers(values: Readonly<Record<string, number>>): Readonly<Record<string, MetadataValue>> {
  return Object.fromEntries(Object.entries(values).map(([key, numberValue]) => [key, { numberValue }]));
}

function textOf(header: HeaderValue): string {
  return header.rawValue && header.rawValue.length > 0
    ? asBuffer(header.rawValue).toString("latin1")
    : (header.value ?? "");
}

function bytesOf({ rawValue, value = "" }: HeaderValue): Buffer {
  return rawValue && rawValue.length > 0 ? asBuffer(rawValue) : Buffer.from(value, "latin1");
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
