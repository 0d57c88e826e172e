import { expect, test } from "vitest";
import { readDurationMs, readEndpointUrl, readNumber, UsageError } from "../src/cli/read-flags.ts";

const port = { min: 0, max: 65_535, integer: true };

test.each([
  ["0", port, 0],
  ["65535", port, 65_535],
  ["0.5", { min: 0.001, max: 10_000 }, 0.5],
  ["1e3", { min: 0, max: 10_000 }, 1_000],
  ["10000", { min: 0, max: 10_000 }, 10_000],
])("number %j", (text, range, value) => {
  expect(readNumber(text, "--n", range)).toBe(value);
});

test.each([
  ["-1", port],
  ["65536", port],
  ["80.5", port],
  ["eighty", port],
  ["", port],
  [" ", port],
  ["NaN", { min: 0, max: 1 }],
  ["Infinity", { min: 0, max: 1e9 }],
  ["12s", port],
])("%j is no number of the range", (text, range) => {
  const kind = "integer" in range ? "a whole number" : "a number";
  expect(() => readNumber(text, "--n", range)).toThrow(
    new UsageError(`--n must be ${kind} from ${range.min} to ${range.max}, not ${JSON.stringify(text)}`),
  );
});

test.each([
  ["500ms", 500],
  ["3s", 3_000],
  ["1.5m", 90_000],
  ["2h", 7_200_000],
  ["0s", 0],
  ["576h", 576 * 3_600_000],
])("duration %j", (text, durationMs) => {
  expect(readDurationMs(text, "--duration")).toBe(durationMs);
});

test.each(["3", "s", "3 s", "-3s", "3d", "3S", "1e3s", "", "1.s"])("%j is no duration", (text) => {
  expect(() => readDurationMs(text, "--duration")).toThrow(
    new UsageError(`--duration must be a length of time such as 500ms, 30s or 2m, not ${JSON.stringify(text)}`),
  );
});

// Node's timers hold 31 bits of milliseconds; a longer delay fires at once.
test("a duration that no timer can hold is refused", () => {
  expect(readDurationMs("2147483647ms", "--duration")).toBe(2_147_483_647);
  expect(() => readDurationMs("2147483648ms", "--duration")).toThrow(UsageError);
  expect(() => readDurationMs("600h", "--duration")).toThrow(/at most 24 days/);
});

test.each([
  ["http://127.0.0.1:8000", "http://127.0.0.1:8000"],
  ["http://127.0.0.1:8000/", "http://127.0.0.1:8000"],
  ["http://engine", "http://engine"],
  ["http://[::1]:8000", "http://[::1]:8000"],
])("endpoint %j", (text, url) => {
  expect(readEndpointUrl(text, "--url")).toBe(url);
});

test.each(["nonsense", "127.0.0.1:8000", "https://a", "ftp://a", "http://a/v1", "http://a?b", "http://u:p@a", ""])(
  "%j is no endpoint",
  (text) => {
    expect(() => readEndpointUrl(text, "--url")).toThrow(UsageError);
    expect(() => readEndpointUrl(text, "--url")).toThrow(JSON.stringify(text));
  },
);
