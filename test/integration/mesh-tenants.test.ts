import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { chat, openPost } from "./client.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { meshRouters } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** One prompt at a time at an engine, so that the second one waits. */
const classes = [{ name: "default", "max-pending-tokens": 1 }];
const usage = { prompt_tokens: 8, completion_tokens: 2, total_tokens: 10 };

/** Two routers before one engine that answers when it is told to. */
async function twoRouters() {
  const open: SeenRequest[] = [];
  const engine = await httpEngine(rig, (request) => open.push(request));
  const routers = await meshRouters(rig, 2, [engine], {
    tokenizes: false,
    config: { policy: "least_work", admission: { classes, "default-class": "default" } },
  });
  const place = async (router: RunningRouter): Promise<number> =>
    engine.requests.length + (await router.metrics()).sum("espalier_admission_queued_requests");
  return {
    routers,
    names: () => engine.requests.map(({ headers }) => String(headers["x-name"])),
    answer() {
      for (const { response } of open.splice(0)) {
        response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ usage }));
      }
    },
    /** Sends a request of a tenant, and waits until it is at the engine or in the queue. */
    async send(router: RunningRouter, tenant: string, { name = tenant, words = 400 } = {}): Promise<void> {
      const before = await place(router);
      const body = chat({ messages: [{ role: "user", content: `${name} ${"word ".repeat(words)}` }] });
      openPost(`${router.url}/v1/chat/completions`, body, { "x-espalier-tenant": tenant, "x-name": name });
      await waitFor(async () => (await place(router)) > before, { what: `${name} in its place` });
    },
  };
}

test("what one router has served to a tenant counts at another one: the tenant waits there until others had as much", async () => {
  const { routers, names, answer, send } = await twoRouters();
  const [one, other] = [routers[0]!, routers[1]!];
  await send(one, "a", { name: "a-elsewhere", words: 8_000 });
  answer();
  await one.untilIdle();
  const known = async (): Promise<number> => (await other.metrics()).sum("espalier_usage_known_tenants");
  await waitFor(async () => (await known()) === 1, { what: "usage of the first router at the second" });

  await send(other, "c");
  await send(other, "b", { name: "b1" });
  await send(other, "b", { name: "b2" });
  await send(other, "a", { name: "a1" });
  await waitFor(
    () => {
      answer();
      return names().length === 5;
    },
    { what: "all requests at the engine" },
  );
  // Alone the router would have given each of them a turn: b1, a1, b2.
  expect(names()).toEqual(["a-elsewhere", "c", "b1", "b2", "a1"]);
  answer();
});
