import { type FuzzTarget, fuzzInFile } from "@espalier/testing";
import { expect, test } from "vitest";
import { readRequestId, readTraceparent } from "../src/data-plane/request-ids.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const targets: readonly FuzzTarget[] = [
  {
    name: "request id and traceparent",
    seeds: [utf8("abc-123"), utf8("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
    read(bytes, random) {
      const text = Buffer.from(bytes).toString("latin1");
      expect(readRequestId(text, random)).toMatch(/^[\x21-\x7e]{1,128}$/);
      expect(readTraceparent(text, random)).toMatch(/^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}/);
    },
  },
];

fuzzInFile(test, "whatever comes is read, or replaced", targets);
