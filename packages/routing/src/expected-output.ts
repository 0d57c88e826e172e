/** What an answer is taken to be long when the client sets no bound, in tokens. */
export const usualOutputTokens = 256;

/**
 * How long the answers to a request are expected to be together, in tokens, by what a router knows when it comes: the
 * client's own bound, `max_tokens`, which few answers reach; else what is usual.
 *
 * @param request.choices answers wanted, 1 when left out
 */
export function expectedOutputTokens({
  maxOutputTokens = usualOutputTokens,
  choices = 1,
}: {
  readonly maxOutputTokens?: number | undefined;
  readonly choices?: number;
}): number {
  return maxOutputTokens * choices;
}
