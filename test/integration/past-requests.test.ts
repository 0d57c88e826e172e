import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { publishingSims, quietSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { chat, type Json, openPost, post } from "./client.ts";
import { ask as askPair, longChat, pairRouter, pairSims } from "./disaggregation-rig.ts";
import { httpEngine, type SeenRequest } from "./engines.ts";
import { meshRouters, untilFolded, untilQuiet, untilRead, untilSpread } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

interface Past {
  readonly requestId: string;
  readonly router: string | null;
  readonly decisions: readonly {
    readonly summary: string;
    readonly target: string;
    readonly attempt: number;
    readonly candidates: readonly Json[];
    readonly excluded: readonly Json[];
  }[];
}

async function pastOf(router: RunningRouter, id: string): Promise<Past> {
  const { status, json, text } = await router.admin("GET", `/admin/requests/${encodeURIComponent(id)}`);
  expect([status, text]).toEqual([200, text]);
  return json as unknown as Past;
}

const refusal = async (router: RunningRouter, id: string): Promise<readonly unknown[]> => {
  const { status, json } = await router.admin("GET", `/admin/requests/${encodeURIComponent(id)}`);
  return [status, (json.error as Json).code];
};

test("any router of a mesh says why a request went where it went, by its id", async () => {
  const sims = await publishingSims(rig, 2);
  const routers = await meshRouters(rig, 2, sims, { config: { policy: "predicted_latency" } });
  await untilRead(routers, 2);
  const [one, other] = [routers[0]!, routers[1]!];
  const prompt = tokensOf(1, 400);
  const first = await ask(one, "/v1/completions", { prompt, max_tokens: 1 }, { "x-request-id": "first" });
  await untilFolded(routers, sims);
  await untilSpread(routers, 1);
  for (const router of routers) await untilQuiet(router);
  const second = await ask(one, "/v1/completions", { prompt, max_tokens: 1 }, { "x-request-id": "second/of?two%" });
  expect(second.engine).toBe(first.engine);
  const loser = sims.find(({ id }) => id !== second.engine)!.id;

  const past = await pastOf(other, "second/of?two%");
  expect(past).toEqual(await pastOf(one, "second/of?two%"));
  expect(past).toMatchObject({ requestId: "second/of?two%", router: "router-0" });
  expect(past.decisions).toHaveLength(1);
  const [decision] = past.decisions;
  expect(decision).toMatchObject({
    ...{ endpoint: "completions", model: "tiny", policy: "predicted_latency", target: second.engine, attempt: 1 },
    ...{ promptTokens: 400, matchedTokens: 384, comparedCount: 2, queuedMs: 0, prefillEngine: null },
    candidates: [
      { key: second.engine, matchedTokens: 384 },
      { key: loser, matchedTokens: 0 },
    ],
  });
  expect(decision?.summary).toMatch(
    new RegExp(
      `^${second.engine} was chosen over ${loser}: it held 384 of 400 tokens, the other none, and was .*sooner`,
    ),
  );
});

test("what nobody decided is not found, which takes no longer than the deadline", async () => {
  const sims = await rig.sims(1);
  const [alone] = [await rig.router({ engines: sims.map(({ url }) => url) })];
  expect(await refusal(alone, "never sent")).toEqual([404, "decision_not_found"]);
  const routers = await meshRouters(rig, 2, sims, { tokenizes: false });
  expect(await refusal(routers[0]!, "never sent")).toEqual([404, "decision_not_found"]);
  await ask(routers[1]!, "/v1/completions", { prompt: tokensOf(1, 40), max_tokens: 1 }, { "x-request-id": "taken" });
  expect(await pastOf(routers[0]!, "taken")).toMatchObject({ router: "router-1" });
  await routers[1]!.router.stop();
  expect(await refusal(routers[0]!, "taken")).toEqual([404, "decision_not_found"]);
});

test("a second attempt is a second decision", async () => {
  const [broken, sound] = await quietSims(rig, 2);
  const config = { policy: "round_robin", health: { interval: "10m" } };
  const router = await rig.router({ engines: [broken!.url, sound!.url], config });
  await broken!.stop();
  const ids = ["a", "b"];
  for (const id of ids) {
    const body = { prompt: tokensOf(1, 40), max_tokens: 1 };
    expect((await ask(router, "/v1/completions", body, { "x-request-id": id })).engine).toBe(sound!.id);
  }
  const all = await Promise.all(ids.map((id) => pastOf(router, id)));
  const retried = all.find(({ decisions }) => decisions.length === 2);
  expect(retried?.decisions.map(({ target, attempt }) => [target, attempt])).toEqual([
    [broken!.id, 1],
    [sound!.id, 2],
  ]);
  expect(retried?.decisions[1]?.summary).toMatch(/^At attempt 2, /);
});

test("two engines for one request are both named", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const { headers } = await askPair(router, longChat("one"));
  const past = await pastOf(router, String(headers["x-request-id"]));
  const [prefill, decode] = sims.map(({ id }) => id);
  expect(past.decisions.at(-1)?.summary).toContain(
    `${prefill} was chosen to compute the prompt, and ${decode} to answer`,
  );
});

test("an engine that a class partition keeps from a request is named, in advance and afterwards, and counted, until its work has ended", async () => {
  const waiting: SeenRequest[] = [];
  const answer = ({ response }: SeenRequest): void => {
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ choices: [] }));
  };
  const take = (request: SeenRequest): void => {
    if (request.body.includes("a job")) waiting.push(request);
    else answer(request);
  };
  const engines = [await httpEngine(rig, take), await httpEngine(rig, take)];
  const router = await rig.router({ engines: engines.map(({ url }) => url) });
  const send = (id: string) => post(`${router.url}/v1/chat/completions`, chat(), { "x-request-id": id });
  const explained = async (): Promise<Json> => (await router.admin("POST", "/admin/explain", chat())).json as Json;
  await send("before");
  const job = openPost(`${router.url}/v1/chat/completions`, chat({ user: "a job" }), {
    "x-espalier-priority": "batch",
  });
  await waitFor(() => waiting.length === 1, { what: "the job at an engine" });

  await send("meanwhile");
  const [decision] = (await pastOf(router, "meanwhile")).decisions;
  const { excluded, choice } = await explained();
  const [kept] = decision!.excluded;
  expect(decision!.excluded).toEqual([{ key: expect.any(String), reason: "class_partition" }]);
  expect(decision!.summary).toContain(`${kept!.key} was excluded (class_partition)`);
  expect(excluded).toEqual([{ key: kept!.key, reasons: [expect.stringContaining("class partition")] }]);
  expect((choice as Json).key).toBe(decision!.target);
  const counted = (await router.metrics()).sum("espalier_excluded_targets_total", { reason: "class_partition" });
  expect(counted).toBe(1);

  answer(waiting[0]!);
  await job.body;
  await router.untilIdle();
  await send("after");
  expect((await pastOf(router, "after")).decisions[0]!.excluded).toEqual([]);
  expect(await explained()).toMatchObject({ excluded: [] });
});
