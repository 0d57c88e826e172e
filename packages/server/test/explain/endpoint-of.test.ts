import { endpoints } from "@espalier/api";
import { EspalierError } from "@espalier/core";
import { expect, test } from "vitest";
import { endpointOf } from "../../src/admin/explain-request.ts";
import { largeBodyBytes } from "../../src/large-bodies/large-bodies.ts";
import { createBodyReader } from "../../src/large-bodies/read-large-body.ts";

/** Reads large bodies where it stands, and counts them. */
function countingReader() {
  const read = createBodyReader();
  let count = 0;
  return {
    count: () => count,
    async readFields(bytes: Buffer, names: readonly string[]): Promise<readonly string[]> {
      const found = await read({ bodyId: count++, bytes, job: { kind: "fields", names } });
      if (found.kind === "refused") throw new EspalierError(found.code, found.message);
      return found.kind === "fields" ? found.names : [];
    },
  };
}

const textOf = (text: string, named?: string, headers = {}, reader = countingReader()) =>
  endpointOf({ named, headers, body: Buffer.from(text) }, reader);
const guess = async (body: unknown, headers = {}) => (await textOf(JSON.stringify(body), undefined, headers)).id;
const named = (name: string) => textOf("no JSON", name);
const padding = "p".repeat(largeBodyBytes);

test.each([
  [{ messages: [] }, "chat"],
  [{ messages: [], system: "be kind" }, "messages"],
  [{ messages: [], prompt: "both" }, "chat"],
  [{ prompt: "hello" }, "completions"],
  [{ prompt_embeds: "AAAA" }, "completions"],
  [{ input: "hello" }, "responses"],
  [{ text: "hello" }, "generate"],
  [{ input_ids: [1] }, "generate"],
])("%j is for %s, small or large", async (body, id) => {
  expect(await guess(body)).toBe(id);
  expect(await guess({ padding, ...body })).toBe(id);
});

// A large body whose endpoint was not named was parsed on the event loop.
test("a body is read in a thread from one byte over the bound on", async () => {
  const reader = countingReader();
  const text = (bytes: number) => `{"prompt":"${"p".repeat(bytes - 13)}"}`;
  expect((await textOf(text(largeBodyBytes), undefined, {}, reader)).id).toBe("completions");
  expect(reader.count()).toBe(0);
  expect((await textOf(text(largeBodyBytes + 1), undefined, {}, reader)).id).toBe("completions");
  expect(reader.count()).toBe(1);
  await textOf(text(largeBodyBytes + 1), "chat", {}, reader);
  expect(reader.count()).toBe(1);
});

test("a client that names a version of Anthropic's API means its messages", async () => {
  expect(await guess({ messages: [] }, { "anthropic-version": "2023-06-01" })).toBe("messages");
});

test.each(["{}", "[]", '"messages"', "null", '{"model":"tiny"}', '{"__proto__":{"messages":[]}}'])(
  "%s does not tell, and neither does more of it",
  async (body) => {
    const unknown = { code: "invalid_value", param: "endpoint" };
    await expect(textOf(body)).rejects.toMatchObject(unknown);
    await expect(textOf(body + " ".repeat(largeBodyBytes))).rejects.toMatchObject(unknown);
  },
);

test("what is no JSON is refused as such", async () => {
  await expect(textOf("{")).rejects.toMatchObject({ code: "invalid_json" });
  await expect(textOf(`{"messages":[${" ".repeat(largeBodyBytes)}`)).rejects.toMatchObject({ code: "invalid_json" });
});

test("an endpoint that is named, by id or path, is taken whatever the body; names of none are refused", async () => {
  for (const { id, path } of endpoints) {
    expect((await named(id)).id).toBe(id);
    expect((await named(path)).path).toBe(path);
  }
  await expect(named("chta")).rejects.toMatchObject({
    code: "invalid_value",
    message: expect.stringContaining("expected one of chat, completions,"),
  });
  await expect(named("")).rejects.toMatchObject({ code: "invalid_value" });
});
