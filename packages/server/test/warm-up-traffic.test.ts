import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Worker } from "node:worker_threads";
import { programUrl } from "@espalier/core";
import { expect, onTestFinished, test } from "vitest";

/** A warm-up ends without a word when its thread fails, and nothing else shows that it did nothing. */
test("the thread of a warm-up sends its 400 requests to the router and ends", async () => {
  const seen = { requests: 0, streams: 0 };
  const router = createServer((request, response) => {
    let body = "";
    request.setEncoding("latin1").on("data", (more: string) => {
      body += more;
    });
    request.on("end", () => {
      seen.requests += 1;
      const isStreamed = (JSON.parse(body) as { stream: boolean }).stream;
      if (isStreamed) seen.streams += 1;
      // One is sent in chunks, the other with its length.
      if (isStreamed) response.write("data: [DONE]\n\n");
      response.end(isStreamed ? undefined : "{}");
    });
  });
  await once(router.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => void router.close());
  const thread = new Worker(programUrl("../src/warm-up-traffic", import.meta.url));
  onTestFinished(() => void thread.terminate());
  const [engines] = (await once(thread, "message")) as [readonly string[]];
  expect(engines).toHaveLength(4);
  thread.postMessage((router.address() as AddressInfo).port);
  expect(await once(thread, "exit")).toEqual([0]);
  expect(seen).toEqual({ requests: 400, streams: 200 });
});
