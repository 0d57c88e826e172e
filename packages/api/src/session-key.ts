import type { RequestView, SessionFields } from "./request-view.ts";

/** One source of a session key. Header names are in lower case. */
export interface SessionKeySource {
  readonly from: "header" | "body";
  readonly name: string;
}

/** Longest session key, in UTF-16 units. */
const maxSessionKeyLength = 1_024;

/** The default sources of a session key, in order of precedence. */
export const defaultSessionKeyLadder: readonly SessionKeySource[] = [
  { from: "header", name: "x-espalier-session-id" },
  { from: "header", name: "x-session-id" },
  { from: "header", name: "x-smg-routing-key" },
  { from: "body", name: "session_id" },
  { from: "body", name: "prompt_cache_key" },
  { from: "body", name: "user" },
];

/**
 * The first session key that the ladder finds; empty values are skipped.
 *
 * @param view undefined where the body is not known
 * @param headers request headers, names in lower case; of a repeated header the first value counts
 * @returns at most 1,024 characters of it
 */
export function readSessionKey(
  ladder: readonly SessionKeySource[],
  headers: Readonly<Record<string, string | string[] | undefined>>,
  view: RequestView | undefined,
): string | undefined {
  for (const { from, name } of ladder) {
    const key = from === "header" ? headerValue(headers, name) : bodyValue(view, name);
    if (key !== undefined && key !== "") return key.slice(0, maxSessionKeyLength);
  }
  return undefined;
}

function headerValue(
  headers: Readonly<Record<string, string | string[] | undefined>>,
  name: string,
): string | undefined {
  const value = headers[name];
  return typeof value === "string" ? value : value?.[0];
}

function bodyValue(view: RequestView | undefined, name: string): string | undefined {
  if (!view) return undefined;
  if (Object.hasOwn(view.bodySession, name)) return view.bodySession[name as keyof SessionFields];
  const node = view.body.member(name);
  return node !== undefined && view.body.kindOf(node) === "string" ? view.body.textOf(node) : undefined;
}
