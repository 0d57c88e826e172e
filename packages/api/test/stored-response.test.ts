import { describe, expect, test } from "vitest";
import { parseStoredResponsePath, readResponseId } from "../src/index.ts";

describe("parseStoredResponsePath", () => {
  test.each([
    ["/v1/responses/resp_123", "resp_123", undefined],
    ["/v1/responses/resp_123/cancel", "resp_123", "cancel"],
    ["/v1/responses/resp_123/input_items", "resp_123", "input_items"],
    ["/v1/responses/resp_123?stream=true", "resp_123", undefined],
    ["/v1/responses/resp_123/cancel?x=/y", "resp_123", "cancel"],
    ["/v1/responses/a-b.c~d_E9", "a-b.c~d_E9", undefined],
    [`/v1/responses/${"r".repeat(256)}`, "r".repeat(256), undefined],
  ])("%s", (path, id, action) => {
    expect(parseStoredResponsePath(path)).toEqual({ id, action });
  });

  test.each([
    "/v1/responses",
    "/v1/responses/",
    "/v1/responses//cancel",
    "/v1/responses/?x=1",
    "/v1/responses/..",
    "/v1/responses/../models",
    "/v1/responses/.hidden",
    "/v1/responses/a/b/c",
    "/v1/responses/a/",
    "/v1/responses/a/Cancel",
    "/v1/responses/a%2fb",
    "/v1/responses/a b",
    "/v1/responses/a#b",
    "/v1/responses/a\r\nx: y",
    "/v1/responses/é",
    "/v1/responsesx/a",
    "/x/v1/responses/a",
    `/v1/responses/${"r".repeat(257)}`,
    `/v1/responses/a/${"c".repeat(33)}`,
  ])("not %j", (path) => {
    expect(parseStoredResponsePath(path)).toBeUndefined();
  });
});

describe("readResponseId", () => {
  const created = { type: "response.created", sequence_number: 0, response: { id: "resp_1", output: [{ id: "x" }] } };
  test.each([
    ["a body", '{"id":"resp_1","object":"response"}'],
    ["a body with white space", ' {\n  "id" : "resp_1" ,\n  "object": "response"}'],
    [
      "a body with the id later, and others deeper",
      '{"output":[{"id":"msg_1"}],"text":"\\"id\\":\\"no\\"","id":"resp_1"}',
    ],
    ["a body that is cut behind the id", '{"id":"resp_1","output":[{"id":"msg_'],
    ["the first event", `event: response.created\ndata: ${JSON.stringify(created)}\n\n`],
    ["the first event in CR LF", `event: response.created\r\ndata: ${JSON.stringify(created)}\r\n\r\n`],
    ["an event without a name", `data: ${JSON.stringify(created)}\n\n`],
    ["an event without a space", `data:${JSON.stringify(created)}\n\n`],
    ["an event that is cut behind the id", `data: ${JSON.stringify(created)}`.slice(0, -20)],
    ["an event behind a comment", `: hello\n\nevent: response.created\ndata: ${JSON.stringify(created)}\n\n`],
    [
      "an event with the response first",
      'data: {"response":{"object":"response","id":"resp_1"},"type":"response.created"}',
    ],
  ])("%s", (_, head) => {
    expect(readResponseId(Buffer.from(head))).toBe("resp_1");
  });

  test.each([
    ["nothing", ""],
    ["no JSON", "Internal Server Error"],
    ["an error", '{"error":{"message":"no","id":"x"}}'],
    ["an id that is no string", '{"id":17}'],
    ["an id that is no string, with one behind it", '{"id":17,"x":"resp_1"}'],
    ["an empty id", '{"id":""}'],
    ["an id with an escape", '{"id":"a\\"b"}'],
    ["an id that is cut", '{"id":"resp_'],
    ["a key that is cut", '{"id'],
    ["a value that has not come", '{"id":'],
    ["an array", '["id","resp_1"]'],
    ["an event without a response", 'data: {"id":"resp_1"}\n\n'],
    ["an event whose response is no object", 'data: {"response":"resp_1"}\n\n'],
    ["the end of a stream", "data: [DONE]\n\n"],
    ["an event line alone", "event: response.created\n"],
    ["deep nesting", "[".repeat(4_000)],
    ["nested objects", '{"a":'.repeat(800)],
  ])("undefined for %s", (_, head) => {
    expect(readResponseId(Buffer.from(head))).toBeUndefined();
  });

  test("every prefix gives the whole id or none", () => {
    for (const head of ['{"object":"response","id":"resp_1","x":1}', `data: ${JSON.stringify(created)}\n\n`]) {
      const bytes = Buffer.from(head);
      for (let length = 0; length <= bytes.length; length++) {
        const complete = head.slice(0, length).includes('"resp_1"');
        expect(readResponseId(bytes.subarray(0, length))).toBe(complete ? "resp_1" : undefined);
      }
    }
  });

  test("an id of 256 characters is read, one more is not", () => {
    expect(readResponseId(Buffer.from(`{"id":"${"r".repeat(256)}"}`))).toBe("r".repeat(256));
    expect(readResponseId(Buffer.from(`{"id":"${"r".repeat(257)}"}`))).toBeUndefined();
  });

  test("the id must end within the first 4,096 bytes", () => {
    const head = (padding: number) => Buffer.from(`{"x":"${"-".repeat(padding)}","id":"r"}`);
    const fits = 4_096 - '{"x":"","id":"r"'.length;
    expect(readResponseId(head(fits))).toBe("r");
    expect(readResponseId(head(fits + 1))).toBeUndefined();
  });

  test("text of several bytes a character does not shift the id", () => {
    expect(readResponseId(Buffer.from('{"x":"žluť 世界","id":"resp_1"}'))).toBe("resp_1");
  });
});
