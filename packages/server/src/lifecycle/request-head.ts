import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { EspalierError } from "@espalier/core";

/** Scheme and authority of an absolute-form target, which every server has to take (RFC 9112 section 3.2.2). */
const absolute = /^https?:\/\/([^/?#]*)/i;

/** The target of a request as a path, for fastify's `rewriteUrl`. The host in an absolute one replaces the Host header. */
export function originForm({ url = "", headers }: Pick<IncomingMessage, "url" | "headers">): string {
  const [whole, authority] = absolute.exec(url) ?? [];
  if (whole === undefined) return url;
  headers.host = authority;
  const rest = url.slice(whole.length);
  return rest.startsWith("/") ? rest : `/${rest}`;
}

/** Codings beneath the chunks, which Node does not undo. Where chunks are not the last coding, it refuses the request itself. */
const codedChunks = /,\s*chunked\s*$/i;

/** Connections that are ended with their present answer: what follows may belong to the message before. */
const ending = new WeakSet<Socket>();

/**
 * Checks what Node lets through of a request's head: it reads several versions, targets and transfer codings as if they were
 * others, which the next reader may not.
 *
 * @returns why the request is refused; where its end is in doubt, its connection then ends with the answer
 */
export function headFault(request: IncomingMessage, response: ServerResponse): EspalierError | undefined {
  const { rawHeaders, httpVersion, headers, url = "", socket } = request;
  const coding = headers["transfer-encoding"];
  const isKnown = httpVersion === "1.1" || httpVersion === "1.0";
  const isRefused = !isKnown || ending.has(socket) || (coding !== undefined && codedChunks.test(coding));
  // Chunks over HTTP/1.0 are answered: RFC 9112 section 6.1.
  if (isRefused || (coding !== undefined && httpVersion === "1.0")) {
    ending.add(socket);
    response.shouldKeepAlive = false;
  }
  if (isRefused) {
    return new EspalierError(
      "bad_request",
      isKnown ? "Chunked is the only transfer coding." : "The HTTP version is missing.",
    );
  }
  if (url.includes("#")) return new EspalierError("bad_request", "The request's target has a fragment.");
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
  }
  if (hosts > 1) return new EspalierError("bad_request", "The request has more than one Host header.");
  if (hosts === 0 && httpVersion === "1.1") return new EspalierError("bad_request", "The request has no Host header.");
  return undefined;
}
