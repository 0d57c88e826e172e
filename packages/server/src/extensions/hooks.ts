import { type IncomingHttpHeaders, validateHeaderName, validateHeaderValue } from "node:http";
import type { Clock, Logger, Meter, Scheduler } from "@espalier/core";
import type { ChoiceReason } from "@espalier/policies";
import type { ClientRequest } from "../request/planned-request.ts";
import type { HookAnswer } from "../request/request-outcome.ts";

/** Longest wait for a hook, in milliseconds. After it the request goes on without the hook. */
export const hookTimeoutMs = 250;
/** Most calls of one hook that have not ended. While there are as many, it is not called. */
export const maxPendingHookCalls = 1_024;

/** A request with its body, before it is planned. */
export interface HookRequest {
  readonly requestId: string;
  readonly method: string;
  /** The path with the query. */
  readonly url: string;
  /** By lower-case name. */
  readonly headers: Readonly<IncomingHttpHeaders>;
  /** Undefined when there is none. */
  readonly body: Uint8Array | undefined;
  /** Name of its API key, or what `auth` called it; undefined when none is required. */
  readonly keyName: string | undefined;
}

/** What `onRequest` may change. */
export interface RequestChanges {
  /**
   * Headers to set, whose names begin with `x-`. The router reads them as if the client had sent them: session key,
   * class, deadline. Engines get those that do not begin with `x-espalier-`.
   */
  readonly headers?: Readonly<Record<string, string>>;
}

/** A request on its way to an engine. */
export interface HookDecision {
  readonly requestId: string;
  /** The model's name at engines. */
  readonly model: string;
  readonly policy: string;
  readonly reason: ChoiceReason;
  /** Id of the engine. */
  readonly engine: string;
  /** From 1. */
  readonly attempt: number;
  readonly promptTokens: number;
  /** Prompt tokens that the engine is believed to hold. */
  readonly matchedTokens: number;
}

/**
 * Functions that a router calls on the way of each request. What one throws is logged and counted, and the request goes
 * on. A hook that never returns blocks the router, as any code in it does: what takes time has to be asynchronous.
 */
export interface Hooks {
  /** Called before a request is planned. The request waits for it, at most 250 ms. */
  readonly onRequest?: (request: HookRequest) => RequestChanges | undefined | Promise<RequestChanges | undefined>;
  /** Called when an engine is chosen, for each attempt. Nothing waits for it. */
  readonly onDecision?: (decision: HookDecision) => unknown;
  /** Called when a request is over, whether it was answered or refused. Nothing waits for it. */
  readonly onAnswer?: (answer: HookAnswer) => unknown;
}

export const hookNames = ["onRequest", "onDecision", "onAnswer"] as const satisfies readonly (keyof Hooks)[];

/** The hooks of a router. */
export interface HookCalls {
  /** @returns undefined when there is nothing to wait for; the promise never rejects */
  readonly request: ((request: ClientRequest) => Promise<void> | undefined) | undefined;
  readonly decided: ((decision: HookDecision) => void) | undefined;
  readonly answered: ((answer: HookAnswer) => void) | undefined;
}

interface HookParts {
  readonly scheduler: Scheduler;
  readonly meter: Meter;
  readonly warn: Warn;
}

/** @returns undefined when there is no hook, so that requests pay nothing */
export function createHookCalls(hooks: readonly Hooks[], parts: HookParts): HookCalls | undefined {
  const failures = parts.meter.counter(
    "espalier_hook_failures_total",
    "Hook calls that threw, timed out, or were skipped at the concurrency limit.",
    ["hook", "outcome"],
  );
  const callsOf = <Given, Result>(
    name: keyof Hooks,
    functions: readonly (((given: Given) => Result) | undefined)[],
  ): readonly HookCall<Given, Result>[] =>
    functions.flatMap((hook) => {
      if (!hook) return [];
      return createCall(hook, parts.scheduler, (outcome, error) => {
        failures.series(name, outcome).add();
        parts.warn(`hook ${name}`, "hook failed; request continues", { hook: name, outcome, error });
      });
    });
  const onRequest = callsOf(
    "onRequest",
    hooks.map((one) => one.onRequest),
  );
  const onDecision = callsOf(
    "onDecision",
    hooks.map((one) => one.onDecision),
  );
  const onAnswer = callsOf(
    "onAnswer",
    hooks.map((one) => one.onAnswer),
  );
  if (onRequest.length + onDecision.length + onAnswer.length === 0) return undefined;
  return {
    request: onRequest.length === 0 ? undefined : (request) => callInTurn(onRequest, request),
    decided: onDecision.length === 0 ? undefined : (decision) => onDecision.forEach((call) => void call(decision)),
    answered: onAnswer.length === 0 ? undefined : (answer) => onAnswer.forEach((call) => void call(answer)),
  };
}

type Failure = "threw" | "timed_out" | "skipped";
/** @param use is called with what the hook returned, in time; what it throws is the hook's failure */
type HookCall<Given, Result> = (given: Given, use?: (result: Awaited<Result>) => void) => Promise<void> | undefined;

function createCall<Given, Result>(
  hook: (given: Given) => Result,
  scheduler: Scheduler,
  failed: (outcome: Failure, error?: unknown) => void,
): HookCall<Given, Result> {
  let pending = 0;
  return (given, use = () => {}) => {
    if (pending >= maxPendingHookCalls) {
      failed("skipped");
      return undefined;
    }
    try {
      const result = hook(given);
      if (!(result instanceof Promise)) {
        use(result as Awaited<Result>);
        return undefined;
      }
      pending += 1;
      return new Promise((resolve) => {
        let isLate = false;
        const cancel = scheduler.after(hookTimeoutMs, () => {
          isLate = true;
          failed("timed_out");
          resolve();
        });
        result
          .then((value) => isLate || use(value))
          .catch((error: unknown) => isLate || failed("threw", error))
          .finally(() => {
            pending -= 1;
            cancel();
            resolve();
          });
      });
    } catch (error) {
      failed("threw", error);
      return undefined;
    }
  };
}

type RequestCall = HookCall<HookRequest, ReturnType<NonNullable<Hooks["onRequest"]>>>;

function callInTurn(calls: readonly RequestCall[], request: ClientRequest, from = 0): Promise<void> | undefined {
  for (let at = from; at < calls.length; at++) {
    const waiting = calls[at]!(shownRequest(request), (changes) => change(request, changes?.headers ?? {}));
    if (waiting) return waiting.then(() => callInTurn(calls, request, at + 1));
  }
  return undefined;
}

function shownRequest({ id, method, url, headers, body, apiKeyName }: ClientRequest): HookRequest {
  return { requestId: id, method, url, headers, body: Buffer.isBuffer(body) ? body : undefined, keyName: apiKeyName };
}

function change({ headers, raw }: ClientRequest, set: Readonly<Record<string, string>>): void {
  const entries = Object.entries(set).map(([name, value]) => [name.toLowerCase(), value] as const);
  for (const [name, value] of entries) {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    if (!name.startsWith("x-"))
      throw new RangeError(`onRequest sets ${name}: only headers that begin with x- can be set`);
  }
  // The client's own headers of these names go: engines and the router have to read the same.
  const pairs = raw.rawHeaders as string[];
  for (const [name, value] of entries) {
    for (let at = pairs.length - 2; at >= 0; at -= 2) if (pairs[at]!.toLowerCase() === name) pairs.splice(at, 2);
    pairs.push(name, value);
    headers[name] = value;
  }
}

export type Warn = (what: string, message: string, fields: Readonly<Record<string, unknown>>) => void;

const warnEveryMs = 10_000;
/** Most kinds of failure that are told apart: three hooks, `auth`, and the custom policies. */
const maxWarned = 64;

/** Logs the first failure of each kind at once, then at most one in ten seconds, with the number of those since. */
export function createWarn(clock: Clock, logger: Logger): Warn {
  const kinds = new Map<string, { lastMs: number; failures: number }>();
  return (what, message, fields) => {
    const nowMs = clock.nowMs();
    const kind = kinds.get(what) ?? { lastMs: Number.NEGATIVE_INFINITY, failures: 0 };
    if (kinds.size < maxWarned) kinds.set(what, kind);
    kind.failures += 1;
    if (nowMs - kind.lastMs < warnEveryMs) return;
    logger.warn(message, { ...fields, failures: kind.failures });
    kind.lastMs = nowMs;
    kind.failures = 0;
  };
}
