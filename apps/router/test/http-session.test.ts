import type { HttpClient } from "@espalier/common";
import { waitFor } from "@espalier/testing";
import { type VerifyCase, verifyTokenizer } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { withHttpClient } from "../src/commands/http-session.ts";
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
  const url = await temporaryServer(({ body, response }) => {
    if ((JSON.parse(body) as { prompt: string }).prompt !== "slow") response.end('{"tokens":[1,2]}');
  });
  const tokenizer = { encode: () => Uint32Array.of(1, 2) } as unknown as Parameters<
    typeof verifyTokenizer
  >[0]["tokenizer"];
  const cases: VerifyCase[] = ["quick", "slow", "quick again"].map((prompt) => ({ name: prompt, prompt }));
  const compare = (http: HttpClient) => verifyTokenizer({ tokenizer, http, url, model: "tiny", cases, timeoutMs: 60 });
  const rows = await withHttpClient(compare);
  expect(rows.map(({ ok, tokens }) => [ok, tokens])).toEqual([
    [true, 2],
    [false, 0],
    [true, 2],
  ]);
  expect(rows[1]!.error).toEqual(expect.any(String));
});
