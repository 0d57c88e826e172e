import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** The same engine under a path, as behind a gateway. */
async function under(sim: Sim, path: string): Promise<{ readonly url: string }> {
  const server = createServer((incoming, outgoing) => {
    const { url = "", method = "", headers } = incoming;
    const onward = request(`${sim.url}${url.slice(path.length)}`, { method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  rig.own(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}` };
}

// Symptom: every request to such an engine was answered 500. Its id was the URL, however long, and what is shared of loads
// and drains names engines with 255 bytes at most: more threw where the request was counted.
test("an engine whose URL has a long path is used like any other", async () => {
  const [sim] = await publishingSims(rig, 1);
  const engines = await Promise.all(["a", "b"].map((end) => under(sim!, `/${"p".repeat(1_900)}${end}`)));
  const routers = await meshRouters(rig, 2, engines);
  const ids = (await routers[0]!.engines()).map(({ id }) => id);
  expect(new Set(ids).size).toBe(2);
  expect(ids.map((id) => id.length)).toEqual([128, 128]);
  for (const router of routers) {
    for (let turn = 0; turn < 2; turn++) {
      const answer = await ask(router, "/v1/completions", { prompt: tokensOf(1, 100), max_tokens: 1 });
      expect(answer.status).toBe(200);
      expect(ids).toContain(answer.engine);
    }
  }
});
