import type { IncomingMessage } from "node:http";
import { EspalierError } from "@espalier/common";

/**
 * Checks of a head that Node leaves out, or refuses without an error object.
 *
 * @throws EspalierError `bad_request`
 */
export function checkHosts({ rawHeaders, httpVersion }: IncomingMessage): void {
  let hosts = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name.length === 4 && name.toLowerCase() === "host") hosts += 1;
  }
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
