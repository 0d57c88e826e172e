import { request as httpRequest, type IncomingMessage } from "node:http";
import type { Arrival } from "./leg.ts";

/** The connections of an engine to those that it fetches from. */
export interface KvLinks {
  /**
   * Fetches blocks from another engine's side channel. What passes is the prompt's tokens, which stand for the blocks; how
   * long those take is a matter of the engine's time. The connection stays open until everything has come.
   *
   * @param signal nothing is wanted any more, which the other engine is told
   * @throws (rejects) Error saying why there are no blocks
   */
  open(source: KvSource, signal: AbortSignal): Promise<Arrival>;
  readonly size: () => number;
  /** Breaks all of them without a word, as the death of the engine's process does. */
  cut(): void;
}

/** Which blocks to fetch, and where. */
interface KvSource {
  readonly host: string;
  /** Of the side channel. */
  readonly port: number;
  readonly ticket: string;
  /** The engine that is expected there, when it is known. */
  readonly engineId: string | undefined;
  /** Whether to wait for blocks that are not computed yet. */
  readonly waits: boolean;
}

/** Connections at a time. */
export const maxKvLinks = 4_096;

export function createKvLinks(): KvLinks {
  const links = new Set<AbortController>();
  return {
    async open(source, signal) {
      if (links.size >= maxKvLinks) throw new Error(`more than ${maxKvLinks} prompts are being fetched`);
      const death = new AbortController();
      links.add(death);
      return openKvLink(source, { signal, death: death.signal, over: () => links.delete(death) });
    },
    size: () => links.size,
    cut() {
      for (const death of links) death.abort();
    },
  };
}

interface LinkLife {
  readonly signal: AbortSignal;
  /** The engine's process is dead. */
  readonly death: AbortSignal;
  /** The connection is closed. */
  over(): void;
}

/** Bytes of a refusal that are read. */
const maxReasonBytes = 1_024;

async function openKvLink(source: KvSource, { signal, death, over }: LinkLife): Promise<Arrival> {
  const { host, port, ticket, engineId, waits } = source;
  const request = httpRequest({ host, port, path: "/kv/claim", method: "POST", agent: false });
  let isDone = false;
  const done = (): void => {
    if (isDone) return;
    isDone = true;
    dismiss(source, () => request.destroy());
  };
  const die = (): void => {
    isDone = true;
    request.destroy();
  };
  request.on("error", () => {});
  request.on("close", () => {
    signal.removeEventListener("abort", done);
    over();
  });
  signal.addEventListener("abort", done);
  death.addEventListener("abort", die);
  try {
    const response = await responseTo(request, JSON.stringify({ ticket, engineId, waits }));
    const tokens = await readTokens(response);
    const whenBroken = (listener: (reason: string) => void): void => {
      response.on("close", () => {
        if (!isDone) listener("the connection to the other engine broke");
      });
    };
    return { tokens, done, whenBroken };
  } catch (error) {
    die();
    throw error;
  }
}

type ClientRequest = ReturnType<typeof httpRequest>;

function responseTo(request: ClientRequest, body: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on("response", resolve);
    request.on("error", reject);
    request.on("close", () => reject(new Error("the other engine did not answer")));
    request.end(body);
  });
}

/** Reads as many tokens as the answer promises, and leaves it open. */
function readTokens(response: IncomingMessage): Promise<Uint32Array> {
  return new Promise((resolve, reject) => {
    const isGood = response.statusCode === 200;
    const wantedBytes = isGood ? 4 * Number(response.headers["x-kv-tokens"]) : maxReasonBytes;
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    const finish = (): void => {
      const bytes = Buffer.concat(chunks);
      if (!isGood) reject(new Error(bytes.toString("utf8", 0, maxReasonBytes)));
      else if (bytes.length < wantedBytes) reject(new Error("the transfer broke"));
      else resolve(new Uint32Array(Uint8Array.from(bytes.subarray(0, wantedBytes)).buffer));
    };
    response.on("data", (chunk: Buffer) => {
      if (sizeBytes <= wantedBytes) chunks.push(chunk);
      sizeBytes += chunk.length;
      if (sizeBytes >= wantedBytes) finish();
    });
    response.on("error", finish);
    response.on("close", finish);
    if (wantedBytes === 0) finish();
  });
}

/** Tells the other engine that its blocks are free. */
function dismiss({ host, port, ticket }: KvSource, over: () => void): void {
  const path = `/kv/claim/${encodeURIComponent(ticket)}`;
  const request = httpRequest({ host, port, path, method: "DELETE", agent: false });
  request.on("response", (response) => response.resume());
  // An engine that is gone holds no blocks.
  request.on("error", () => {});
  request.on("close", over);
  request.end();
}

/** Bytes of an answer that are read. */
const maxAnswerBytes = 65_536;

interface PeerCall {
  /** `http://host:port/path` */
  readonly url: string;
  readonly method: "POST" | "PUT";
  readonly body: unknown;
  readonly signal?: AbortSignal;
}

/**
 * Asks another engine's side channel for something.
 *
 * @returns the answer's JSON
 * @throws (rejects) Error when there is no answer, or another one than 200
 */
export function callPeer({ url, method, body, signal }: PeerCall): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const request = httpRequest(url, { method, agent: false, ...(signal && { signal }) });
    request.on("error", reject);
    request.on("close", () => reject(new Error("the other engine did not answer")));
    request.on("response", (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        if (text.length < maxAnswerBytes) text += chunk;
      });
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode !== 200) reject(new Error(text));
        else resolve(JSON.parse(text));
      });
    });
    request.end(JSON.stringify(body));
  });
}
