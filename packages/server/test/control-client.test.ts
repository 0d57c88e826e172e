import type { HttpRequest } from "@espalier/core";
import { expect, test } from "vitest";
import { loadConfig } from "../src/config/index.ts";
import { createControlClient } from "../src/create-context.ts";

async function headersSent(pools: string): Promise<Readonly<Record<string, string>> | undefined> {
  const seen: HttpRequest[] = [];
  const config = loadConfig({ file: { path: "espalier.yaml", text: `pools: ${pools}` } });
  const client = createControlClient(async (request) => {
    seen.push(request);
    return { status: 200, headers: {}, body: "" };
  }, config);
  await client({ url: "http://engine/v1/models", timeoutMs: 1, maxBytes: 1 });
  return seen[0]?.headers;
}

test.each([
  ["[]", undefined],
  ['[{ models: ["a"] }]', undefined],
  ['[{ models: ["a"], engine-api-key: one }]', { authorization: "Bearer one" }],
  [
    '[{ models: ["a"], engine-api-key: one }, { models: ["b"], engine-api-key: one }, { models: ["c"] }]',
    { authorization: "Bearer one" },
  ],
  ['[{ models: ["a"], engine-api-key: one }, { models: ["b"], engine-api-key: two }]', undefined],
])("with pools %s control requests carry %j", async (pools, headers) => {
  expect(await headersSent(pools)).toEqual(headers);
});
