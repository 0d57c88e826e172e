import { closingQuote, type Member, scanObject } from "./json-scan.ts";

/** A path of the Responses API that names a stored response. */
export interface StoredResponsePath {
  readonly id: string;
  /** The requested action, for example `cancel` or `input_items`; undefined for the response itself. */
  readonly action: string | undefined;
}

/** Every engine writes the id first or nearly so. */
const maxHeadBytes = 4_096;
/** Longest response id that the router remembers, in UTF-16 units. */
const maxIdLength = 256;

/** Only unreserved characters, and no leading dot: nothing that could form another path at the engine. */
const storedPath = /^\/v1\/responses\/([A-Za-z0-9_~-][A-Za-z0-9._~-]{0,255})(?:\/([a-z_]{1,32}))?(?:\?.*)?$/;

/** @param path the request's path, with or without a query */
export function parseStoredResponsePath(path: string): StoredResponsePath | undefined {
  const match = storedPath.exec(path);
  return match?.[1] === undefined ? undefined : { id: match[1], action: match[2] };
}

/**
 * The id of a response object, from the first bytes of the answer to POST /v1/responses: of the JSON body, or of the
 * stream's first event (`response.created`).
 *
 * @param head the answer's first bytes; only the first 4,096 are searched
 * @returns undefined when the id is absent or incomplete
 */
export function readResponseId(head: Buffer): string | undefined {
  const text = head.toString("latin1", 0, maxHeadBytes);
  const data = /(?:^|\n)data:/.exec(text);
  if (!data) return stringMember(text, 0, "id");
  const response = findMember(text, data.index + data[0].length, "response");
  return response && stringMember(text, response.valueStart, "id");
}

function stringMember(text: string, start: number, key: string): string | undefined {
  const member = findMember(text, start, key);
  if (!member || text[member.valueStart] !== '"') return undefined;
  const close = closingQuote(text, member.valueStart);
  const id = text.slice(member.valueStart + 1, close);
  return close < 0 || id === "" || id.length > maxIdLength || id.includes("\\") ? undefined : id;
}

function findMember(text: string, start: number, key: string): Member | undefined {
  return scanObject(text, start).find((member) => text.slice(member.keyStart, member.keyEnd) === key);
}
