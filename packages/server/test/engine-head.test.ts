import { createSeededRandom } from "@espalier/core";
import { expect, test } from "vitest";
import type { ClientRequest } from "../src/request/planned-request.ts";
import type { RouterContext } from "../src/router-context.ts";
import { engineHead } from "../src/serving/answer-request.ts";

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

interface Changes {
  readonly trustTransferFields?: boolean;
  readonly origins?: readonly string[];
  readonly forwardAuthorization?: boolean;
}

/** What engines get of these headers, without those that the router adds. */
function passed(rawHeaders: readonly string[], changes: Changes = {}): readonly string[] {
  const { trustTransferFields = false, origins = [], forwardAuthorization = false } = changes;
  const headers: Record<string, string> = {};
  for (let at = 0; at < rawHeaders.length; at += 2) headers[rawHeaders[at]!.toLowerCase()] = rawHeaders[at + 1]!;
  const context = { random: createSeededRandom(1), live: { current: { trustTransferFields, cors: { origins } } } };
  const request = { id: "r-1", headers, trace: undefined, raw: { rawHeaders, socket: { remoteAddress: "192.0.2.1" } } };
  const head = engineHead(context as unknown as RouterContext, request as unknown as ClientRequest, {
    forwardAuthorization,
  });
  const added = head.headers.slice(-6);
  const sent = headers.traceparent === traceparent ? traceparent : head.ownTraceparent;
  const address = [headers["x-forwarded-for"], "192.0.2.1"].filter((each) => each !== undefined).join(", ");
  expect(added).toEqual(["traceparent", sent, "x-forwarded-for", address, "x-request-id", "r-1"]);
  expect(head.ownTraceparent === undefined).toBe(headers.traceparent === traceparent);
  return head.headers.slice(0, -6);
}

test("headers that name ranks and engines are taken out with their values, however they are written, unless trusted", () => {
  const client = ["User-Agent", "x-prefiller-url", "Accept", "*/*"];
  const raw = [
    ...["X-Data-Parallel-Rank", "3", "X-Override-Bootstrap-Host", "h", "x-vllm-priority", "-9", ...client],
    ...["x-prefiller-host-port", "10.0.0.1:1", "x-prefiller-url", "h"],
  ];
  expect(passed(raw)).toEqual(client);
  expect(passed(raw, { trustTransferFields: true })).toEqual(raw);
});

test("a tracestate goes on only with a valid traceparent, and an origin only where the router answers no pages", () => {
  const raw = ["Tracestate", "a=1", "Origin", "http://page.example"];
  expect(passed(raw)).toEqual(["Origin", "http://page.example"]);
  expect(passed([...raw, "Traceparent", traceparent], { origins: ["*"] })).toEqual(["Tracestate", "a=1"]);
});

test("what any `connection` lists goes, and credentials unless they are to be forwarded", () => {
  const many = Array.from({ length: 3_000 }, (_, at) => `n${at}`).join(", ");
  const raw = ["X-One", "1", "Connection", "X-One, traceparent", "N7", "7", "connection", many, "Accept", "*/*"];
  expect(passed([...raw, "X-Api-Key", "k", "X-Forwarded-For", "10.0.0.1"])).toEqual(["Accept", "*/*"]);
  expect(passed(["X-Api-Key", "k"], { forwardAuthorization: true })).toEqual(["X-Api-Key", "k"]);
});
