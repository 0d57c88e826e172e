import { request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import { isJsonObject, type JsonObject, type Scheduler } from "@espalier/core";
import {
  type CancelPull,
  createPullSource,
  type EngineRequest,
  type PullReceiver,
  type RemoteSource,
  type TokenRange,
} from "@espalier/engine-model";
import type { SequenceRequest, SimulatedEngine, TimeDriver } from "../engine/simulated-engine.ts";
import { type FaultTable, pullPath } from "../faults.ts";
import { optionalObject } from "../http/body-fields.ts";
import { ApiError, readBody, sendJson } from "../http/exchange.ts";
import { createListener } from "../http/listener.ts";
import type { ResolvedP2p } from "../options.ts";

/** The P2P tier of one engine: it pulls blocks from other engines' CPU memory, and sends them its own. */
export type PeerTier = ReturnType<typeof createPeerTier>;

interface PeerTierOptions {
  readonly p2p: ResolvedP2p;
  readonly engine: SimulatedEngine;
  readonly driver: TimeDriver;
  readonly faults: FaultTable;
  readonly scheduler: Scheduler;
  readonly host: string;
  /** 0 for any free port. */
  readonly port: number;
  /** 16 random hexadecimal digits. */
  readonly newId: () => string;
}

/**
 * vLLM 0.32's P2P tier, over HTTP in place of ZMQ and RDMA. The source counts the engine time of a transfer, and its answer
 * ends when the transfer does. The prompt's tokens stand for the blocks.
 */
export function createPeerTier(options: PeerTierOptions) {
  const { p2p, engine, driver, faults, scheduler, host, newId } = options;
  /** Answers to other engines that are not complete. */
  const open = new Set<ServerResponse>();
  const source = createPullSource<EngineRequest>({
    engine: () => engine,
    limits: p2p.limits,
    changed: () => driver.changed(driven),
  });
  const driven = { advanceTo: source.advanceTo, nextEventMs: source.nextEventMs, flush() {} };
  driver.add(driven);
  const name = newId();
  const serve = (call: PullCall, response: ServerResponse): void => {
    const nowMs = driver.nowMs();
    source.advanceTo(nowMs);
    const { prompt, range, to } = call;
    const receiver = answering(response, range);
    let cancel: CancelPull | undefined;
    response.on("close", () => {
      open.delete(response);
      source.advanceTo(driver.nowMs());
      cancel?.(driver.nowMs());
    });
    open.add(response);
    const fault = faults.take(pullPath, false);
    if (fault?.kind === "transfer-refused") throw new ApiError(503, "injected fault: transfer-refused");
    const begin = (): void => {
      if (response.destroyed) return;
      const isOtherSize = call.blockSize !== engine.parameters.blockSize;
      if (isOtherSize || fault?.kind === "transfer-missing") receiver.done(range.fromTokens, nowMs);
      else {
        const broken = { ...receiver, found: () => response.socket?.resetAndDestroy() };
        const watched = fault?.kind === "transfer-broken" ? broken : receiver;
        cancel = source.sourceFor(prompt, to).pull(range, watched, driver.nowMs());
      }
    };
    if (fault?.kind === "transfer-slow") scheduler.after(fault.delayMs ?? 0, begin);
    else begin();
  };
  const listener = createListener({
    host,
    port: options.port,
    scheduler,
    onRequest: (request, response) => {
      answer(request, response, serve).catch((error: unknown) => {
        if (response.headersSent) response.destroy();
        else sendJson({ response }, error instanceof ApiError ? error.status : 400, { error: String(error) });
      });
    },
  });
  const dropAll = (): void => {
    for (const response of open) response.socket?.resetAndDestroy();
    source.drop(driver.nowMs());
  };
  return {
    p2p,
    host,
    /** Of the side channel, once `start` has resolved. */
    get port() {
      return listener.port;
    },
    /** Rejects when the address cannot be listened on. */
    start: listener.listen,
    async stop(): Promise<void> {
      dropAll();
      await listener.stop();
    },
    /** The engine restarts: its connections break. */
    restart: dropAll,
    /** The sequences of a request, which pull from the source that its body names, if it names one. */
    withSource(body: JsonObject, sequences: readonly SequenceRequest[]): readonly SequenceRequest[] {
      const address = addressIn(body);
      if (!address) return sequences;
      return sequences.map((sequence) => {
        const remote = remoteSource({ address, sequence, name, engine, scheduler, timeoutMs: p2p.timeoutMs });
        return { ...sequence, remote };
      });
    },
    /** The answer of `/sim/p2p`. */
    describe(): JsonObject {
      const { pulling, pulls, emptyPulls, pulledTokens, cpuBlocks } = engine.stats();
      return {
        port: listener.port,
        limits: p2p.limits,
        cpuBlocks,
        consumer: { pulling, pulls, emptyPulls, pulledTokens },
        source: source.stats(),
      };
    },
  };
}

interface SourceAddress {
  readonly id: string;
  readonly host: string;
  readonly port: number;
}

/** Incomplete parameters are ignored. */
function addressIn(body: JsonObject): SourceAddress | undefined {
  const params = optionalObject(body, "kv_transfer_params");
  const source = params && optionalObject(params, "remote_kv_source");
  const { kv_request_id: id, remote_host: host, remote_port: port } = source ?? {};
  if (typeof id !== "string" || typeof host !== "string" || host === "") return undefined;
  if (!(typeof port === "number" && Number.isInteger(port) && port > 0 && port < 65_536)) return undefined;
  return { id, host, port };
}

interface RemoteParts {
  readonly address: SourceAddress;
  readonly sequence: SequenceRequest;
  /** Names this engine to the source. */
  readonly name: string;
  readonly engine: SimulatedEngine;
  readonly scheduler: Scheduler;
  readonly timeoutMs: number;
}

/** The header with the end of the blocks that the source has, in tokens. */
const foundHeader = "x-kv-tokens";

/** Bytes read of an answer. */
const maxAnswerBytes = 1_024;

function remoteSource({ address, sequence, name, engine, scheduler, timeoutMs }: RemoteParts): RemoteSource {
  const { prompt, adapter, cacheSalt } = sequence;
  const { blockSize } = engine.parameters;
  return {
    pull(range, receiver) {
      const { epoch } = engine;
      const { id, host, port } = address;
      const request = httpRequest({ host, port, path: pullPath, method: "POST", agent: false });
      let isOver = false;
      const finish = (toTokens: number): void => {
        if (isOver) return;
        isOver = true;
        cancelTimer();
        request.destroy();
        engine.notify(epoch, (nowMs) => receiver.done(toTokens, nowMs));
      };
      const giveUp = (): void => finish(range.fromTokens);
      const cancelTimer = scheduler.after(timeoutMs, giveUp);
      request.on("error", giveUp);
      request.on("close", giveUp);
      request.on("response", (response) => {
        const found = Number(response.headers[foundHeader]);
        if (response.statusCode !== 200 || !isEnd(found, range, blockSize) || found === range.fromTokens) {
          response.resume();
          giveUp();
          return;
        }
        engine.notify(epoch, (nowMs) => receiver.found(found, nowMs));
        readEnd(response, (toTokens) =>
          finish(isEnd(toTokens, range, blockSize) ? Math.min(toTokens, found) : range.fromTokens),
        );
      });
      const tokens = Array.from(prompt.subarray(0, range.toTokens));
      request.end(JSON.stringify({ id, to: name, tokens, adapter, cacheSalt, blockSize, ...range }));
      return () => {
        isOver = true;
        cancelTimer();
        request.destroy();
      };
    },
  };
}

const isEnd = (tokens: number, { fromTokens, toTokens }: TokenRange, blockSize: number): boolean =>
  tokens >= fromTokens && tokens <= toTokens && tokens % blockSize === 0;

function readEnd(response: IncomingMessage, over: (toTokens: number) => void): void {
  let text = "";
  response.setEncoding("utf8");
  response.on("data", (chunk: string) => {
    if (text.length < maxAnswerBytes) text += chunk;
  });
  response.on("end", () => over(Number(text)));
}

/** What another engine asks for. */
interface PullCall {
  readonly prompt: EngineRequest;
  readonly range: TokenRange;
  readonly to: string;
  readonly blockSize: number;
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  serve: (call: PullCall, response: ServerResponse) => void,
): Promise<void> {
  const path = (request.url ?? "/").split("?", 1)[0];
  if (request.method !== "POST" || path !== pullPath) throw new ApiError(404, "Not Found");
  const body: unknown = JSON.parse(await readBody(request));
  if (!response.destroyed) serve(callOf(body), response);
}

/** @throws ApiError 400 when it is malformed */
function callOf(body: unknown): PullCall {
  if (!isJsonObject(body)) throw new ApiError(400, "not an object");
  const { id, to, tokens, adapter, cacheSalt, blockSize, fromTokens, toTokens } = body;
  const isText = typeof id === "string" && typeof to === "string";
  const isPrompt = Array.isArray(tokens) && tokens.every((token) => Number.isInteger(token));
  if (!isText || !isPrompt || !isBlocks(blockSize, 1))
    throw new ApiError(400, "a pull needs an id, a name and a prompt");
  const isRange =
    isBlocks(fromTokens, 0) &&
    isBlocks(toTokens, fromTokens + blockSize) &&
    toTokens <= tokens.length &&
    fromTokens % blockSize === 0 &&
    toTokens % blockSize === 0;
  if (!isRange) throw new ApiError(400, "a pull needs a range of whole blocks");
  const prompt = {
    id,
    promptTokens: Uint32Array.from(tokens),
    outputTokens: 1,
    outputToken: () => 0,
    ...(typeof adapter === "string" && { adapter }),
    ...(typeof cacheSalt === "string" && { cacheSalt }),
  };
  return { prompt, range: { fromTokens, toTokens }, to, blockSize };
}

const isBlocks = (value: unknown, min: number): value is number => Number.isSafeInteger(value) && Number(value) >= min;

/** Answers with what was found at once, and with what was sent when it was. */
function answering(response: ServerResponse, range: TokenRange): PullReceiver {
  return {
    found(toTokens) {
      response.writeHead(200, { [foundHeader]: toTokens });
      response.flushHeaders();
    },
    done(toTokens) {
      if (!response.headersSent) response.writeHead(200, { [foundHeader]: range.fromTokens });
      response.end(String(toTokens));
    },
  };
}
