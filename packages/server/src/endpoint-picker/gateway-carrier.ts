import { isIP } from "node:net";
import { EspalierError, plainHost } from "@espalier/core";
import type { Target } from "@espalier/engines";
import {
  type AttemptOwner,
  type AttemptRequest,
  dropHeader,
  isNamed,
  PiecedBody,
  type RunningAttempt,
  StreamedBody,
  type WireBody,
} from "@espalier/engines";
import { explainSelection, noRetryBudget, Retries, type Selection } from "@espalier/routing";
import type { GatewayStream, RequestHead } from "../grpc/index.ts";
import { type Carrier, Exchange } from "../request/exchange.ts";
import { dropBody, type PlannedRequest, SplitSource } from "../request/planned-request.ts";
import type { RouterContext } from "../router-context.ts";
import { type AnswerError, type EngineChoice, PoolSource } from "../serving/pool-source.ts";
import type { GatewayResponse } from "./gateway-response.ts";

/** What a request of a gateway is answered with besides the engine. */
interface PickerSettings {
  /** Engines named after the chosen one. */
  readonly fallbacks: number;
  readonly scores: boolean;
}

/** One request of a gateway, as its carrier needs it. */
export interface PickedRequest {
  readonly head: RequestHead;
  readonly stream: GatewayStream;
  readonly response: GatewayResponse;
  /** The body as it came. */
  readonly received: Buffer | undefined;
  /** Names of headers, in lower case, that engines must not get. */
  readonly removeHeaders: readonly string[];
  /** The gateway has its answer. */
  readonly routed: () => void;
}

export interface CarrierParts {
  readonly context: RouterContext;
  readonly settings: PickerSettings;
  readonly meters: PickerMeters;
}

export interface PickerMeters {
  /** Requests that another engine served than the chosen one. */
  readonly servedElsewhere: () => void;
  /** Requests whose answers nobody showed. */
  readonly unseen: () => void;
}

/**
 * Brings one request to an engine by way of a gateway, which makes the only attempt: the carrier names the engine, and
 * follows the engine's answer as the gateway shows it. Nothing is resent, since the gateway has the request.
 */
export class GatewayCarrier implements Carrier, EngineChoice {
  /** The gateway passes whatever the engine answers, as it comes, and cannot take a request back from an engine. */
  readonly isFinal = true;
  readonly #parts: CarrierParts;
  readonly #plan: PlannedRequest;
  readonly source: PoolSource;
  readonly exchange: Exchange;
  #request: PickedRequest;
  #isRouted = false;
  #hasStatus = false;
  /** The only engine to choose: the one that the gateway says served the request. */
  #servedBy: string | undefined;
  #selection: Selection<Target> | undefined;

  constructor(parts: CarrierParts, plan: PlannedRequest, request: PickedRequest, answerError: AnswerError) {
    const { context } = parts;
    const retries = new Retries(noRetryBudget, context.exchange.retryMeters);
    this.#parts = parts;
    this.#plan = plan;
    this.#request = request;
    plan.step = context.programs.begin(plan);
    this.source = new PoolSource(context, plan, { answerError, retries, choice: this });
    this.exchange = new Exchange({ ...context.exchange, carrier: this }, plan, request.response, this.source);
  }

  accepts(target: Target): boolean {
    const isServing = this.#servedBy === undefined || addressOf(target.engine.url) === this.#servedBy;
    return isServing && isAllowed(target, this.#request.head.subset);
  }

  chosen(selection: Selection<Target> | undefined): void {
    this.#selection = selection;
  }

  /** Names the engine to the gateway. */
  attempt(_owner: AttemptOwner, attempt: AttemptRequest): RunningAttempt {
    const { stream } = this.#request;
    return { start: () => this.#send(attempt), resume: () => stream.resume(), cancel() {} };
  }

  /** The head of the answer. @param served the endpoint that the gateway says it came from */
  gatewayAnswered(status: number, rawHeaders: readonly Buffer[], served: string | undefined): void {
    if (served !== undefined) this.#follow(served);
    this.#hasStatus = true;
    this.exchange.answered(status, rawHeaders);
    const { stream, response } = this.#request;
    if (stream.isOver) return;
    response.headPassed();
    const set: string[] = [];
    this.source.editHeaders(set);
    dropHeader(set, "connection");
    // The router takes the usage out of a stream, so that the length of a stream is not known.
    stream.answerHeaders(set, this.#plan.stripUsage ? ["content-length"] : []);
  }

  /** The gateway shows nothing more. Nothing that is as large as a body is kept until the request is taken to be over. */
  unseen(): void {
    this.#request = { ...this.#request, received: undefined };
    dropBody(this.#plan);
    this.exchange.releaseBody();
  }

  /** The request is taken to be over, though nobody showed its answer. */
  finishUnseen(): void {
    if (this.exchange.isDone) return;
    if (!this.#hasStatus) this.exchange.answered(200, []);
    this.assumePrompt();
    this.exchange.ended();
  }

  /** See `finishUnseen`. */
  assumePrompt(): void {
    if (!this.exchange.isDone) this.source.assumePrompt();
  }

  get target(): Target | undefined {
    return this.#selection?.target;
  }

  /** Milliseconds that the engine needs for the prompt, as expected when it was chosen. */
  get expectedPromptMs(): number {
    const { work, matchedTokens = 0 } = this.#selection ?? {};
    return work?.expectedMs ?? Math.max(0, this.#plan.features.promptTokens - matchedTokens) / guessedTokensPerMs;
  }

  #send({ upstream, body }: AttemptRequest): boolean {
    // A second attempt: the gateway has made it already.
    if (this.#isRouted) return this.#servedBy !== undefined;
    this.#isRouted = true;
    const { stream, received, removeHeaders, head, routed } = this.#request;
    const { requestId } = this.#plan;
    const destinations = [addressOf(upstream.url)!, ...this.#fallbacks()];
    const setHeaders = lowerNames(upstream.headers);
    if (head.headers["x-request-id"] !== requestId) setHeaders.push("x-request-id", requestId);
    const pieces = piecesOf(body);
    const isBodyChanged = received !== undefined && (pieces.length !== 1 || pieces[0] !== received);
    const scores = this.#parts.settings.scores ? this.#scores() : undefined;
    const removed = removeHeaders.filter((name) => !isNamed(setHeaders, name));
    routed();
    stream.route({ destinations, scores, setHeaders, removeHeaders: removed, body: pieces, isBodyChanged });
    return true;
  }

  /** Further endpoints, in the order in which the policy would choose them. */
  #fallbacks(): readonly string[] {
    const found: string[] = [];
    if (this.#plan.split || !this.#selection) return found;
    const { targets, pool } = this.#plan;
    const { dryRunSelector } = this.#parts.context;
    const tried = new Set(this.#selection.target.engine.targets.map(({ key }) => key));
    const restriction = { tried, onlyEngine: this.#plan.onlyEngine, accepts: this.#answersAlone };
    while (found.length < this.#parts.settings.fallbacks && tried.size < targets.length) {
      const next = dryRunSelector.select(pool, targets, this.#plan, restriction);
      if (!next) break;
      for (const { key } of next.target.engine.targets) tried.add(key);
      found.push(addressOf(next.target.engine.url)!);
    }
    return found;
  }

  /** The score of every candidate, from 1 for the best one downwards. */
  #scores(): Readonly<Record<string, number>> | undefined {
    const { targets, pool, onlyEngine } = this.#plan;
    const { dryRunSelector } = this.#parts.context;
    const restriction = { tried: noneTried, onlyEngine, accepts: this.#answersAlone };
    const explained = explainSelection(dryRunSelector, pool, targets, this.#plan, restriction);
    if (!explained) return undefined;
    const { candidates } = explained.explanation;
    const least = Math.min(...candidates.map(({ cost }) => cost ?? 0));
    const scores: Record<string, number> = {};
    for (const [at, { cost, probability }] of candidates.entries()) {
      const address = addressOf(explained.targets[at]!.engine.url)!;
      // Policies that choose without costs have probabilities.
      const score = cost === null ? probability : 1 / (1 + cost - least);
      scores[address] = Math.max(scores[address] ?? 0, score);
    }
    return scores;
  }

  readonly #answersAlone = (target: Target): boolean => target.engine.role !== "prefill" && this.accepts(target);

  /** The gateway may have used a fallback: that engine has the load and the prompt then. */
  #follow(served: string): void {
    const chosen = this.#selection?.target;
    if (!chosen || addressOf(chosen.engine.url) === served || this.#plan.split) return;
    this.#parts.meters.servedElsewhere();
    const target = this.#plan.targets.find(({ engine, usable }) => usable && addressOf(engine.url) === served);
    if (!target) return;
    this.#servedBy = served;
    this.exchange.failed("connect", new EspalierError("upstream_connect_failed"));
  }
}

/** Protocols that ask a decode engine first and then send the request again need a router that can. */
export function withoutDecodeFirst(split: SplitSource): SplitSource {
  return new SplitSource(split.view, split.edit, (protocol) => protocol.order !== "decode_first");
}

/** The pace of a usual GPU, where none was learned. */
const guessedTokensPerMs = 10;

const noneTried: ReadonlySet<string> = new Set();

/**
 * `ip:port` of an engine's URL; undefined if it names its host otherwise, because a gateway can be told addresses only.
 */
function addressOf(url: string): string | undefined {
  const known = addresses.get(url);
  if (known !== undefined) return known === "" ? undefined : known;
  if (addresses.size >= maxAddresses) addresses.clear();
  const { hostname, port, protocol } = new URL(url);
  const bare = plainHost(hostname);
  const address = isIP(bare) === 0 ? "" : `${hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
  addresses.set(url, address);
  return address === "" ? undefined : address;
}

/** Addresses of engines kept as text. The cache is emptied when it is full. */
const maxAddresses = 16_384;
/** By URL; empty for a host name. */
const addresses = new Map<string, string>();

/** Whether a gateway can be told of a target, and allows it: by `ip:port`, or by `ip` alone. @param subset undefined for all */
export function isAllowed({ engine }: Target, subset: ReadonlySet<string> | undefined): boolean {
  const address = addressOf(engine.url);
  if (address === undefined || !subset) return address !== undefined;
  return subset.has(address) || subset.has(address.slice(0, address.lastIndexOf(":")));
}

function piecesOf(body: WireBody): readonly Buffer[] {
  if (body === null) return [];
  if (body instanceof StreamedBody) return [];
  return body instanceof PiecedBody ? [...body] : [body];
}

function lowerNames(pairs: readonly string[]): string[] {
  return pairs.map((text, at) => (at % 2 === 0 ? text.toLowerCase() : text));
}
