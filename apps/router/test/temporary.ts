import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** Writes a file that is gone after the test, and gives its path. */
export function temporaryFile(name: string, content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "espalier-router-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, name);
  writeFileSync(path, content);
  return path;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: string;
  readonly response: ServerResponse;
}

/** A server that is gone after the test. `answer` is called when a request has arrived whole. */
export async function temporaryServer(answer: (request: SeenRequest) => void): Promise<string> {
  const server = createServer(async (message: IncomingMessage, response: ServerResponse) => {
    let body = "";
    for await (const chunk of message.setEncoding("utf8")) body += chunk;
    answer({ method: message.method ?? "", path: message.url ?? "", headers: message.headers, body, response });
  });
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A router's admin listener that gives one answer to everything: JSON, or a text as it is. */
export async function temporaryAdmin(answer: unknown, status = 200) {
  const seen: SeenRequest[] = [];
  const text = typeof answer === "string" ? answer : JSON.stringify(answer);
  const admin = await temporaryServer((request) => {
    seen.push(request);
    request.response.writeHead(status, { "content-type": "application/json" }).end(text);
  });
  return { admin, seen };
}

/** A streamed chat answer of some words, with its usage. */
export function streamAnswer(response: ServerResponse, words: readonly string[], cachedTokens = 0): void {
  response.writeHead(200, { "content-type": "text/event-stream", "x-espalier-engine": "engine-of-the-test" });
  for (const content of words) response.write(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
  const usage = {
    prompt_tokens: 100,
    completion_tokens: words.length,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
  response.end(`data: ${JSON.stringify({ choices: [], usage })}\n\ndata: [DONE]\n\n`);
}
