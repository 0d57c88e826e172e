import type { IncomingMessage } from "node:http";
import { EspalierError } from "@espalier/common";

/**
 * What Node takes of a head in all, in bytes, for heads of which path and headers have a bound each: beyond it cannot be told
 * which of the two is too long, and the answer is 431.
 */
export const headRoomBytes = (maxHeaderBytes: number): number => 2 * maxHeaderBytes + 128 * 1_024;

/**
 * Checks of a head that Node leaves out, or refuses without an error object.
 *
 * @param maxBytes bound of the path, and of all headers together
 * @throws EspalierError `uri_too_long`, `headers_too_large` or `bad_request`
 */
export function checkHead({ url = "", rawHeaders, httpVersion }: IncomingMessage, maxBytes: number): void {
  if (url.length > maxBytes) throw new EspalierError("uri_too_long");
  let bytes = 0;
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    // With a colon, a space and the end of the line.
    bytes += name.length + rawHeaders[at + 1]!.length + 4;
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
  }
  if (bytes > maxBytes) throw new EspalierError("headers_too_large");
  if (hosts > 1) throw new EspalierError("bad_request", "The request has more than one Host header.");
  if (hosts === 0 && httpVersion === "1.1") throw new EspalierError("bad_request", "The request has no Host header.");
}

const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i;
/** ASCII is UTF-8. */
const charsets: ReadonlySet<string> = new Set(["utf-8", "utf8", "us-ascii"]);

/** Whether a body of this type is JSON in UTF-8. */
export function isJson(contentType: string): boolean {
  if (contentType === "application/json") return true;
  const type = contentType.split(";", 1)[0]?.trim().toLowerCase() ?? "";
  const named = charset.exec(contentType)?.[1];
  if (named !== undefined && !charsets.has(named.toLowerCase())) return false;
  return type === "application/json" || (type.startsWith("application/") && type.endsWith("+json"));
}
