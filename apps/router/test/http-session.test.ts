import { waitFor } from "@espalier/testing";
import { createTextTokenizer, loadTokenizerFiles, shippedModelFolder, verifyTokenizer } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { withHttpClient } from "../src/cli/admin-client.ts";
import { sendTokens, startFakeEngine } from "./fake-engine.ts";
import { temporaryServer } from "./temporary.ts";

const limits = { timeoutMs: 5_000, maxBytes: 1_000 };

/** A server that says how many connections to it are open. */
async function countingServer(body = "fine") {
  let open = 0;
  const seen = new WeakSet<object>();
  const url = await temporaryServer(({ response }) => {
    const { socket } = response;
    if (socket && !seen.has(socket)) {
      seen.add(socket);
      open++;
      socket.on("close", () => open--);
    }
    response.end(body);
  });
  return { url, open: () => open };
}

test("requests of a session are answered, and its connections are closed at the end", async () => {
  const { url, open } = await countingServer();
  const answers = await withHttpClient(async (http) => {
    const both = [await http({ url, ...limits }), await http({ url: `${url}/again`, ...limits })];
    expect(open()).toBeGreaterThan(0);
    return both;
  });
  expect(answers.map(({ status, body }) => [status, body])).toEqual([
    [200, "fine"],
    [200, "fine"],
  ]);
  await waitFor(() => open() === 0, { what: "end of the connections" });
});

test("what is thrown inside comes out, and the connections are closed all the same", async () => {
  const { url, open } = await countingServer();
  const failing = withHttpClient(async (http) => {
    await http({ url, ...limits });
    throw new RangeError("of the caller");
  });
  await expect(failing).rejects.toThrow(new RangeError("of the caller"));
  await waitFor(() => open() === 0, { what: "end of the connections" });
});

test("sessions do not share anything: one that ends leaves another its connection", async () => {
  const { url } = await countingServer();
  const result = await withHttpClient(async (outer) => {
    await outer({ url, ...limits });
    await withHttpClient((inner) => inner({ url, ...limits }));
    return outer({ url, ...limits });
  });
  expect(result.status).toBe(200);
});

test("an answer may be as long as is allowed, and not a byte longer", async () => {
  const { url } = await countingServer("x".repeat(1_001));
  const ask = (maxBytes: number) => withHttpClient((http) => http({ url, timeoutMs: 5_000, maxBytes }));
  expect((await ask(1_001)).body).toHaveLength(1_001);
  await expect(ask(1_000)).rejects.toThrow();
});

test("an engine that does not answer one prompt in time: the row says so, the next is compared", async () => {
  const { url } = await startFakeEngine({
    answer({ request, tokens, response }) {
      if (request.prompt !== "slow") sendTokens(response, tokens);
    },
  });
  const tokenizer = createTextTokenizer(await loadTokenizerFiles(shippedModelFolder()));
  const cases = ["quick", "slow", "quick again"].map((prompt) => ({ name: prompt, prompt }));
  const rows = await withHttpClient((http) =>
    verifyTokenizer({ tokenizer, http, url, model: "tiny", cases, timeoutMs: 400 }),
  );
  expect(rows.map((row) => [row.case, row.ok])).toEqual([
    ["quick", true],
    ["slow", false],
    ["quick again", true],
  ]);
  expect(rows[1]).toMatchObject({ tokens: 0, error: expect.any(String) });
});
