import { expect } from "vitest";
import type { JsonBody } from "../../src/json-body/index.ts";

/** A value as the nodes of a body tell of it: walked node by node, with nothing of it parsed at once. */
function valueByNodes(body: JsonBody, node = 0): unknown {
  const behind = body.after(node);
  switch (body.kindOf(node)) {
    case "object": {
      const members: [string, unknown][] = [];
      for (let key = node + 1; key < behind; key = body.after(key + 1)) {
        members.push([body.textOf(key), valueByNodes(body, key + 1)]);
      }
      return Object.fromEntries(members);
    }
    case "array": {
      const entries: unknown[] = [];
      for (let entry = node + 1; entry < behind; entry = body.after(entry)) entries.push(valueByNodes(body, entry));
      return entries;
    }
    default:
      return body.valueAt(node);
  }
}

/** Checks that nothing of a body tells of another value than `JSON.parse` of its bytes. */
export function expectSame(body: JsonBody): void {
  const text = body.bytes.toString("utf8");
  const parsed: unknown = JSON.parse(text);
  expect(valueByNodes(body)).toEqual(parsed);
  expect(body.fields).toEqual(parsed);
  const last = body.after(0);
  for (let node = 0; node < last; node++) {
    const value: unknown = JSON.parse(body.bytes.toString("utf8", body.startOf(node), body.endOf(node)));
    expect(body.valueAt(node)).toEqual(value);
    if (typeof value !== "string") continue;
    expect(body.textOf(node)).toBe(value);
    expect(body.textBytes(node)).toBe(Buffer.byteLength(value));
    expect(Buffer.from(body.join([node])).equals(Buffer.from(value, "utf8"))).toBe(true);
  }
}
