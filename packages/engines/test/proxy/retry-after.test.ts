import { expect, test } from "vitest";
import { retryAfterMs } from "../../src/proxy/index.ts";

test.each<readonly [readonly string[], number | undefined]>([
  [["Retry-After", "3"], 3_000],
  [["content-type", "x", "retry-after", " 0 "], 0],
  [["retry-after", "999999999"], 999_999_999_000],
  [["retry-after", "9999999999"], undefined],
  [["retry-after", "-1"], undefined],
  [["retry-after", "1.5"], undefined],
  [["retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"], undefined],
  [["x-retry-after", "3"], undefined],
  [["retry-begin", "3"], undefined],
  [["retry-after"], undefined],
  [[], undefined],
])("%j asks for %d ms", (headers, pauseMs) => {
  expect(retryAfterMs(headers)).toBe(pauseMs);
  expect(retryAfterMs(headers.map((text) => Buffer.from(text, "latin1")))).toBe(pauseMs);
});
