const errorEvent = /^\s*(?:event:[^\n]*\n)?data:\s*\{\s*"error"/;
/** How far into a stream it shows whether its first event is an error. */
const decidingBytes = 256;
const firstValue = /^\s*(?:event:[^\n]*\n)?data:\s*\{\s*"[^"]+"/;

/**
 * Whether a decode engine could get the blocks, by the beginning of its answer. One that could not says so with a status
 * of 500, or in the first event of a stream, whose status was sent long before.
 *
 * @param head the first bytes of the body, `ended` when they are all
 * @returns `more` while the bytes do not tell
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
 * Whether an engine that was given a `cache_hit_threshold` goes on with the request, by the beginning of its answer.
 *
 * @param head the first bytes of the body, `ended` when they are all
 * @returns `more` while the bytes do not tell
 */
export function cacheVerdict(head: Buffer, isStream: boolean, ended: boolean): "pass" | "decline" | "more" {
  const text = head.toString("latin1");
  if (declined.test(text)) return "decline";
  if (ended || finished.test(text)) return "pass";
  // A single body comes when the answer is complete; of a stream, the first word decides.
  return isStream && content.test(text) ? "pass" : "more";
}
