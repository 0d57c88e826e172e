import { EspalierError } from "@espalier/core";
import { type FuzzTarget, fuzzInFile, seedsInHex } from "@espalier/testing";
import { expect, test } from "vitest";
import { readAdminNote, writeAdminNote } from "../src/admin/admin-peers.ts";
import { readForwardedBody } from "../src/large-bodies/read-forwarded-body.ts";
import { maxSections, readRelease, writeRelease } from "../src/mesh/fleet-watch.ts";
import { readSpendNote, writeSpendNote } from "../src/overflow/overflow-spend.ts";
import { callerTraceparent, newTraceparent, readRequestId } from "../src/request/request-ids.ts";

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

const forwarded = (contentType: string, body: string): FuzzTarget => ({
  name: `body of a forwarded path, ${contentType}`,
  seeds: [utf8(body)],
  read: (bytes) => readForwardedBody(Buffer.from(bytes), { contentType, trustsTransferFields: false }),
  refuses: (thrown) => thrown instanceof EspalierError,
});

const field = (name: string, value: string) =>
  `--b\r\nContent-Disposition: form-data; name="${name}"; filename="a"\r\n\r\n${value}\r\n`;

const ofClients: readonly FuzzTarget[] = [
  forwarded("application/json", '{"model":"m","vllm_xargs":{"a":[1,null]},"x":"\\u0061"}'),
  forwarded("multipart/form-data; boundary=b", `${field("model", "m")}${field("vllm_xargs", '{"a":1}')}--b--\r\n`),
  forwarded("application/x-www-form-urlencoded", "model=m%2Fn&vllm_xargs=%7B%22a%22%3A1%7D&x"),
  {
    name: "request id and traceparent",
    seeds: [utf8("abc-123"), utf8("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")],
    read(bytes, random) {
      const text = Buffer.from(bytes).toString("latin1");
      expect(readRequestId(text, random)).toMatch(/^[\x21-\x7e]{1,128}$/);
      expect(callerTraceparent(text) ?? newTraceparent(random)).toMatch(
        /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}/,
      );
    },
  },
];

const notes: readonly FuzzTarget[] = [
  {
    name: "note on what was spent",
    seeds: [writeSpendNote([{ backend: "openai", hourNumber: 491_000, hour: 1.5, dayNumber: 20_458, day: 7 }])],
    read(bytes) {
      for (const { hour, day } of readSpendNote(bytes)) {
        expect(Math.min(hour, day)).toBeGreaterThanOrEqual(0);
        expect(Math.max(hour, day)).toBeLessThanOrEqual(1e12);
      }
    },
  },
  {
    name: "note on the admin listener",
    seeds: [writeAdminNote("http://10.0.0.1:9090")],
    read: (bytes) => expect(new URL(readAdminNote(bytes) ?? "http://none").protocol).toMatch(/^https?:$/),
  },
  {
    name: "note on the release",
    seeds: [writeRelease({ version: "1.2.3", settings: new Map([["mesh", "0a1b2c3d"]]) })],
    read: (bytes) => expect(readRelease(bytes)?.settings.size ?? 0).toBeLessThanOrEqual(maxSections),
  },
];

fuzzInFile(test, "whatever comes is read, refused or replaced", [...ofClients, ...notes]);

test("encoders write the bytes that routers in the field read", async () => {
  await expect(seedsInHex(notes)).toMatchFileSnapshot("golden/notes.txt");
});
