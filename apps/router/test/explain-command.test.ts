import { describe, expect, test } from "vitest";
import {
  describeExplanation,
  describePast,
  type ExplainReport,
  type PastRequest,
  registerExplain,
} from "../src/commands/explain.ts";
import { runCommand } from "./run-command.ts";
import { temporaryAdmin, temporaryFile } from "./temporary.ts";

const signals = {
  own: { inFlight: 2, pendingPrefillTokens: 900 },
  others: { inFlight: 1, pendingPrefillTokens: 0, ageMs: 12.4 },
};
const feed = { state: "live", readBy: "west", epoch: "0.17.ab", ageMs: 340, lagMs: 1.25 };

const report: ExplainReport = {
  router: "east",
  endpoint: "chat",
  model: "tiny",
  policy: "epp_weighted",
  reason: "best_score",
  choice: { key: "a:1", probability: 1 },
  pull: null,
  split: null,
  service: null,
  sessionKey: "seven",
  sessionSource: "header:x-session-id",
  prompt: { tokens: 400, blocks: 25, blockSize: 16, from: "tokens", unread: null },
  estimatedPeerTokens: 0,
  weights: { queue: -2, prefix: -3, load: 1 },
  candidates: [
    {
      key: "a:1",
      eligible: true,
      filteredBy: null,
      probability: 1,
      cost: -4.25,
      scores: { queue: 1, prefix: 0.96, load: 0.63 },
      terms: { queue: -2, prefix: -2.88, load: 0.63, turn: 3 },
      signals: { networkMs: 74.26 },
      load: signals,
      facts: { blocks: { gpu: 20, cpu: 4, disk: 0, external: 0 }, heldBlocks: 24, quality: "complete", feed },
      pools: [],
      fetches: [],
      placement: { blocks: 24, confirmedBlocks: 0, ageMs: 1_250.4, by: "west" },
    },
    {
      key: "b:1",
      eligible: true,
      filteredBy: null,
      probability: 0,
      cost: null,
      scores: { queue: null, prefix: 0, load: 0 },
      terms: { queue: null, prefix: 0, load: 0, turn: null },
      signals: { networkMs: null },
      load: { own: { inFlight: 0, pendingPrefillTokens: 0 }, others: null },
      facts: { blocks: { gpu: 0, cpu: 0, disk: 0, external: 0 }, heldBlocks: 0, quality: "none", feed: null },
      pools: [],
      fetches: [],
      placement: null,
    },
    {
      key: "c:1",
      eligible: false,
      filteredBy: "below_hotspot",
      probability: 0,
      cost: null,
      scores: {},
      terms: {},
      signals: { networkMs: null },
      load: { own: { inFlight: 0, pendingPrefillTokens: 0 }, others: null },
      facts: null,
      pools: null,
      fetches: [],
      placement: null,
    },
  ],
  excluded: [{ key: "d:1", reasons: ["down: probe timed out", "drained by an operator"] }],
};

type Row = ExplainReport["candidates"][number];

const body = '{"model": "tiny", "messages": []}';
const explain = (...args: readonly string[]) => runCommand(registerExplain, "explain", ...args);

describe("for people", () => {
  const [head = "", terms = "", load = "", known = "", left = ""] = describeExplanation(report).split("\n\n");
  const cells = (text: string) => text.split("\n").map((line) => line.trim().split(/ {2,}/));

  test("the choice, the request and the prompt", () => {
    expect(head.split("\n")).toEqual([
      "choice    a:1: best_score",
      "request   chat, model tiny, session seven (header x-session-id)",
      "prompt    400 tokens (counted), 25 blocks of 16",
      "policy    epp_weighted, at router east",
    ]);
  });

  test("every term with its score and weight, the choice marked", () => {
    expect(cells(terms)).toEqual([
      ["candidate", "chance", "cost", "queue x -2", "prefix x -3", "load", "turn"],
      ["->", "a:1", "100 %", "-4.25", "1 = -2", "0.96 = -2.88", "0.63", "3"],
      ["b:1", "0 %", "-", "-", "0 = 0", "0", "-"],
      ["c:1", "below_hotspot", "-", "-", "-", "-", "-"],
    ]);
  });

  test("the load, of this router and of others, and when that was heard", () => {
    expect(cells(load)).toEqual([
      [
        ...["load", "in flight", "to prefill (tokens)", "others in flight", "others to prefill (tokens)"],
        ...["received (ms ago)", "network (ms)"],
      ],
      ["a:1", "2", "900", "1", "0", "12", "74.3"],
      ["b:1", "0", "0", "-", "-", "-", "-"],
      ["c:1", "0", "0", "-", "-", "-", "-"],
    ]);
  });

  test("what a hybrid model holds after its last resume point has a column where there is any", () => {
    const [first, ...rest] = report.candidates as [Row, Row, Row];
    const candidates = [{ ...first, facts: { ...first.facts!, heldBlocks: 30 } }, ...rest];
    const rows = cells(describeExplanation({ ...report, candidates }).split("\n\n")[3] ?? "");
    expect(rows.map((row) => row.at(-1))).toEqual(["held, not usable (blocks)", "6", "0", "-"]);
    expect(known).not.toContain("not usable");
  });

  test("what pools hold has a column where a candidate can fetch from one", () => {
    const [first, second, third] = report.candidates as [Row, Row, Row];
    const shared = { pool: "shared", blocks: 25, quality: "complete" };
    const lost = { pool: "lost", blocks: 3, quality: "void" };
    const candidates = [{ ...first, pools: [shared, lost] }, { ...second, pools: [shared] }, third];
    const rows = cells(describeExplanation({ ...report, candidates }).split("\n\n")[3] ?? "");
    expect(rows.map((row) => row.at(-1))).toEqual(["in pools (blocks)", "shared 25, lost 3 (void)", "shared 25", "-"]);
    expect(known).not.toContain("pools");
  });

  test("what the chosen engine fetches, from where, and how long that takes", () => {
    const [first, ...rest] = report.candidates as [Row, Row, Row];
    const fetches = [
      { from: "cpu", tokens: 64, ms: null },
      { from: "LMCache", tokens: 12_288, ms: 139.7 },
    ];
    const [top = ""] = describeExplanation({ ...report, candidates: [{ ...first, fetches }, ...rest] }).split("\n\n");
    expect(top.split("\n").slice(4)).toEqual([
      "fetch     from cpu: 64 tokens, time not learned yet",
      "fetch     from LMCache: 12,288 tokens, 140 ms",
    ]);
  });

  test("what is known of the prompt, by whom and since when", () => {
    const [header, ...rows] = cells(known);
    expect(header).toEqual([
      ...["known blocks", "announced (blocks)", "feed quality", "feed", "read by", "epoch", "last message (ms ago)"],
      ...["lag (ms)", "sent there (blocks)", "confirmed", "sent by", "sent (ms ago)"],
    ]);
    expect(rows[0]).toEqual([
      ...["a:1", "20 gpu, 4 cpu", "complete", "live", "west", "0.17.ab", "340", "1.3", "24", "0", "west", "1250"],
    ]);
    expect(rows[1]).toEqual(["b:1", "0", "none", ...Array.from({ length: 9 }, () => "-")]);
    expect(rows[2]).toEqual(["c:1", ...Array.from({ length: 11 }, () => "-")]);
  });

  test("who is left out", () => {
    expect(left).toBe("excluded\n  d:1: down: probe timed out; drained by an operator\n");
  });

  test("a prompt of unknown layout that is not looked up, chance, and a router that shares nothing", () => {
    const said = describeExplanation({
      ...report,
      router: null,
      sessionKey: null,
      sessionSource: null,
      reason: "random",
      choice: { key: "a:1", probability: 1 / 3 },
      prompt: { tokens: 12, blocks: null, blockSize: null, from: "size", unread: "messages" },
      estimatedPeerTokens: 812.4,
      excluded: [],
    });
    expect(said.split("\n").slice(0, 5)).toEqual([
      "choice    a:1 (likeliest, 33.3 %): random",
      "request   chat, model tiny",
      "prompt    12 tokens (by its size, messages has an unknown layout), not looked up",
      "policy    epp_weighted",
      "peers     812 tokens: estimated peer load, not yet reported",
    ]);
    expect(said).not.toContain("known blocks");
    expect(said).not.toContain("excluded");
  });

  test("two engines for one request, or why not; the class and what is due", () => {
    const pair = { protocol: "nixl", prefill: "p:1", decode: "d:1" };
    const service = { class: "interactive", tenant: "acme", deadlineMs: 500, isQueued: true };
    const both = describeExplanation({
      ...report,
      split: { reason: "threshold", pair, thresholdTokens: 3_000 },
      service,
    });
    expect(both).toContain("\nsplit     p:1 computes the prompt, d:1 answers, by nixl: threshold\n");
    expect(both).toContain(
      "\nclass     interactive of acme, first token due within 500 ms\nqueue     the request would wait; the choice assumes its turn is now\n",
    );
    const split = { reason: "below_threshold", pair: null, thresholdTokens: null };
    const one = describeExplanation({
      ...report,
      split,
      service: { ...service, tenant: "", deadlineMs: null, isQueued: false },
    });
    expect(one).toContain("\nsplit     not: below_threshold\nclass     interactive\n");
  });

  test("nobody", () => {
    const said = describeExplanation({ ...report, choice: null, reason: null, candidates: [] });
    expect(said).toMatch(/^choice {4}none\n/);
    expect(said).toMatch(/excluded\n {2}d:1: .*\n\nno engine can take the request\n$/);
  });
});

describe("the command", () => {
  test("sends the file as it is, with the key, the endpoint and headers of the request", async () => {
    const { admin, seen } = await temporaryAdmin(report);
    const file = temporaryFile("request.json", body);
    const outcome = await explain(
      ...["--admin", admin, "--file", file, "--key", "secret", "--endpoint", "/v1/messages"],
      ...["--header", "X-Session-Id: 7", "--header", "x-empty:"],
    );
    expect(outcome).toMatchObject({ error: undefined, exitCode: undefined, stderr: "" });
    expect(outcome.stdout).toBe(describeExplanation(report));
    expect(seen).toMatchObject([
      {
        method: "POST",
        path: "/admin/explain?endpoint=%2Fv1%2Fmessages",
        body,
        headers: { authorization: "Bearer secret", "x-session-id": "7", "x-empty": "" },
      },
    ]);
  });

  test("with --json prints what the router said, and fails where nobody can take the request", async () => {
    const nobody = { ...report, choice: null, reason: null, candidates: [] };
    const { admin } = await temporaryAdmin(nobody);
    const outcome = await explain("--admin", admin, "--json", "--file", temporaryFile("request.json", body));
    expect([JSON.parse(outcome.stdout), outcome.exitCode]).toEqual([nobody, 1]);
  });

  test("passes on why a request would be refused, and says when no router is there", async () => {
    const file = temporaryFile("request.json", body);
    const { admin } = await temporaryAdmin({ error: { message: "No such model.", code: "model_not_found" } }, 404);
    expect((await explain("--admin", admin, "--file", file)).error).toMatchObject({
      code: "model_not_found",
      message: expect.stringContaining("No such model."),
    });
    expect((await explain("--admin", "http://127.0.0.1:1", "--file", file)).error).toMatchObject({
      code: "upstream_connect_failed",
      message: "No router answers at http://127.0.0.1:1. Start it, or set --admin to its address.",
    });
  });

  test("needs a file that can be read", async () => {
    expect((await explain("--file", "/nowhere/request.json")).error).toMatchObject({
      name: "UsageError",
      message: expect.stringContaining("--file cannot be read: ENOENT"),
    });
  });

  test.each(["no colon", ": empty", "bad name: x", "content-length: 7", "Authorization: Bearer x", "x: é"])(
    "refuses the header %j",
    async (header) => {
      const file = temporaryFile("request.json", body);
      expect((await explain("--file", file, "--header", header)).error).toMatchObject({ name: "UsageError" });
    },
  );
});

describe("a request that has been", () => {
  const past: PastRequest = {
    requestId: "req/1",
    router: "east",
    decisions: [
      {
        summary:
          "b was chosen over a and 1 more: it held 384 of 400 tokens, the other none, and was 38 ms sooner (least_time).",
        ...{ atMs: 0, endpoint: "chat", model: "tiny", policy: "predicted_latency", target: "b", class: "batch" },
        ...{ queuedMs: 12, excluded: [], excludedCount: 0, comparedCount: 3 },
        candidates: [
          { key: "b", cost: 4.25, matchedTokens: 384, inFlight: 1, pendingPrefillTokens: 0 },
          { key: "a", cost: null, matchedTokens: 0, inFlight: 0, pendingPrefillTokens: 20 },
        ],
      },
    ],
  };

  test("is explained in one sentence, and in full", async () => {
    const { admin, seen } = await temporaryAdmin(past);
    const outcome = await explain("--admin", admin, "--request-id", "req/1", "--key", "secret");
    expect(outcome).toMatchObject({ error: undefined, exitCode: undefined, stdout: describePast(past) });
    expect(seen).toMatchObject([
      { method: "GET", path: "/admin/requests/req%2F1", headers: { authorization: "Bearer secret" } },
    ]);
    const [sentence, head, table, rest] = outcome.stdout.split("\n\n");
    expect(sentence).toBe(past.decisions[0]?.summary);
    expect(head?.split("\n")).toEqual([
      "decided   1970-01-01T00:00:00.000Z by east, after 12 ms in the queue",
      "request   chat, model tiny, class batch",
      "policy    predicted_latency",
    ]);
    expect(table?.split("\n").map((line) => line.split(/ {2,}/))).toEqual([
      ["candidate", "cost", "held (tokens)", "in flight", "to prefill (tokens)"],
      ["b", "4.25", "384", "1", "0"],
      ["a", "-", "0", "0", "20"],
    ]);
    expect(rest).toBe("1 more candidates had higher costs\n");
  });

  test("shows how far candidates were, where that was known of any", () => {
    const [decision] = past.decisions;
    const candidates = decision!.candidates.map((one) => ({ ...one, networkMs: one.key === "b" ? 74.26 : null }));
    const table = describePast({ ...past, decisions: [{ ...decision!, candidates }] }).split("\n\n")[2]!;
    const last = table.split("\n").map((line) => line.split(/ {2,}/).at(-1));
    expect(last).toEqual(["network (ms)", "74.3", "-"]);
  });

  test("is printed as JSON", async () => {
    const { admin } = await temporaryAdmin(past);
    expect(JSON.parse((await explain("--admin", admin, "--request-id", "req/1", "--json")).stdout)).toEqual(past);
  });

  test("that no router knows is an error", async () => {
    const { admin } = await temporaryAdmin({ error: { code: "decision_not_found", message: "Not found: older" } }, 404);
    const { error } = await explain("--admin", admin, "--request-id", "x");
    expect(error).toMatchObject({ code: "decision_not_found", message: expect.stringContaining("Not found: older") });
  });

  test.each([
    [[], "pass either --file or --request-id"],
    [["--file", "x", "--request-id", "y"], "pass either --file or --request-id"],
    [["--request-id", "y", "--endpoint", "chat"], "--request-id excludes --endpoint and --header"],
  ])("%j is refused", async (args, message) => {
    const { error } = await explain(...args);
    expect(error).toMatchObject({ message });
  });
});
