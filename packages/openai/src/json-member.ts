import { memberKey, scanObject } from "./json-scan.ts";

const openBrace = "{";

/**
 * The bytes of one value inside a JSON object, exactly as they stand there, so that 64-bit integers and the order of keys
 * survive being passed on.
 *
 * @param body a JSON object
 * @param path keys from the outside in; a value on the way that is an array stands for its first element
 * @returns undefined when the body is no JSON object, or nothing stands there
 */
export function readJsonMember(body: Buffer, path: readonly string[]): string | undefined {
  const text = body.toString("latin1");
  if (!isJson(body)) return undefined;
  let start = 0;
  let end = text.length;
  for (const key of path) {
    // Behind the bracket of an array stands its first element.
    const open = /^\s*(?:\[\s*)?/.exec(text.slice(start, end))?.[0].length ?? 0;
    if (text[start + open] !== openBrace) return undefined;
    const members = scanObject(text, start + open);
    // Of a key that stands twice, readers take the last.
    const member = members.findLast((candidate) => memberKey(text, candidate) === key);
    if (!member) return undefined;
    start = member.valueStart;
    end = member.valueEnd;
  }
  return body.toString("utf8", start, end);
}

/** Whether every byte counts: a scan is right for valid JSON only. */
function isJson(body: Buffer): boolean {
  try {
    JSON.parse(body.toString("utf8"));
    return true;
  } catch {
    return false;
  }
}
