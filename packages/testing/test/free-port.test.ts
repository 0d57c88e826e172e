import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { freePort } from "../src/test-environment.ts";

test("a port that another process has reserved or listens at is passed over", async () => {
  const first = await freePort();
  // As another process reserves the next one and listens at the one after, where one has not done so already.
  const reserved = createSocket("udp4").bind(first + 1, "127.0.0.1");
  const listening = createServer().listen(first + 2, "127.0.0.1");
  onTestFinished(() => {
    reserved.close();
    listening.close();
  });
  await Promise.allSettled([once(reserved, "listening"), once(listening, "listening")]);
  expect([first + 1, first + 2]).not.toContain(await freePort());
});
