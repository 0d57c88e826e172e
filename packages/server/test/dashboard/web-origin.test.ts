import { expect, test } from "vitest";
import { hostOf, isLocalOrigin, maxOriginLength, readOrigin } from "../../src/admin/admin-access.ts";
import { contentPolicy } from "../../src/admin/dashboard.ts";

test.each([
  ["http://127.0.0.1:9090", "http://127.0.0.1:9090"],
  ["http://127.0.0.1:9090/", "http://127.0.0.1:9090"],
  ["HTTPS://Router-1.Example:443", "https://router-1.example"],
  ["http://[::1]:9090", "http://[::1]:9090"],
  ["http://router_1:80", "http://router_1"],
])("%s is the origin %s", (text, origin) => {
  expect(readOrigin(text)).toBe(origin);
});

test.each([
  "",
  "127.0.0.1:9090",
  "ftp://router:21",
  "http://router/dashboard",
  "http://router/?a=b",
  "http://router/#a",
  "http://user:word@router",
  "http://router; script-src *",
  "http://router' 'unsafe-inline",
  "http://router,http://other",
  "javascript:alert(1)",
  `http://${"a".repeat(maxOriginLength)}`,
])("%j is none", (text) => {
  expect(readOrigin(text)).toBeUndefined();
});

test.each([
  ["localhost:9090", "localhost", true],
  ["127.0.0.9", "127.0.0.9", true],
  ["[::1]:9090", "::1", true],
  ["http://router.example", "router.example", false],
  ["10.0.0.1:1", "10.0.0.1", false],
])("the host of %s is %s", (text, host, isLocal) => {
  expect(hostOf(text)).toBe(host);
  expect(isLocalOrigin(text)).toBe(isLocal);
});

test("what is no host has none", () => {
  expect([hostOf("a b"), hostOf("http://")]).toEqual([undefined, undefined]);
});

test("a page may load from its own listener only, and talk to that and to the other routers", () => {
  const rules = contentPolicy(["http://b:9090", "https://c"]).split("; ");
  expect(rules).toContain("default-src 'none'");
  expect(rules).toContain("script-src 'self'");
  expect(rules).toContain("connect-src 'self' http://b:9090 ws://b:9090 https://c wss://c");
  expect(rules.join()).not.toMatch(/unsafe|\*/);
});
