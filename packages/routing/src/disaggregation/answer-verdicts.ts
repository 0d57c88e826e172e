const errorEvent = /^\s*(?:event:[^\n]*\n)?data:\s*\{\s*"error"/;
/** A stream shows within this many bytes whether its first event is an error. */
const decidingBytes = 256;
const firstValue = /^\s*(?:event:[^\n]*\n)?data:\s*\{\s*"[^"]+"/;

/**
 * Reads from the beginning of an answer whether the decode engine could fetch the blocks. If it could not, it answers
 * with status 500, or reports an error in the first event of a stream whose status has already been sent.
 *
 * @param head the first bytes of the body; all of them if `ended`
 * @returns `more` while the bytes do not decide
 */
export function transferVerdict(
  status: number,
  head: Buffer,
  isStream: boolean,
  ended: boolean,
): "pass" | "decline" | "more" {
  if (status >= 500) return "decline";
  if (status !== 200 || !isStream) return "pass";
  const text = head.toString("latin1", 0, decidingBytes);
  if (errorEvent.test(text)) return "decline";
  return ended || head.length >= decidingBytes || firstValue.test(text) ? "pass" : "more";
}

const declined = /"finish_reason"\s*:\s*"cache_threshold"/;
const finished = /"finish_reason"\s*:\s*"[^"]*"/;
const content = /"(?:content|text|reasoning_content|tool_calls)"\s*:\s*(?:"[^"]|\[\s*\{)/;

/**
 * Reads from the beginning of an answer whether an engine that was given a `cache_hit_threshold` serves the request.
 *
 * @param head the first bytes of the body; all of them if `ended`
 * @returns `more` while the bytes do not decide
 */
export function cacheVerdict(head: Buffer, isStream: boolean, ended: boolean): "pass" | "decline" | "more" {
  const text = head.toString("latin1");
  if (declined.test(text)) return "decline";
  if (ended || finished.test(text)) return "pass";
  // A non-streamed body arrives when the answer is complete; in a stream, the first word decides.
  return isStream && content.test(text) ? "pass" : "more";
}
