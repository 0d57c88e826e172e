import {
  type AnswerBeginning,
  type Continuation,
  completeAnswer,
  continueRequest,
  type Endpoint,
  PagedBytes,
  readBeginning,
  StreamSplice,
  scanRequest,
} from "@espalier/api";
import { counterBy, gaugeOf, type Meter } from "@espalier/core";
import type { Target } from "@espalier/engines";
import type { PromptBlocks } from "@espalier/routing";
import type { ExchangeOutcome } from "../request/answer-source.ts";
import type { PlannedRequest } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";

/** What became of a stream that broke. */
type ResumeOutcome = "completed" | "moved" | "cut" | "cancelled" | "refused";

/** Shared by all streams of a router. */
export interface ResumeLedger {
  /** Bytes kept of requests and answers, to resume their streams. */
  keptBytes: number;
  readonly broken: (outcome: ResumeOutcome) => void;
  readonly kept: (bytes: number) => void;
}

export function createResumeLedger(meter: Meter): ResumeLedger {
  return {
    keptBytes: 0,
    broken: counterBy<ResumeOutcome>(
      meter,
      "outcome",
      "espalier_broken_streams_total",
      "Streams whose engine broke after the first byte, by outcome: completed by another engine, moved from a drained engine, cut after a second break, cancelled by the client, or refused (not resumed).",
    ),
    kept: gaugeOf(meter, "espalier_resume_kept_bytes", "Bytes kept of requests and answers to resume their streams."),
  };
}

/** The rest of a stream, for another engine. */
export interface StreamRest extends Pick<Continuation, "by" | "tokens" | "body"> {
  readonly splice: StreamSplice;
  /** The same, with so many tokens of the text, not as many as there were events; undefined when nothing is left. */
  counted(tokens: number): StreamRest | undefined;
}

type ResumeContext = Pick<RouterContext, "live" | "resumeLedger"> & {
  readonly prefix: { readonly reader: Pick<RouterContext["prefix"]["reader"], "read"> };
};
type ResumedPlan = Pick<PlannedRequest, "resumableAt" | "body" | "prompt" | "stripUsage" | "pool">;

/**
 * Keeps what another engine needs to go on with one stream: the request, and what the engine has sent. Nothing of it is
 * read before the stream breaks.
 */
export class StreamResumption {
  readonly #context: ResumeContext;
  readonly #plan: ResumedPlan;
  readonly #endpoint: Endpoint | undefined;
  #body: readonly Buffer[] = [];
  /** All that the engine has sent, as it came: most streams end well, and are never read. Undefined while nothing is kept. */
  #sent: PagedBytes | undefined;
  #keptBytes = 0;
  #resumed: "completed" | "moved" | undefined;

  constructor(context: ResumeContext, plan: ResumedPlan) {
    this.#context = context;
    this.#plan = plan;
    this.#endpoint = plan.resumableAt;
  }

  /** The stream begins. @returns whether it may be resumed, so that only whole events of it may pass */
  begin(): boolean {
    if (!this.#endpoint) return false;
    this.#body = this.#plan.body;
    this.#sent = new PagedBytes();
    this.#account(this.#body.reduce((sum, { length }) => sum + length, 0));
    this.#context.resumeLedger.kept(this.#context.resumeLedger.keptBytes);
    return this.#sent !== undefined;
  }

  /** Whether it can be resumed as far as is known. */
  get isKept(): boolean {
    return this.#sent !== undefined;
  }

  /** The engine sent these bytes of it. */
  push(chunk: Buffer): void {
    if (!this.#sent) return;
    this.#sent.append(chunk);
    this.#account(chunk.length);
  }

  /**
   * The stream broke.
   *
   * @param resumedBy names the engine that goes on, once the stream ends
   * @returns the end of a stream that lacks nothing else; undefined if the stream cannot be resumed
   */
  rest(resumedBy: () => string): StreamRest | Buffer | undefined {
    const [sent, body] = [this.#sent, Buffer.concat(this.#body)];
    if (!sent || !this.#endpoint) return undefined;
    const beginning = readBeginning(sent.take());
    this.release();
    if (!beginning) return undefined;
    const { maxNesting } = this.#context.live.current.limits;
    const continuation = continueRequest(this.#endpoint, body, beginning, maxNesting);
    if (!continuation) return undefined;
    const promptTokens = this.#promptTokens;
    if (continuation === "complete") {
      const isWanted = !this.#plan.stripUsage;
      return completeAnswer(this.#endpoint, body, beginning, { isUsageWanted: isWanted, promptTokens });
    }
    const endpoint = this.#endpoint;
    const restOf = (of: Continuation): StreamRest => ({
      ...of,
      splice: this.#splice(beginning, of, resumedBy),
      counted(tokens) {
        const counted = tokens === of.tokens ? of : continueRequest(endpoint, body, beginning, maxNesting, tokens);
        return typeof counted === "object" ? restOf(counted) : undefined;
      },
    });
    return restOf(continuation);
  }

  /**
   * Checks whether engines make the same tokens of the beginning as were generated, as far as the router knows: its prompt
   * is a prefix of the longer one, which the template may have changed, and no tokens merged with others.
   *
   * @returns the rest by the tokens that were counted, or as it is where no tokenizer knows the prompt; undefined if it
   *   does not fit
   */
  fitting(rest: StreamRest): StreamRest | undefined | Promise<StreamRest | undefined> {
    const { prompt, pool } = this.#plan;
    if (rest.by !== "text" || prompt?.from !== "tokens" || !this.#endpoint) return rest;
    const scanned = scanRequest(Buffer.concat(rest.body), { maxDepth: this.#context.live.current.limits.maxNesting });
    const source = { model: pool.model, parent: undefined, endpoint: this.#endpoint.id, body: scanned };
    const fit = (longer: PromptBlocks): StreamRest | undefined => {
      const tokens = longer.tokens - prompt.tokens;
      const isFit = longer.from === "tokens" && tokens >= rest.tokens && beginsWith(longer, prompt);
      return isFit ? rest.counted(tokens) : undefined;
    };
    const read = this.#context.prefix.reader.read({ ...source, estimatedTokens: prompt.tokens + rest.tokens });
    return read instanceof Promise ? read.then(fit) : fit(read);
  }

  /** Another engine goes on. */
  resumed(isMoved: boolean): void {
    this.#resumed = isMoved ? "moved" : "completed";
  }

  /** It was not resumed. */
  refused(): void {
    this.#context.resumeLedger.broken("refused");
  }

  ended({ kind }: ExchangeOutcome): void {
    this.release();
    if (!this.#resumed) return;
    const outcome = kind === "completed" ? this.#resumed : kind === "client_closed" ? "cancelled" : "cut";
    this.#context.resumeLedger.broken(outcome);
  }

  release(): void {
    this.#sent?.clear();
    this.#sent = undefined;
    this.#body = [];
    if (this.#keptBytes === 0) return;
    this.#account(-this.#keptBytes);
    this.#context.resumeLedger.kept(this.#context.resumeLedger.keptBytes);
  }

  #splice(
    beginning: AnswerBeginning,
    continuation: Pick<Continuation, "by" | "tokens" | "repeated">,
    resumedBy: () => string,
  ): StreamSplice {
    const { by, tokens } = continuation;
    const comment = (): string => `x-espalier-resumed: ${resumedBy()};tokens=${tokens};by=${by}`;
    return new StreamSplice({ beginning, continuation, promptTokens: this.#promptTokens, comment });
  }

  /** If the whole prompt was tokenized as engines do it. */
  get #promptTokens(): number | undefined {
    const { prompt } = this.#plan;
    return prompt?.from === "tokens" ? prompt.tokens : undefined;
  }

  #account(bytes: number): void {
    const ledger = this.#context.resumeLedger;
    const { maxBytes, maxBytesInFlight } = this.#context.live.current.resume;
    this.#keptBytes += bytes;
    ledger.keptBytes += bytes;
    if (bytes > 0 && (this.#keptBytes > maxBytes || ledger.keptBytes > maxBytesInFlight)) this.release();
  }
}

function beginsWith(longer: PromptBlocks, prompt: PromptBlocks): boolean {
  const words = 2 * prompt.blockCount;
  return (
    longer.blockCount >= prompt.blockCount && isEqual(longer.chain.subarray(0, words), prompt.chain.subarray(0, words))
  );
}

const isEqual = (one: Uint32Array, other: Uint32Array): boolean => one.every((word, at) => word === other[at]);

/**
 * Whether an engine goes on with an assistant's message: vLLM and SGLang by their fields. Others would begin a new one,
 * or refuse the fields.
 */
export function continuesChats({ engine }: Target): boolean {
  const { models, targets } = engine;
  const isKnown = (name: string | undefined): boolean => name === "vllm" || name === "sglang";
  return (
    targets.some(({ signals }) => isKnown(signals.dialect)) ||
    (models?.some(({ ownedBy }) => isKnown(ownedBy)) ?? false)
  );
}
