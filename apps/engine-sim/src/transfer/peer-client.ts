import { request as httpRequest, type IncomingMessage } from "node:http";
import type { Arrival } from "./leg.ts";

/** Connections to the engines that an engine fetches from. */
export type KvLinks = ReturnType<typeof createKvLinks>;

/** The blocks to fetch, and where. */
interface KvSource {
  readonly host: string;
  /** Port of the side channel. */
  readonly port: number;
  readonly ticket: string;
  /** The engine expected there, if known. */
  readonly engineId: string | undefined;
  /** Whether to wait for blocks that are not yet computed. */
  readonly waits: boolean;
}

/** Connections at a time. */
export const maxKvLinks = 4_096;

export function createKvLinks() {
  const links = new Set<AbortController>();
  return {
    /**
     * Fetches blocks from another engine's side channel. The prompt's tokens represent the blocks; the engine model
     * counts the engine time of the transfer. The connection stays open until the transfer is complete.
     *
     * @param signal aborted when the blocks are no longer needed; the other engine is notified
     * @throws (rejects) Error with the reason when there are no blocks
     */
    async open(source: KvSource, signal: AbortSignal): Promise<Arrival> {
      if (links.size >= maxKvLinks) throw new Error(`more than ${maxKvLinks} prompts are being fetched`);
      const death = new AbortController();
      links.add(death);
      return openKvLink(source, { signal, death: death.signal, over: () => links.delete(death) });
    },
    size: (): number => links.size,
    /** Breaks all of them without notice, as a crash does. */
    cut(): void {
      for (const death of links) death.abort();
    },
  };
}

interface LinkEvents {
  readonly signal: AbortSignal;
  /** The engine has crashed. */
  readonly death: AbortSignal;
  /** The connection is closed. */
  over(): void;
}

/** Bytes read of an error answer. */
const maxReasonBytes = 1_024;

async function openKvLink(source: KvSource, { signal, death, over }: LinkEvents): Promise<Arrival> {
  const { host, port, ticket, engineId, waits } = source;
  const request = httpRequest({ host, port, path: "/kv/claim", method: "POST", agent: false });
  let isDone = false;
  const done = (): void => {
    if (isDone) return;
    isDone = true;
    releaseAtPeer(source, () => request.destroy());
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
        if (!isDone) listener("connection to the peer engine lost");
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

/** Reads the announced number of tokens, and leaves the answer open. */
function readTokens(response: IncomingMessage): Promise<Uint32Array> {
  return new Promise((resolve, reject) => {
    const isGood = response.statusCode === 200;
    const wantedBytes = isGood ? 4 * Number(response.headers["x-kv-tokens"]) : maxReasonBytes;
    const chunks: Buffer[] = [];
    let sizeBytes = 0;
    const finish = (): void => {
      const bytes = Buffer.concat(chunks);
      if (!isGood) reject(new Error(bytes.toString("utf8", 0, maxReasonBytes)));
      else if (bytes.length < wantedBytes) reject(new Error("transfer interrupted"));
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

/** Releases the blocks at the other engine. */
function releaseAtPeer({ host, port, ticket }: KvSource, over: () => void): void {
  const path = `/kv/claim/${encodeURIComponent(ticket)}`;
  const request = httpRequest({ host, port, path, method: "DELETE", agent: false });
  request.on("response", (response) => response.resume());
  // An engine that has crashed has no blocks.
  request.on("error", () => {});
  request.on("close", over);
  request.end();
}

/** Bytes read of an answer. */
const maxAnswerBytes = 65_536;

interface PeerCall {
  /** `http://host:port/path` */
  readonly url: string;
  readonly method: "POST" | "PUT";
  readonly body: unknown;
  readonly signal?: AbortSignal;
}

/**
 * Calls another engine's side channel.
 *
 * @returns the answer's JSON
 * @throws (rejects) Error when there is no answer, or its status is not 200
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
