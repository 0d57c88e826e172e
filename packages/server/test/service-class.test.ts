import { loadConfig } from "@espalier/config";
import { expect, test } from "vitest";
import { readServiceClass } from "../src/routing/service-class.ts";

const tenantOf = (admission: object, apiKey: string | undefined, headers: Record<string, string>): string => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission });
  const { admission: config } = loadConfig({ file: { path: "router.yaml", text } });
  return readServiceClass(config, headers, { bodyPriority: undefined, apiKey }).tenant;
};

// Whoever had a key could take another tenant's share, or have one for each request, by naming a tenant in a header.
test.each(["x-espalier-tenant", "x-llm-d-inference-fairness-id"])(
  "%s names a tenant where there are no keys, and where it is trusted; else the key does",
  (name) => {
    const headers = { [name]: "theirs" };
    expect(tenantOf({}, undefined, headers)).toBe("theirs");
    expect(tenantOf({}, "own", headers)).toBe("own");
    expect(tenantOf({ "trust-tenant-header": true }, "own", headers)).toBe("theirs");
    expect(tenantOf({ "trust-tenant-header": true }, "own", {})).toBe("own");
  },
);

const classOf = (admission: object, bodyPriority: number | undefined, headers: Record<string, string> = {}) => {
  const text = JSON.stringify({ engines: ["http://127.0.0.1:9"], admission });
  const { admission: config } = loadConfig({ file: { path: "router.yaml", text } });
  return readServiceClass(config, headers, { bodyPriority, apiKey: undefined }).className;
};

const threeClasses = { classes: ["now", "soon", "later"].map((name) => ({ name })), "default-class": "soon" };
const lastByDefault = { ...threeClasses, "default-class": "later" };

test.each([
  ["lower-first", threeClasses, -1, "now"],
  ["lower-first", threeClasses, 1, "later"],
  ["higher-first", threeClasses, 1, "now"],
  ["higher-first", threeClasses, -1, "later"],
  ["lower-first", threeClasses, 0, undefined],
  ["lower-first", threeClasses, undefined, undefined],
  ["off", threeClasses, -1, undefined],
  ["lower-first", lastByDefault, 1, undefined],
])("a body's priority, %s, in %j: %s is class %s", (direction, classes, priority, expected) => {
  expect(classOf({ ...classes, "body-priority": direction }, priority)).toBe(expected);
});

test("a header outranks a body's priority", () => {
  const admission = { ...threeClasses, "body-priority": "lower-first" };
  expect(classOf(admission, -1, { "x-espalier-priority": "later" })).toBe("later");
});
