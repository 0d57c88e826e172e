import { waitFor } from "@espalier/testing";
import { expect, onTestFinished } from "vitest";
import { type OpenRequest, openPost } from "../integration/client.ts";
import type { RouterProcess } from "./router-process.ts";

/** Opens streams through a router that go on for longer than any test, and waits until they have begun. */
export async function openStreams(
  router: RouterProcess,
  count: number,
  tokens = 30_000,
): Promise<readonly OpenRequest[]> {
  const streams = Array.from({ length: count }, (_, index) =>
    openPost(`${router.url}/v1/chat/completions`, {
      model: "tiny",
      messages: [{ role: "user", content: `Stream ${index} of ${router.id}` }],
      max_tokens: tokens,
      stream: true,
    }),
  );
  onTestFinished(() => {
    for (const stream of streams) stream.destroy();
  });
  for (const { head } of streams) expect((await head).statusCode).toBe(200);
  for (const stream of streams) await waitFor(() => stream.received() !== "", { what: "first bytes of a stream" });
  return streams;
}
