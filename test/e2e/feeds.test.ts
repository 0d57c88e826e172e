import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import { expect, test } from "vitest";
import { engines } from "./files.ts";
import { run } from "./program.ts";
import { type Serving, serveWithFeeds } from "./serving.ts";

const publishing = { tokenizer: "espalier-tiny", speed: 100, parameters: { blockSize: 16 } } as const;

interface Turn {
  readonly engine: string | null;
  readonly predicted: number;
  readonly cached: number;
  readonly promptTokens: number;
  readonly text: string;
}

async function chat(router: Serving, messages: readonly object[]): Promise<Turn> {
  const response = await fetch(`${router.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny", messages, max_tokens: 30 }),
  });
  expect(response.status).toBe(200);
  const { usage, choices } = (await response.json()) as {
    readonly usage: { prompt_tokens: number; prompt_tokens_details?: { cached_tokens: number } | null };
    readonly choices: readonly { readonly message: { readonly content: string } }[];
  };
  return {
    engine: response.headers.get("x-espalier-engine"),
    predicted: Number(response.headers.get("x-espalier-cache-hit-tokens")),
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
    promptTokens: usage.prompt_tokens,
    text: choices[0]!.message.content,
  };
}

/** Waits until the router has read the message with the newest number of each engine. */
async function untilHeard(router: Serving, urls: readonly string[]): Promise<void> {
  const isHeard = async () => {
    const { feeds } = (await (await fetch(`${router.adminUrl}/admin/feeds`)).json()) as {
      readonly feeds: readonly { readonly target: string; readonly lastSequence: number | null }[];
    };
    const numbers = urls.map(async (url) => {
      const { nextSequence } = (await (await fetch(`${url}/sim/kv-events`)).json()) as {
        readonly nextSequence: number;
      };
      return (feeds.find(({ target }) => url.endsWith(target))?.lastSequence ?? -1) === nextSequence - 1;
    });
    return (await Promise.all(numbers)).every(Boolean);
  };
  await waitFor(isHeard, { what: "all KV events" });
}

test("a served chat with long turns, tokenised by a thread, is predicted exactly; feeds are listed", async () => {
  const urls = await engines({ ...publishing, engines: 2, kvEvents: { dialect: "vllm-0.32" } });
  const args = ["--policy", "cache_aware", "--tokenizer", shippedModelFolder(), "--tokenize-budget", "10s"];
  const router = await serveWithFeeds(urls, 2, ...args);
  const messages: object[] = [{ role: "system", content: "The tide table of the harbour. ".repeat(200) }];
  const turns: Turn[] = [];
  for (let round = 0; round < 4; round++) {
    messages.push({ role: "user", content: `Question ${round}: ${"and what of the moon? ".repeat(150)}` });
    const turn = await chat(router, messages);
    messages.push({ role: "assistant", content: turn.text });
    turns.push(turn);
    await untilHeard(router, urls);
  }
  expect(new Set(turns.map(({ engine }) => engine)).size).toBe(1);
  expect(turns.map(({ predicted }) => predicted)).toEqual(turns.map(({ cached }) => cached));
  for (const turn of turns.slice(1)) expect(turn.cached).toBeGreaterThan(0.5 * turn.promptTokens);
  expect(router.stderr()).not.toMatch(/"level":"?(warn|error|40|50)/);

  const admin = ["feeds", "--admin", router.adminUrl];
  const [table, json] = await Promise.all([run(admin), run([...admin, "--json"])]);
  expect([table.code, json.code, table.stderr]).toEqual([0, 0, ""]);
  const feeds = JSON.parse(json.stdout) as readonly { target: string; state: string; blocks: { gpu: number } }[];
  expect(feeds.map(({ target, state }) => [target, state])).toEqual(urls.map((url) => [new URL(url).host, "live"]));
  const [header, ...rows] = table.stdout.trimEnd().split("\n");
  expect(header).toMatch(
    /^target +state +why +read by +role here +endpoint +messages +sequence +blocks +floating +gaps +restarts +lag \(ms\)$/,
  );
  const busy = rows.find((row) => row.startsWith(String(turns[0]!.engine)))!.split(/ {2,}/);
  expect(busy.slice(1, 6)).toEqual([
    ...["live", "complete", "-", "-"],
    expect.stringMatching(/^tcp:\/\/127\.0\.0\.1:\d+$/),
  ]);
  const known = feeds.find(({ target }) => target === turns[0]!.engine)!.blocks.gpu;
  expect(known).toBeGreaterThanOrEqual(Math.floor(turns[3]!.promptTokens / 16));
  expect(Number(busy[8]!.replaceAll(",", ""))).toBe(known);
});

test("holes and restarts show in the list, and an engine that tells nothing is not in it", async () => {
  const [quiet = ""] = await engines({ ...publishing });
  const [telling = ""] = await engines({ ...publishing, kvEvents: { dialect: "vllm-0.32", replay: false } });
  const router = await serveWithFeeds([quiet, telling], 1, "--policy", "cache_aware");
  const admin = ["feeds", "--admin", router.adminUrl];
  const post = (path: string, body: object) =>
    fetch(telling + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
  await post("/sim/kv-events", { kind: "gap", count: 2 });
  await post("/v1/completions", { model: "tiny", prompt: Array.from({ length: 64 }, (_, at) => at), max_tokens: 1 });
  await untilHeard(router, [telling]);
  const partial = await run(admin);
  expect(partial.stdout).toMatch(/ partial +joined-late .*\n$/);
  await post("/sim/reset", {});
  const restarted = async () => {
    const { stdout } = await run([...admin, "--json"]);
    const feeds = JSON.parse(stdout) as readonly { target: string; state: string; blocks: { gpu: number } }[];
    return feeds.length === 1 && feeds[0]!.state !== "partial" && feeds;
  };
  expect(await waitFor(restarted, { what: "a feed that notices", deadlineMs: 10_000 })).toMatchObject([
    { target: new URL(telling).host },
  ]);
});

test("without engines that publish there is nothing to list, nor without a router", async () => {
  const urls = await engines({ ...publishing });
  const router = await serveWithFeeds(urls, 0);
  const [none, json, nowhere] = await Promise.all([
    run(["feeds", "--admin", router.adminUrl]),
    run(["feeds", "--json", "--admin", router.adminUrl]),
    run(["feeds", "--admin", "http://127.0.0.1:1"]),
  ]);
  expect([none.code, none.stdout]).toEqual([0, "no engine or pool publishes KV events\n"]);
  expect([json.code, JSON.parse(json.stdout)]).toEqual([0, []]);
  expect([nowhere.code, nowhere.stdout]).toEqual([1, ""]);
  expect(nowhere.stderr).toContain("No router answers at http://127.0.0.1:1");
});
