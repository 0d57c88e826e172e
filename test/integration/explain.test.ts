import { afterEach, describe, expect, test } from "vitest";
import { cacheRouter, publishingSims, quietSims } from "./cache-rig.ts";
import { ask, tokensOf, wordsOf } from "./cached-turns.ts";
import { chat, type ErrorObject, type Json } from "./client.ts";
import { ask as askPair, longChat, pairRouter, pairSims } from "./disaggregation-rig.ts";
import { meshRouters, untilFolded, untilQuiet, untilRead, untilSpread } from "./mesh-rig.ts";
import { createRig, type RunningRouter, type Sim } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

/** The part of an explanation that tests read. */
interface Report {
  readonly router: string | null;
  readonly endpoint: string;
  readonly model: string;
  readonly policy: string;
  readonly reason: string | null;
  readonly choice: { readonly key: string; readonly probability: number } | null;
  readonly sessionKey: string | null;
  readonly sessionSource: string | null;
  readonly prompt: Json;
  readonly candidates: readonly Candidate[];
  readonly excluded: readonly { readonly key: string; readonly reasons: readonly string[] }[];
  readonly split: Json | null;
  readonly service: Json | null;
}

interface Candidate {
  readonly key: string;
  readonly probability: number;
  readonly terms: Readonly<Record<string, number>>;
  readonly signals: Readonly<Record<string, number | null>>;
  readonly load: Json;
  readonly facts: { readonly quality: string; readonly blocks: Json; readonly feed: Json | null } | null;
  readonly placement: Json | null;
}

async function explain(router: RunningRouter, body: Json, query = ""): Promise<Report> {
  const { status, json, text } = await router.admin("POST", `/admin/explain${query}`, body);
  expect([status, text]).toEqual([200, text]);
  return json as unknown as Report;
}

const refusal = async (router: RunningRouter, body: unknown, query = ""): Promise<ErrorObject & { status: number }> => {
  const { status, json } = await router.admin("POST", `/admin/explain${query}`, body);
  return { status, ...(json.error as unknown as ErrorObject) };
};

const of = (report: Report, sim: Sim): Candidate => report.candidates.find(({ key }) => key === sim.id)!;
const request = (prompt: readonly number[]) => ({ model: "tiny", prompt, max_tokens: 1 });

/** Requests of users that the engines have had. */
const served = async (sims: readonly Sim[]): Promise<number> => {
  const states = await Promise.all(sims.map((sim) => sim.state()));
  return states.flatMap(({ requests }) => requests).filter(({ path }) => path.startsWith("/v1/c")).length;
};

describe("two routers", () => {
  test("each says where a prompt is, by whom that is known, and does what it said", async () => {
    const sims = await publishingSims(rig, 2);
    const routers = await meshRouters(rig, 2, sims);
    await untilRead(routers, 2);
    const [one, other] = [routers[0]!, routers[1]!];
    const prompt = tokensOf(1, 400);
    const { engine } = await ask(one, "/v1/completions", { prompt, max_tokens: 1 });
    const holder = sims.find(({ id }) => id === engine)!;
    const idle = sims.find((sim) => sim !== holder)!;
    await untilFolded(routers, sims);
    await untilSpread(routers, 1);
    for (const router of routers) await untilQuiet(router);

    const reports = await Promise.all(routers.map((router) => explain(router, request(prompt))));
    const readers = new Set(reports.map((report) => of(report, holder).facts?.feed?.readBy));
    expect(readers.size).toBe(1);
    expect(["router-0", "router-1"]).toContain([...readers][0]);
    for (const [at, report] of reports.entries()) {
      expect(report).toMatchObject({
        router: `router-${at}`,
        endpoint: "completions",
        model: "tiny",
        policy: "cache_aware",
        reason: "prefix_match",
        choice: { key: holder.id, probability: 1 },
        prompt: { tokens: 400, blocks: 25, blockSize: 16, from: "tokens" },
        excluded: [],
      });
      expect(report.candidates.map(({ key }) => key).sort()).toEqual(sims.map(({ id }) => id).sort());
      expect(of(report, holder)).toMatchObject({
        signals: { matchedTokens: 384 },
        facts: { quality: "complete", blocks: { gpu: 25, cpu: 0, disk: 0, external: 0 } },
        placement: { blocks: 25, by: "router-0" },
        load: { own: { inFlight: 0 }, others: { inFlight: 0 } },
      });
      expect(of(report, holder).facts?.feed).toMatchObject({ state: "live", epoch: expect.any(String), sequence: 0 });
      expect(Number(of(report, holder).facts?.feed?.ageMs)).toBeLessThan(60_000);
      expect(Number(of(report, holder).placement?.ageMs)).toBeGreaterThan(0);
      expect(of(report, idle)).toMatchObject({
        signals: { matchedTokens: 0 },
        facts: { blocks: { gpu: 0 } },
        placement: null,
      });
    }
    const turn = await ask(other, "/v1/completions", { prompt, max_tokens: 1 });
    expect([turn.engine, turn.predicted]).toEqual([holder.id, 384]);
  });

  test("what another one has sent out counts, and is told apart", async () => {
    const sims = await rig.sims(2, { speed: 0.01 });
    const routers = await meshRouters(rig, 2, sims, { tokenizes: false, config: { policy: "least_connections" } });
    const [one, other] = [routers[0]!, routers[1]!];
    const abort = new AbortController();
    const sent = fetch(`${one.url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request(tokensOf(1, 40))),
      signal: abort.signal,
    }).catch(() => undefined);
    const busyAt = async (): Promise<Candidate | undefined> =>
      (await explain(other, request([1]))).candidates.find(({ load }) => (load.others as Json).inFlight === 1);
    await expect.poll(busyAt, { timeout: 5_000 }).toBeDefined();
    const report = await explain(other, request([1]));
    const busy = (await busyAt())!;
    expect(busy).toMatchObject({ load: { own: { inFlight: 0 } }, signals: { inFlight: 1 }, probability: 0 });
    expect(busy.facts).toBeNull();
    expect(report).toMatchObject({ reason: "least_load", prompt: { blocks: null, from: "size" } });
    expect(report.choice?.key).not.toBe(busy.key);
    abort.abort();
    await sent;
  });
});

test("explaining sends nothing and changes nothing", async () => {
  const sims = await quietSims(rig, 3);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "round_robin" } });
  // Where the rotation begins is drawn; from then on the next turn is certain.
  for (let at = 0; at < 6; at++) {
    const reports = await Promise.all([1, 2, 3].map(() => explain(router, chat())));
    const { engine } = await ask(router, "/v1/chat/completions", chat());
    for (const { candidates, choice } of reports) {
      expect(candidates.find(({ key }) => key === engine)?.probability).toBeGreaterThan(0);
      if (at >= 2) expect(choice).toEqual({ key: engine, probability: 1 });
    }
  }
  expect(await served(sims)).toBe(6);
  const page = await router.metrics();
  expect(page.sum("espalier_decisions_total")).toBe(6);
  await router.untilIdle();
});

test("nor is a prompt thought to be where it was only asked about", async () => {
  const sims = await quietSims(rig, 2);
  const router = await cacheRouter(rig, sims, { feeds: 0 });
  for (let at = 0; at < 3; at++) {
    const report = await explain(router, request(tokensOf(1, 400)));
    expect(report.router).toBeNull();
    for (const { placement, facts, load } of report.candidates) {
      expect([placement, facts?.quality, facts?.feed, load.others]).toEqual([null, "none", null, null]);
    }
  }
  const { engine } = await ask(router, "/v1/completions", request(tokensOf(1, 400)));
  const report = await explain(router, request(tokensOf(1, 400)));
  expect(report.choice?.key).toBe(engine);
  expect(report.candidates.find(({ key }) => key === engine)?.placement).toMatchObject({ blocks: 25, by: null });
});

test("who is left out, and why; where nobody is left there is no choice", async () => {
  const sims = await quietSims(rig, 3);
  const router = await rig.router({
    engines: [{ url: sims[0]!.url, role: "prefill" }, sims[1]!.url, sims[2]!.url],
    config: { policy: "least_work", breaker: { "consecutive-failures": 1 } },
  });
  const drain = (sim: Sim) => router.admin("PATCH", `/admin/engines/${encodeURIComponent(sim.id)}`, { draining: true });
  await drain(sims[1]!);
  const some = await explain(router, chat());
  expect(some.choice).toEqual({ key: sims[2]!.id, probability: 1 });
  expect(some.reason).toBe("only_candidate");
  expect(some.excluded).toEqual([
    { key: sims[0]!.id, reasons: [expect.stringContaining("prefill")] },
    { key: sims[1]!.id, reasons: ["drained by an operator"] },
  ]);
  await sims[2]!.fault({ kind: "refuse", status: 500 });
  await ask(router, "/v1/chat/completions", chat());
  await drain(sims[2]!);
  const none = await explain(router, chat());
  expect(none).toMatchObject({ choice: null, reason: null, candidates: [] });
  expect(none.excluded.map(({ key }) => key)).toEqual(sims.map(({ id }) => id));
});

test("a body is planned for the endpoint that it looks like, or that is named", async () => {
  const sims = await quietSims(rig, 1);
  const router = await rig.router({ engines: sims.map(({ url }) => url) });
  const bodies: readonly (readonly [endpoint: string, body: Json, query?: string])[] = [
    ["chat", chat()],
    ["completions", { model: "tiny", prompt: "hello" }],
    ["responses", { model: "tiny", input: "hello" }],
    ["messages", { ...chat(), system: "You are kind." }],
    ["messages", chat(), "?endpoint=messages"],
    ["embeddings", { model: "tiny", input: "hello" }, "?endpoint=/v1/embeddings"],
  ];
  for (const [endpoint, body, query] of bodies) {
    expect(await explain(router, body, query)).toMatchObject({ endpoint, choice: { key: sims[0]!.id } });
  }
});

describe("a request that would be refused", () => {
  test("is refused for the same reason", async () => {
    const sims = await quietSims(rig, 1);
    const router = await rig.router({ engines: sims.map(({ url }) => url) });
    expect(await refusal(router, chat({ model: "huge" }))).toMatchObject({ status: 404, code: "model_not_found" });
    expect(await refusal(router, '{"model":')).toMatchObject({ status: 400, code: "invalid_json" });
    expect(await refusal(router, { model: "tiny" })).toMatchObject({ code: "invalid_value", param: "endpoint" });
    expect(await refusal(router, chat(), "?endpoint=chta")).toMatchObject({ code: "invalid_value", param: "endpoint" });
    expect(await refusal(router, { model: "tiny" }, "?endpoint=chat")).toMatchObject({ code: "missing_field" });
  });

  test("so is one without the admin key, and one longer than clients may send", async () => {
    const config = { admin: { key: "an admin key" }, limits: { "max-body-bytes": "100kB" } };
    const sims = await quietSims(rig, 1);
    const router = await rig.router({ engines: sims.map(({ url }) => url), config });
    const post = (body: Json, headers: Readonly<Record<string, string>>) =>
      fetch(`${router.adminUrl}/admin/explain`, { method: "POST", headers, body: JSON.stringify(body) });
    expect((await post(chat(), {})).status).toBe(401);
    const long = (bytes: number) => chat({ messages: [{ role: "user", content: wordsOf(1, bytes / 5) }] });
    expect((await explain(router, long(80_000))).choice).not.toBeNull();
    expect(await refusal(router, long(120_000))).toMatchObject({ status: 413, code: "body_too_large" });
  });
});

test("where two engines would serve it, both are named", async () => {
  const sims = await pairSims(rig, { protocol: "nixl", roles: ["prefill", "decode"] });
  const router = await pairRouter(rig, sims);
  const [prefill, decode] = sims.map(({ id }) => id);
  const long = await explain(router, longChat("one"));
  expect(long.split).toEqual({
    reason: "threshold",
    pair: { protocol: "nixl", prefill, decode },
    thresholdTokens: 128,
  });
  expect(long.choice?.key).toBe(decode);
  expect(long.excluded).toEqual([{ key: prefill, reasons: ["role prefill: serves no request alone"] }]);
  expect((await explain(router, chat())).split).toEqual({
    reason: "below_threshold",
    pair: null,
    thresholdTokens: null,
  });
  expect((await router.metrics()).sum("espalier_disaggregation_threshold_tokens")).toBe(0);
  expect((await askPair(router, longChat("one"))).engines).toEqual([prefill, decode]);
});

test("the request's own headers count", async () => {
  const sims = await quietSims(rig, 3);
  const router = await rig.router({ engines: sims.map(({ url }) => url), config: { policy: "consistent_hashing" } });
  const headers = { "content-type": "application/json", "x-session-id": "seven" };
  const body = JSON.stringify(chat());
  const answer = await fetch(`${router.adminUrl}/admin/explain`, { method: "POST", headers, body });
  const report = (await answer.json()) as Report;
  const { engine } = await ask(router, "/v1/chat/completions", chat(), { "x-session-id": "seven" });
  expect(report).toMatchObject({
    sessionKey: "seven",
    sessionSource: "header:x-session-id",
    reason: "hash",
    choice: { key: engine, probability: 1 },
  });
});
