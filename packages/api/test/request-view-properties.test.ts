import { isUtf8 } from "node:buffer";
import { randomRuns } from "@espalier/testing";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { endpoints, readRequestView } from "../src/index.ts";
import {
  bytesOf,
  captured,
  capturedRequests,
  chat,
  endpointAt,
  errorOf,
  limits,
  smallChat,
  viewOf,
} from "./helpers.ts";

/** JSON text of any value, with white space and escapes that JSON.stringify would not use. */
const jsonText = fc
  .tuple(fc.jsonValue({ maxDepth: 4, stringUnit: "binary" }), fc.constantFrom(undefined, 1, "\t", "\r\n "))
  .map(([value, space]) => JSON.stringify(value, undefined, space as string));

/** A chat body with any other fields about it; keys that are refused for good reason are left out. */
const chatBody = fc.dictionary(fc.string({ unit: "binary", maxLength: 12 }), jsonText, { maxKeys: 8 }).map((others) => {
  const read = ["model", "messages", "stream", "stream_options", "max_tokens", "n", "user", "priority", "__proto__"];
  const members = Object.entries(others)
    .filter(([key, text]) => !read.includes(key) && !text.includes('"__proto__"'))
    .map(([key, text]) => `${JSON.stringify(key)} : ${text}`);
  return `{${[...members, '"model":"m"', '"messages":[{}]'].join(" ,")}}`;
});

test("whatever is said besides the fields that are read, the body is accepted and its spans are its values", () => {
  fc.assert(
    fc.property(chatBody, (text) => {
      const body = bytesOf(text);
      const view = readRequestView(chat, body, limits);
      const parsed = JSON.parse(body.toString("utf8")) as Record<string, unknown>;
      expect(view.body.fields).toEqual(parsed);
      expect(new Set(view.spans.keys())).toEqual(new Set(Object.keys(parsed)));
      for (const [key, { start, end }] of view.spans) {
        const value = body.toString("utf8", start, end);
        expect(value).toBe(value.trim());
        expect(JSON.parse(value)).toEqual(parsed[key]);
      }
    }),
  );
});

test("a body is refused as malformed exactly when JSON.parse refuses it", () => {
  const pieces = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "a",
    "1",
    "-",
    ".",
    "e",
    " ",
    "\n",
    "true",
    "null",
    "\\u00",
    "é",
  ];
  const soup = fc.array(fc.constantFrom(...pieces), { maxLength: 12 }).map((parts) => parts.join(""));
  fc.assert(
    fc.property(
      fc.oneof(
        soup,
        soup.map((text) => `{"a":${text}}`),
        soup.map((text) => `{"a":"${text}"}`),
      ),
      (text) => {
        let valid = true;
        try {
          JSON.parse(text);
        } catch {
          valid = false;
        }
        const error = errorOf(() => viewOf(chat, text));
        expect(error.code === "invalid_json").toBe(!valid);
      },
    ),
    { numRuns: randomRuns(2_000) },
  );
});

test("a control character between tokens or in a string is found where it stands", () => {
  fc.assert(
    fc.property(chatBody, fc.nat(), (text, seed) => {
      const at = seed % (text.length + 1);
      const before = text.slice(0, at);
      // Inside a number, a literal or an escape, the error is the token's and stands elsewhere.
      fc.pre(/[\s{}[\],:"]$/.test(before) || before === "");
      fc.pre(!/\\$/.test(before) && !/\\u[0-9a-f]{0,3}"?$/.test(before));
      fc.pre(!isSurrogateSplit(text, at));
      const error = errorOf(() => viewOf(chat, `${before}\u0001${text.slice(at)}`));
      expect(error.code).toBe("invalid_json");
      expect(error.message).toContain(`at byte ${Buffer.byteLength(before)}.`);
    }),
  );
});

function isSurrogateSplit(text: string, at: number): boolean {
  return at > 0 && /[\ud800-\udbff]/.test(text[at - 1] ?? "");
}

test("bytes changed at random give a view or a catalogue error of status 400, at every endpoint", () => {
  const body = bytesOf({ ...smallChat, stream: true, stream_options: { include_usage: true }, prompt: "Grüße", n: 1 });
  const change = fc.tuple(fc.nat(body.length - 1), fc.nat(255));
  fc.assert(
    fc.property(
      fc.array(change, { minLength: 1, maxLength: 4 }),
      fc.constantFrom(...endpoints),
      (changes, endpoint) => {
        const mutated = Buffer.from(body);
        for (const [at, byte] of changes) mutated[at] = byte;
        try {
          readRequestView(endpoint, mutated, limits);
        } catch (error) {
          expect(error).toMatchObject({ name: "EspalierError", kind: { status: 400 } });
        }
      },
    ),
    { numRuns: randomRuns(1_000) },
  );
});

test("arbitrary bytes give an error of status 400", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      expect(errorOf(() => viewOf(chat, Buffer.from(bytes))).kind.status).toBe(400);
    }),
  );
});

test("every prefix of a body is refused as malformed, and ends too early", () => {
  const body = bytesOf({ ...smallChat, stream: true, temperature: 0.5, tools: [{ a: { b: null } }], user: 'q"\\' });
  for (let length = 0; length < body.length; length++) {
    const error = errorOf(() => viewOf(chat, body.subarray(0, length)));
    expect(error.code).toBe("invalid_json");
  }
});

describe.skipIf(captured.length === 0)("captured requests", () => {
  test("there are some of each of the three engines' APIs", () => {
    expect(new Set(capturedRequests.map(({ path }) => path))).toEqual(
      new Set(["/v1/chat/completions", "/v1/completions", "/generate"]),
    );
    expect(capturedRequests.length).toBeGreaterThan(300);
  });

  test("each is read as what it is, and its spans are its values", () => {
    for (const { path, request } of capturedRequests) {
      const body = bytesOf(request);
      const view = readRequestView(endpointAt(path), body, limits);
      expect(view.body.fields).toEqual(request);
      expect(view.model).toBe(request?.model);
      expect(view.stream).toBe(request?.stream === true);
      expect(view.canAddUsage).toBe(
        endpointAt(path).usageInjectable && view.stream && request?.stream_options === undefined,
      );
      expect(view.unreadPrompt).toBeUndefined();
      expect(view.choices).toBe(request?.n ?? 1);
      const sampling = request?.sampling_params as { max_new_tokens: number } | undefined;
      expect(view.maxOutputTokens).toBe(sampling ? sampling.max_new_tokens : request?.max_tokens);
      expect(view.bodySession.session_id).toBe(request?.session_id);
      for (const [key, { start, end }] of view.spans) {
        expect(body.toString("utf8", start, end)).toBe(JSON.stringify(request?.[key]));
      }
    }
  });

  test("the size of a prompt is that of its texts, or four bytes for each token id", () => {
    for (const { path, request } of capturedRequests) {
      const ids = (request?.input_ids ?? request?.prompt) as unknown;
      const messages = request?.messages as readonly { content: string }[] | undefined;
      const tools = request?.tools === undefined ? "" : JSON.stringify(request.tools);
      let expected = Buffer.byteLength(tools);
      if (Array.isArray(ids)) expected = 4 * ids.length;
      else if (typeof ids === "string") expected = Buffer.byteLength(ids);
      for (const { content } of messages ?? []) expected += Buffer.byteLength(content);
      expect(viewOf(endpointAt(path), request).promptBytes).toBe(expected);
    }
  });

  test("each is refused when it is cut anywhere in its second half", () => {
    for (const { path, request } of capturedRequests.slice(0, 20)) {
      const body = bytesOf(request);
      const step = Math.ceil(body.length / 40);
      for (let length = body.length >> 1; length < body.length; length += step) {
        // A cut inside a character is found first.
        const code = isUtf8(body.subarray(0, length)) ? "invalid_json" : "invalid_utf8";
        expect(errorOf(() => viewOf(endpointAt(path), body.subarray(0, length))).code).toBe(code);
      }
    }
  });
});
