import { createHash } from "node:crypto";
import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import { authenticate } from "../src/data-plane/data-plane-app.ts";
import { createStoredResponses } from "../src/data-plane/stored-responses.ts";
import { callerTraceparent, newTraceparent, readRequestId } from "../src/request/request-ids.ts";

const sha256 = (key: string): Buffer => createHash("sha256").update(key).digest();
const keys = [
  { name: "team-a", sha256: sha256("key-a") },
  { name: "team-b", sha256: sha256("key-b") },
];

test("a known key gives its name, from either header", () => {
  expect(authenticate(keys, { authorization: "Bearer key-a" })).toBe("team-a");
  expect(authenticate(keys, { authorization: "bearer  key-b" })).toBe("team-b");
  expect(authenticate(keys, { "x-api-key": "key-b" })).toBe("team-b");
  expect(authenticate([], {})).toBeUndefined();
});

test.each([
  [{}, "missing_api_key"],
  [{ authorization: "Basic a2V5" }, "missing_api_key"],
  [{ authorization: "key-a" }, "missing_api_key"],
  [{ authorization: "Bearer " }, "invalid_api_key"],
  [{ authorization: "Bearer key-" }, "invalid_api_key"],
  [{ authorization: "Bearer key-a2" }, "invalid_api_key"],
  [{ "x-api-key": "KEY-A" }, "invalid_api_key"],
])("%j is refused with %s", (headers, code) => {
  expect(() => authenticate(keys, headers)).toThrowError(expect.objectContaining({ code }));
});

test("a usable request id and traceparent are kept, others are replaced", () => {
  const random = createSeededRandom(1);
  const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  expect(readRequestId("abc-1", random)).toBe("abc-1");
  expect(callerTraceparent(traceparent)).toBe(traceparent);
  for (const bad of [undefined, "", "a b", "é", "x".repeat(129), "a\r\nset-cookie: x"]) {
    expect(readRequestId(bad, random)).toMatch(/^req-[0-9a-f]{24}$/);
  }
  for (const bad of [
    undefined,
    "00-0-0-00",
    `00-${"0".repeat(32)}-00f067aa0ba902b7-01`,
    `00-4bf92f3577b34da6a3ce929d0e0e4736-${"0".repeat(16)}-01`,
    "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  ]) {
    expect(callerTraceparent(bad)).toBeUndefined();
  }
  expect(newTraceparent(random)).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
});

test("made-up ids differ from request to request", () => {
  const random = createSeededRandom(9);
  const ids = new Set(Array.from({ length: 1_000 }, () => readRequestId(undefined, random)));
  expect(ids.size).toBe(1_000);
});

test("the holders of stored responses are bounded: the one used longest ago goes first", () => {
  const stored = createStoredResponses(3);
  for (const id of ["a", "b", "c"]) stored.remember(id, `engine-${id}`);
  expect(stored.holderOf("a")).toBe("engine-a");
  stored.remember("d", "engine-d");
  expect(stored.size).toBe(3);
  expect(stored.holderOf("b")).toBeUndefined();
  expect(stored.holderOf("a")).toBe("engine-a");
  stored.remember("a", "engine-x");
  expect(stored.holderOf("a")).toBe("engine-x");
  stored.forget("a");
  expect(stored.holderOf("a")).toBeUndefined();
});
