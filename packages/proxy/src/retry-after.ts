/**
 * How long an engine asks to be left alone. Dates, which engines do not write, say nothing.
 *
 * @param headers name and value in turn
 * @returns milliseconds; undefined where it does not say
 */
export function retryAfterMs(headers: readonly (string | Buffer)[]): number | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    if (headers[i]!.length !== 11 || String(headers[i]!).toLowerCase() !== "retry-after") continue;
    const text = String(headers[i + 1]!).trim();
    return /^\d{1,9}$/.test(text) ? 1_000 * Number(text) : undefined;
  }
  return undefined;
}
