import type { IncomingMessage, ServerResponse } from "node:http";
import { isJsonObject, type JsonObject, type Scheduler } from "@espalier/core";
import { type FaultTable, transferPath } from "../faults.ts";
import { ApiError, readBody, send, sendJson, textType } from "../http/exchange.ts";
import type { BlockStore, PutPrompt, StoreChange } from "./block-store.ts";
import type { LegParts } from "./leg.ts";

/** The tables behind an engine's side channel. */
export interface SideChannelParts extends Pick<LegParts, "engineId" | "exports" | "inbox"> {
  readonly store: BlockStore;
  /** Called with the effect of each put into the store. */
  readonly onPut: (change: StoreChange, prompt: PutPrompt) => void;
  readonly faults: FaultTable;
  readonly scheduler: Scheduler;
}

const pushPath = "/kv/push/";

/** Serves the requests of other engines, and those to SGLang's and Mooncake's bootstrap servers. */
export function createSideChannel(parts: SideChannelParts) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    answer(parts, request, response).catch((error: unknown) => {
      if (response.headersSent || request.socket.destroyed) {
        response.destroy();
        return;
      }
      const status = error instanceof ApiError ? error.status : 404;
      send({ response }, status, textType, error instanceof Error ? error.message : String(error));
    });
  };
}

async function answer(parts: SideChannelParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const path = (request.url ?? "/").split("?", 1)[0] as string;
  const { exports, inbox, store, engineId } = parts;
  switch (`${request.method} ${path}`) {
    case "GET /health":
      return send({ response }, 200, textType, "OK");
    // Mooncake's bootstrap server: one data-parallel rank.
    case "GET /query":
      return sendJson({ response }, 200, {
        "0": { engine_id: engineId(), worker_addr: { "0": { "0": addressOf(request) } } },
      });
    // SGLang's bootstrap server.
    case "GET /route":
      return sendJson({ response }, 200, { attn_tp_size: 1, dp_size: 1, pp_size: 1, follow_bootstrap_room: true });
    case `POST ${transferPath}`:
      return answerClaim(parts, request, response, objectOf(await readBody(request)));
    case "POST /storage/lookup":
      return sendJson({ response }, 200, { found: store.countFirst(namesOf(objectOf(await readBody(request)))) });
    case "POST /storage/put": {
      const prompt = promptOf(objectOf(await readBody(request)));
      parts.onPut(store.put(prompt.names, prompt.keys), prompt);
      return sendJson({ response }, 200, {});
    }
    // The HTTP server of a Mooncake Store's master.
    case "GET /get_all_keys":
      return send(
        { response },
        200,
        textType,
        store
          .keys()
          .map((key) => `${key}\n`)
          .join(""),
      );
    case "POST /api/v1/remove_all":
      store.clear();
      return sendJson({ response }, 200, {});
    default:
  }
  if (request.method === "DELETE" && path.startsWith(`${transferPath}/`)) {
    exports.done(decodeURIComponent(path.slice(transferPath.length + 1)));
    return sendJson({ response }, 200, {});
  }
  if (request.method === "PUT" && path.startsWith(pushPath)) {
    inbox.put(decodeURIComponent(path.slice(pushPath.length)), Uint32Array.from(tokensOf(await readBody(request))));
    return sendJson({ response }, 200, {});
  }
  throw new ApiError(404, "Not Found");
}

/** Sends the tokens of a prompt, and keeps the answer open until the other engine is done. */
async function answerClaim(
  { exports, engineId, faults, scheduler }: SideChannelParts,
  request: IncomingMessage,
  response: ServerResponse,
  { ticket, engineId: wantedId, waits }: JsonObject,
): Promise<void> {
  if (typeof ticket !== "string") throw new ApiError(400, "a claim needs a ticket");
  if (typeof wantedId === "string" && wantedId !== engineId()) throw new Error(`unknown engine ${wantedId}`);
  let isClaimed = false;
  let isOver = request.socket.destroyed;
  response.on("close", () => {
    if (isClaimed && !isOver) exports.lost(ticket);
    isOver = true;
  });
  const fault = faults.take(transferPath, false);
  if (fault?.kind === "transfer-refused") throw new ApiError(503, "injected fault: transfer-refused");
  if (fault?.kind === "transfer-slow") {
    await new Promise<void>((resolve) => scheduler.after(fault.delayMs ?? 0, resolve));
  }
  // A claim of a client that has disconnected would never be released.
  if (isOver) return;
  isClaimed = true;
  const { tokens, over } = await exports.claim(ticket, waits === true).catch((error: unknown) => {
    isOver = true;
    throw error;
  });
  const bytes = Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength);
  response.writeHead(200, { "content-type": "application/octet-stream", "x-kv-tokens": tokens.length });
  if (fault?.kind === "transfer-broken") {
    response.write(bytes.subarray(0, bytes.length / 2), () => request.socket.resetAndDestroy());
    return;
  }
  response.write(bytes);
  const end = (): void => {
    isOver = true;
    response.end();
  };
  over.then(end, () => {
    isOver = true;
    request.socket.resetAndDestroy();
  });
}

function addressOf({ socket }: IncomingMessage): string {
  return `${socket.localAddress}:${socket.localPort}`;
}

function objectOf(text: string): JsonObject {
  const value: unknown = JSON.parse(text);
  if (!isJsonObject(value)) throw new ApiError(400, "not an object");
  return value;
}

function namesOf({ blocks }: JsonObject): readonly string[] {
  if (Array.isArray(blocks) && blocks.every((name) => typeof name === "string")) return blocks;
  throw new ApiError(400, "blocks must be a list of names");
}

function promptOf(body: JsonObject): PutPrompt {
  const { tokens, blockSize, adapter, cacheSalt } = body;
  const names = namesOf(body);
  const prompt = Uint32Array.from(checkedTokens(tokens));
  if (typeof blockSize !== "number" || prompt.length !== names.length * blockSize) {
    throw new ApiError(400, "tokens must be blockSize for each block");
  }
  const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);
  const keys = Array.isArray(body.keys) ? body.keys.map(String) : [];
  return { names, keys, prompt, blockSize, adapter: textOf(adapter), cacheSalt: textOf(cacheSalt) };
}

function tokensOf(text: string): readonly number[] {
  return checkedTokens(JSON.parse(text));
}

function checkedTokens(value: unknown): readonly number[] {
  if (Array.isArray(value) && value.every((token) => Number.isInteger(token))) return value;
  throw new ApiError(400, "not a list of tokens");
}
