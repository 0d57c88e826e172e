/** Where documents stand; the rest of the path is the name, its slashes plain or escaped. */
const prefix = "/yjs/";

/** Characters of a document's name at most. */
export const maxDocumentNameLength = 512;

/** What a request for a document asks. */
export interface DocumentRequest {
  readonly name: string;
  /** The key in the query, where a browser has to put it; undefined when there is none. */
  readonly key: string | undefined;
}

/** @returns undefined when the path is not one of documents, `invalid` when it is and cannot be read */
export function readDocumentRequest(target: string): DocumentRequest | "invalid" | undefined {
  if (!target.startsWith(prefix)) return undefined;
  const queryAt = target.indexOf("?");
  const path = target.slice(prefix.length, queryAt < 0 ? undefined : queryAt);
  const key = queryAt < 0 ? null : new URLSearchParams(target.slice(queryAt + 1)).get("key");
  try {
    const name = decodeURIComponent(path);
    if (name === "" || name.length > maxDocumentNameLength) return "invalid";
    return { name, key: key ?? undefined };
  } catch {
    return "invalid";
  }
}
