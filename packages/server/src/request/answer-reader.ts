import {
  type AnswerEnd,
  AnswerEndReader,
  type AnswerFault,
  createJsonUsageReader,
  createSseUsageFilter,
  type RealtimeFrames,
  readAnswerHead,
  readResponseId,
  type SseUsageFilter,
  type StreamSplice,
  type Usage,
} from "@espalier/api";
import type { Clock } from "@espalier/core";
import type { Verdict } from "./answer-source.ts";
import type { PlannedRequest } from "./planned-request.ts";
import type { BodyFilter } from "./response-sink.ts";

type ReadRequest = Pick<PlannedRequest, "endpointId" | "frames" | "method" | "storesResponse" | "trace" | "step">;

/** Learns how far an answer has come. */
export interface AnswerListener {
  /** Comments, and events that only open an answer, come before the engine has computed anything. */
  contentBegun(): void;
  /** This many more tokens came, as estimated from a stream's chunks. */
  progress(tokens: number): void;
}

/** Keeps what is needed to resume a stream. */
interface StreamKeeper {
  /** @returns whether the stream may be resumed */
  begin(): boolean;
  push(chunk: Buffer): void;
}

const idHeadBytes = 4_096;

/** Reads the answer to one request in transit: whether it is one, when its content begins, its usage and its id. */
export class AnswerReader implements BodyFilter {
  /** The fault with which the present answer begins. */
  headFault: AnswerFault | undefined;
  isStream = false;
  hasContent = false;
  /** Estimated from a stream's chunks. */
  outputTokens = 0;
  /** When the content began; NaN before. */
  firstByteMs = Number.NaN;
  readonly #clock: Clock;
  readonly #request: ReadRequest;
  readonly #stripsUsage: boolean;
  readonly #listener: AnswerListener | undefined;
  readonly #keeper: StreamKeeper | undefined;
  /** Makes what another engine sends the rest of a stream that broke. */
  #splice: StreamSplice | undefined;
  #events: SseUsageFilter | undefined;
  #json: ReturnType<typeof createJsonUsageReader> | undefined;
  #frames: RealtimeFrames | undefined;
  /** Of an answer in one piece, to a request of a program. */
  #end: AnswerEndReader | undefined;
  /** Whether only whole events pass. */
  #isWhole = false;
  #countedTokens = 0;
  /** The first bytes of an answer that has an id to read. */
  #head: Buffer[] | undefined;
  #headBytes = 0;

  /** @param stripsUsage whether to remove the usage that the router requested and the client did not */
  constructor(
    clock: Clock,
    request: ReadRequest,
    stripsUsage: boolean,
    listener?: AnswerListener,
    keeper?: StreamKeeper,
  ) {
    this.#clock = clock;
    this.#request = request;
    this.#stripsUsage = stripsUsage;
    this.#listener = listener;
    this.#keeper = keeper;
  }

  /** Whether the stream has ended too early, or goes on with something else. */
  get isBroken(): boolean {
    return this.#splice?.hasFailed === true || (this.#events?.isBroken ?? false);
  }

  /** The stream goes on behind its last whole event. @param splice for what another engine sends; undefined for its end */
  resume(splice: StreamSplice | undefined): void {
    this.#events?.resume();
    if (!splice) return;
    this.#splice = splice;
    this.hasContent = false;
  }

  /** Another attempt is made at an answer. */
  reset(): void {
    if (this.#splice) return;
    this.isStream = false;
    this.headFault = undefined;
  }

  /** Judges the beginning of a body with status 200. */
  judge(head: Buffer, ended: boolean): Verdict {
    if (!this.#isJudged) return "pass";
    const fault = readAnswerHead(head, ended);
    if (typeof fault === "object") this.headFault = fault;
    return fault ?? "pass";
  }

  /** @returns itself; undefined for an answer without usage */
  filter(status: number, contentType: string): BodyFilter | undefined {
    if (status === 101) {
      this.#frames = this.#request.frames;
      return this;
    }
    if (status !== 200) return undefined;
    this.isStream = contentType.startsWith("text/event-stream");
    if (this.isStream) {
      this.#isWhole = this.#keeper?.begin() ?? false;
      this.#events = createSseUsageFilter({ strip: this.#stripsUsage, whole: this.#isWhole });
    } else if (contentType.startsWith("application/json")) {
      this.#json = createJsonUsageReader();
      if (this.#request.step) this.#end = new AnswerEndReader();
    } else return undefined;
    return this;
  }

  get changesLength(): boolean {
    return this.#events !== undefined && (this.#stripsUsage || this.#isWhole);
  }

  push(chunk: Buffer): Buffer | readonly Buffer[] | undefined {
    if (this.#request.storesResponse) this.#keep(chunk);
    if (this.#frames) {
      this.#frames.push(chunk);
      this.#countTo(this.#frames.tokensSeen);
      return chunk;
    }
    if (!this.#events) {
      this.#json?.push(chunk);
      this.#end?.push(chunk);
      return chunk;
    }
    if (this.#isWhole) this.#keeper?.push(chunk);
    const spliced = this.#splice ? this.#splice.push(chunk) : chunk;
    return spliced && this.#passed(this.#events, spliced);
  }

  #passed(events: SseUsageFilter, chunk: Buffer): Buffer | undefined {
    const passed = events.push(chunk);
    this.#countTo(events.hasContent() ? events.tokensSeen() : 0);
    return passed;
  }

  end(): Buffer | undefined {
    const rest = this.#splice?.end();
    const passed = rest && this.#events && this.#passed(this.#events, rest);
    const last = this.#events?.end();
    return passed && last ? Buffer.concat([passed, last]) : (passed ?? last);
  }

  cut(): Buffer | undefined {
    return this.#events?.cut();
  }

  /** Whether it is a stream without content yet. */
  get awaitsContent(): boolean {
    return this.#events !== undefined && !this.hasContent;
  }

  /** The first byte of the body is there. */
  firstByte(): void {
    if (!this.headFault && !this.awaitsContent) this.#contentBegun();
  }

  usage(): Usage | undefined {
    return (this.#frames ?? this.#events ?? this.#json)?.usage();
  }

  /** How the answer to a request of a program ended. */
  answerEnd(): AnswerEnd | undefined {
    return this.#request.step && (this.#events ?? this.#end)?.answerEnd();
  }

  /** Why the answer, which has ended, is none; undefined for a whole one. */
  fault(): AnswerFault | undefined {
    return this.headFault ?? (this.#isJudged ? this.#events?.fault() : undefined);
  }

  /** The id of a stored response, if the answer is one and enough of it has passed. */
  responseId(): string | undefined {
    return this.#head && readResponseId(Buffer.concat(this.#head));
  }

  /** Whether answers of this endpoint are known well enough to tell a fault. */
  get #isJudged(): boolean {
    const { endpointId, method } = this.#request;
    return method === "POST" && endpointId !== "forwarded" && endpointId !== "stored_response";
  }

  #countTo(seen: number): void {
    if (seen > this.#countedTokens) this.#count(seen - this.#countedTokens);
    this.#countedTokens = seen;
  }

  #count(tokens: number): void {
    this.#contentBegun();
    this.outputTokens += tokens;
    this.#listener?.progress(tokens);
  }

  #contentBegun(): void {
    if (this.hasContent) return;
    this.hasContent = true;
    if (Number.isNaN(this.firstByteMs)) {
      this.firstByteMs = this.#clock.nowMs();
      this.#request.trace?.firstByte();
    }
    this.#listener?.contentBegun();
  }

  #keep(chunk: Buffer): void {
    if (this.#headBytes >= idHeadBytes) return;
    this.#head ??= [];
    this.#head.push(Buffer.from(chunk.subarray(0, idHeadBytes - this.#headBytes)));
    this.#headBytes += chunk.length;
  }
}
