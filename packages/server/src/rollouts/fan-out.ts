import { isUtf8 } from "node:buffer";
import { asEspalierError, EspalierError, type HttpClient, isJsonObject, type Logger, type Meter } from "@espalier/core";
import type { EngineRecord, Fleet } from "@espalier/engines";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { RolloutsConfig } from "../config/index.ts";
import { readObject } from "../data-plane/read-body.ts";
import type { AbortRequests } from "../orders/shared-aborts.ts";
import { engineHeader, findEngine } from "../request/named-engine.ts";
import { type ControlCall, controlCalls } from "./control-calls.ts";
import type { EngineControl } from "./engine-control.ts";
import { type EngineAnswer, mergeAnswers } from "./merge-answers.ts";

export interface FanOutOptions {
  readonly fleet: Pick<Fleet, "engines">;
  readonly control: EngineControl;
  /** At all routers. */
  readonly abort: AbortRequests;
  /** With the engines' key, if there is one. */
  readonly http: HttpClient;
  readonly settings: Pick<RolloutsConfig, "timeoutMs">;
  readonly logger: Logger;
  readonly meter: Meter;
}

/** Control calls in progress. A further one is answered with 429. */
const maxControlCalls = 64;
/** Bytes of an engine's answer to a control call. A longer one is a failure. */
const maxControlAnswerBytes = 1024 * 1024;
/** Bytes of all answers that one call brings together. What is beyond is read and left out, with its engine's status kept. */
const maxMergedBytes = 16 * 1024 * 1024;

/** Names the model whose engines a call is for. */
const modelHeader = "x-espalier-model";

export function createControlMeter(meter: Meter) {
  return meter.counter(
    "espalier_control_calls_total",
    "Control calls of RL frameworks by path and outcome: succeeded and failed per engine, refused where none was asked.",
    ["call", "outcome"],
  );
}

/** Registers the engines' control routes: one call at the router is a call at each engine. */
export function registerControl(app: FastifyInstance, options: FanOutOptions): void {
  const calls = createControlMeter(options.meter);
  let running = 0;
  for (const call of controlCalls) {
    const { path, methods } = call;
    const count = (outcome: "succeeded" | "failed" | "refused"): void => calls.series(path.slice(1), outcome).add();
    const start = (request: FastifyRequest): ControlRun => {
      try {
        if (running >= maxControlCalls) {
          throw new EspalierError("overloaded", `${maxControlCalls} control calls are in progress.`);
        }
        return new ControlRun(call, request, options);
      } catch (thrown) {
        count("refused");
        throw thrown;
      }
    };
    app.route({
      method: [...methods],
      url: path,
      async handler(request, reply) {
        const run = start(request);
        running += 1;
        try {
          const answers = await run.all();
          for (const { error } of answers) count(error === null ? "succeeded" : "failed");
          return run.reply(reply, answers);
        } finally {
          running -= 1;
        }
      },
    });
  }
}

/** One control call at all its engines. */
class ControlRun {
  readonly #call: ControlCall;
  readonly #request: FastifyRequest;
  readonly #options: FanOutOptions;
  readonly #engines: readonly EngineRecord[];
  /** The only engine, by name. */
  readonly #isForOne: boolean;
  /** Method, path with the query, and body, for each engine alike. */
  readonly #sent: { readonly method: "GET" | "POST"; readonly path: string; readonly body: string | undefined };
  #mergedBytes = 0;

  /** @throws EspalierError for a call that reaches no engine */
  constructor(call: ControlCall, request: FastifyRequest, options: FanOutOptions) {
    this.#call = call;
    this.#request = request;
    this.#options = options;
    const named = request.headers[engineHeader];
    this.#isForOne = typeof named === "string";
    this.#engines = enginesOf(call, request, options.fleet);
    const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
    if (!isUtf8(body)) throw new EspalierError("invalid_utf8");
    const method = request.method === "GET" ? "GET" : "POST";
    // The path as the table has it, so that no other one reaches an engine.
    const query = request.url.indexOf("?");
    const path = call.path + (query < 0 ? "" : request.url.slice(query));
    this.#sent = { method, path, body: body.length > 0 && method === "POST" ? body.toString("utf8") : undefined };
  }

  /** Never rejected. All engines are asked at once: they wait for each other in a group. */
  async all(): Promise<readonly EngineAnswer[]> {
    const { control, logger } = this.#options;
    const effect = { ...this.#call, tags: this.#call.releases === undefined ? [] : tagsOf(this.#request) };
    const isVoid = this.#isVoid();
    if (this.#call.aborts) this.#abort();
    const engines = this.#engines.map((engine) => ({ engine, undo: control.begin(engine.id, effect) }));
    const answers = await Promise.all(
      engines.map(async ({ engine, undo }) => {
        const answer = await this.#ask(engine);
        if (answer.error === null) control.end(engine.id, effect, isVoid);
        else undo();
        return answer;
      }),
    );
    const failed = answers.filter(({ error }) => error !== null);
    const fields = { call: this.#call.path, engines: answers.length };
    if (failed.length === 0) logger.info("control call done", fields);
    else logger.warn("control call failed", { ...fields, failed: failed.map(({ engine }) => engine) });
    return answers;
  }

  /** SGLang's call means all requests, or those whose id begins with the given one. */
  #abort(): void {
    const { rid, abort_all: isForAll } = readObject(this.#request.body);
    if (isForAll === true) this.#options.abort("");
    else if (typeof rid === "string" && rid !== "") this.#options.abort(rid);
  }

  reply(reply: FastifyReply, answers: readonly EngineAnswer[]): unknown {
    const [only] = answers;
    if (this.#isForOne && only && only.status !== null) {
      reply.code(only.status);
      return typeof only.body === "string" ? reply.type("text/plain").send(only.body) : reply.send(json(only.body));
    }
    const isDone = answers.every(({ error }) => error === null);
    return reply.code(isDone ? 200 : 502).send(mergeAnswers(answers));
  }

  #isVoid(): boolean {
    const { voids = false } = this.#call;
    if (voids === "method") return String(readObject(this.#request.body).method).includes("weight");
    const { clear_cache: isCleared } = this.#request.query as Readonly<Record<string, unknown>>;
    return voids === "cleared" ? isCleared !== "false" : voids;
  }

  async #ask({ id, url }: EngineRecord): Promise<EngineAnswer> {
    const { http, settings } = this.#options;
    const { method, path, body } = this.#sent;
    try {
      const answered = await http({
        url: url + path,
        method,
        headers: { "content-type": "application/json" },
        ...(body !== undefined && { body }),
        ...{ timeoutMs: settings.timeoutMs, maxBytes: maxControlAnswerBytes },
      });
      const { status } = answered;
      this.#mergedBytes += answered.body.length;
      const isKept = this.#isForOne || this.#mergedBytes <= maxMergedBytes;
      const read = readAnswer(answered.body);
      const isDone = status >= 200 && status < 300 && !hasFailed(read);
      const error = isDone ? null : status < 300 ? "success: false" : `status ${status}`;
      return { engine: id, url, status, error, body: isKept ? read : null };
    } catch (thrown) {
      const { code, message } = asEspalierError(thrown);
      return { engine: id, url, status: null, error: `${code}: ${message}`, body: null };
    }
  }
}

/** A JSON body of its own: `null` too, which SGLang answers and its clients read. */
const json = (body: unknown): Buffer | object =>
  typeof body === "object" && body !== null ? body : Buffer.from(JSON.stringify(body));

/** @throws EspalierError where no engine is named, known or there at all */
function enginesOf(
  { path, reach }: ControlCall,
  { headers }: FastifyRequest,
  fleet: FanOutOptions["fleet"],
): readonly EngineRecord[] {
  const present = fleet.engines.filter(({ state }) => state !== "removed");
  const named = headers[engineHeader];
  if (typeof named === "string") {
    const engine = findEngine(present, named);
    if (!engine) throw new EspalierError("engine_not_found");
    return [engine];
  }
  if (reach === "one") throw new EspalierError("engine_not_named", `${path} differs per engine and is never copied.`);
  const model = headers[modelHeader];
  const engines = present.filter(({ models }) => model === undefined || models?.some(({ id }) => id === model));
  if (engines.length === 0) throw new EspalierError("no_engine_available");
  return engines;
}

function readAnswer(body: string): unknown {
  if (body === "") return null;
  try {
    return JSON.parse(body);
  } catch {
    return body;
  }
}

/** vLLM answers a cache that it could not reset with 200. */
const hasFailed = (body: unknown): boolean => isJsonObject(body) && body.success === false;

/** Which parts of the memory a call is about: in the query of vLLM, in the body of SGLang. Empty for all. */
function tagsOf({ query, body, method }: FastifyRequest): readonly string[] {
  const { tags: queried, level } = query as Readonly<Record<string, unknown>>;
  // vLLM's level 0 stops the scheduler only.
  if (level === "0") return ["scheduling"];
  const written = queried ?? (method === "POST" ? readObject(body).tags : undefined);
  return [written].flat().filter((tag) => typeof tag === "string");
}
