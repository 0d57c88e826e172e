import { createTextHasher, type JsonBody } from "@espalier/core";
import type { RequestView } from "./request-view.ts";

/** A conversation by its bytes in the body, whoever sends it. */
export interface FoundConversation {
  /** Of its beginning that `isKnown`, or of all of it: a signed integer of 32 bits, which maps find fastest. */
  readonly digest: number;
  /** Whether it begins with an earlier request and an answer. */
  readonly isContinued: boolean;
}

/** A longer entry counts by its length and so many bytes at either end. */
const maxEndBytes = 4_096;
/** Bytes that are compared: what begins with more has no digest, and costs no more time. */
export const maxComparedBytes = 32_768;

/** Entries of the Responses API that an engine wrote, and that have no role. */
const writtenTypes = ["function_call", "reasoning", "custom_tool_call", "local_shell_call"] as const;

type TextHasher = ReturnType<typeof createTextHasher>;

let shared: TextHasher | undefined;

/**
 * Finds the shortest beginning of a conversation, up to one of its answers, that was a whole request before. Entries
 * are compared by their JSON, so that a client that writes them in another way next time begins another conversation.
 *
 * @param scope what separates conversations with the same text
 * @param isKnown whether a beginning was a whole request
 * @returns undefined for a body without a list of messages, and when more than `maxComparedBytes` would have to be read
 */
export function findConversation(
  { endpoint, body }: Pick<RequestView, "endpoint" | "body">,
  scope: string,
  isKnown: (digest: number) => boolean,
): FoundConversation | undefined {
  const field = endpoint.promptFields[0]!.name;
  const list = endpoint.kind === "generate" && (field === "messages" || field === "input") && body.member(field);
  if (!list || body.kindOf(list) !== "array") return undefined;
  const end = body.after(list);
  if (end === list + 1 || body.kindOf(list + 1) !== "object") return undefined;
  shared ??= createTextHasher();
  const hasher = shared;
  hasher.reset();
  hasher.update(scope);
  const terms = body.member(field === "input" ? "instructions" : "system");
  let compared = terms === undefined ? 0 : add(hasher, body, terms);
  let wasWritten = true;
  for (let entry = list + 1; entry < end; entry = body.after(entry)) {
    const isAnswer = isWritten(body, entry);
    if (isAnswer && !wasWritten) {
      const digest = digestOf(hasher);
      if (isKnown(digest)) return { digest, isContinued: true };
    }
    wasWritten = isAnswer;
    compared += add(hasher, body, entry);
    if (compared > maxComparedBytes) return undefined;
  }
  return { digest: digestOf(hasher), isContinued: false };
}

/** @returns how many bytes were read */
function add(hasher: TextHasher, body: JsonBody, node: number): number {
  const [start, end] = [body.startOf(node), body.endOf(node)];
  if (end - start <= 2 * maxEndBytes) {
    hasher.update(body.bytes.subarray(start, end));
    return end - start;
  }
  hasher.update(`${end - start}`);
  hasher.update(body.bytes.subarray(start, start + maxEndBytes));
  hasher.update(body.bytes.subarray(end - maxEndBytes, end));
  return 2 * maxEndBytes;
}

function isWritten(body: JsonBody, entry: number): boolean {
  if (body.kindOf(entry) !== "object") return false;
  const role = body.member("role", entry);
  if (role !== undefined) return body.kindOf(role) === "string" && body.isText(role, "assistant");
  const type = body.member("type", entry);
  if (type === undefined || body.kindOf(type) !== "string") return false;
  return writtenTypes.some((name) => body.isText(type, name));
}

const digestOf = ({ low }: TextHasher): number => low | 0;
