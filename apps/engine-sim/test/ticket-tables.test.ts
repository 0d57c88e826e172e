import { createVirtualTime } from "@espalier/testing";
import { describe, expect, test } from "vitest";
import { quoteLongIntegers, unquoteLongIntegers } from "../src/http/body-fields.ts";
import { blockNames, createBlockStore, maxStoredBlocks } from "../src/transfer/block-store.ts";
import { createKvLinks, maxKvLinks } from "../src/transfer/peer-client.ts";
import { createInbox, ExportTable, type Inbox, maxExports, maxInbox } from "../src/transfer/ticket-tables.ts";

const tokens = Uint32Array.of(1, 2, 3);

function createTable(timeoutMs = 1_000) {
  const time = createVirtualTime();
  const table = new ExportTable({ clock: time.clock, scheduler: time.scheduler, timeoutMs });
  const released: string[] = [];
  const offer = (name: string) => ({ tokens, release: () => void released.push(name) });
  return { time, table, released, offer };
}

describe("tickets", () => {
  test("one that was offered is claimed, done and given back once", async () => {
    const { table, released, offer } = createTable();
    const begun = table.begin("t", "hold");
    begun.offer(offer("t"));
    const { tokens: fetched, over } = await table.claim("t", false);
    expect(fetched).toBe(tokens);
    expect(table.describe()).toMatchObject([{ ticket: "t", phase: "held", isClaimed: true, tokens: 3 }]);
    await expect(table.claim("t", true)).rejects.toThrow("is already being fetched");
    table.done("t");
    table.done("t");
    begun.cancel("too late");
    await over;
    await begun.fetched;
    expect(released).toEqual(["t"]);
    expect(table.describe()).toEqual([]);
    expect(table.totals).toEqual({ offered: 1, fetched: 1, expired: 0, lost: 0 });
  });

  test("a claim waits for an offer, however long it is computed", async () => {
    const { table, time, offer } = createTable();
    const claim = table.claim("t", true);
    const begun = table.begin("t", "hold");
    await begun.joined;
    await time.advanceAsync(5_000);
    begun.offer(offer("t"));
    expect((await claim).tokens).toBe(tokens);
    // As long as somebody fetches, time does not run out.
    await time.advanceAsync(5_000);
    expect(table.describe()).toHaveLength(1);
    table.lost("t");
    await time.advanceAsync(1_000);
    expect(table.totals).toMatchObject({ expired: 1, lost: 1 });
  });

  test("a claim that must not wait, or waits in vain", async () => {
    const { table, time } = createTable();
    await expect(table.claim("t", false)).rejects.toThrow("unknown ticket t");
    const claim = table.claim("t", true);
    claim.catch(() => {});
    await time.advanceAsync(999);
    expect(table.describe()).toMatchObject([{ phase: "asked", ageMs: 999 }]);
    await time.advanceAsync(1);
    await expect(claim).rejects.toThrow("timed out after 1000 ms");
    expect(table.describe()).toEqual([]);
  });

  test("who asks and goes away leaves nothing behind", async () => {
    const { table } = createTable();
    const claim = table.claim("t", true);
    claim.catch(() => {});
    table.lost("t");
    await expect(claim).rejects.toThrow("the fetching engine is lost");
    table.lost("t");
    expect(table.describe()).toEqual([]);
  });

  test("an offer after the end is given back at once", () => {
    const { table, released, offer } = createTable();
    const begun = table.begin("t", "hold");
    begun.cancel("the caller is gone");
    begun.offer(offer("t"));
    expect(released).toEqual(["t"]);
    expect(table.describe()).toEqual([]);
  });

  test("an offer that nobody wants any more is given back at once", () => {
    const { table, released, offer } = createTable();
    const begun = table.begin("t", "hold");
    table.done("t");
    expect(table.describe()).toHaveLength(1);
    begun.offer(offer("t"));
    expect(released).toEqual(["t"]);
  });

  test("blocks for one engine alone are dropped with it", async () => {
    const { table, released, offer } = createTable();
    const begun = table.begin("t", "drop");
    begun.offer(offer("t"));
    await table.claim("t", false);
    table.lost("t");
    await expect(begun.fetched).rejects.toThrow("the fetching engine is lost");
    expect(released).toEqual(["t"]);
  });

  test("the death of the engine gives nothing back: the memory is gone", async () => {
    const { table, released, offer } = createTable();
    const begun = table.begin("t", "hold");
    begun.offer(offer("t"));
    table.clear();
    await expect(begun.fetched).rejects.toThrow("the engine restarted");
    expect(released).toEqual([]);
  });

  test(`at most ${maxExports} at a time, each once`, async () => {
    const { table } = createTable();
    for (let at = 0; at < maxExports; at++) table.begin(`${at}`, "hold");
    expect(() => table.begin("one more", "hold")).toThrow(RangeError);
    await expect(table.claim("one more", true)).rejects.toThrow(RangeError);
    table.clear();
    table.begin("0", "hold");
    expect(() => table.begin("0", "hold")).toThrow("the ticket 0 is in use");
  });
});

describe("the inbox", () => {
  const createBox = () => {
    const time = createVirtualTime();
    return { time, inbox: createInbox({ clock: time.clock, scheduler: time.scheduler, timeoutMs: 1_000 }) };
  };
  const take = (inbox: Inbox, ticket: string) => inbox.take(ticket, new AbortController().signal);

  test("keeps what came for a time, and gives it out once", async () => {
    const { inbox, time } = createBox();
    inbox.put("t", tokens);
    expect(await take(inbox, "t")).toBe(tokens);
    expect(inbox.size()).toBe(0);
    inbox.put("t", tokens);
    await time.advanceAsync(1_000);
    expect(inbox.size()).toBe(0);
  });

  test("a second prompt takes the place of the first, and a request that gives up is not waited for", async () => {
    const { inbox } = createBox();
    inbox.put("t", tokens);
    inbox.put("t", Uint32Array.of(9));
    expect(inbox.size()).toBe(1);
    expect(await take(inbox, "t")).toEqual(Uint32Array.of(9));
    const over = new AbortController();
    const waiting = inbox.take("t", over.signal);
    over.abort();
    await expect(waiting).rejects.toThrow();
    expect(inbox.waiting()).toBe(0);
    inbox.put("t", tokens);
    expect(await take(inbox, "t")).toBe(tokens);
  });

  test(`holds ${maxInbox} prompts, and the oldest gives way`, async () => {
    const { inbox } = createBox();
    for (let at = 0; at <= maxInbox; at++) inbox.put(`${at}`, Uint32Array.of(at));
    expect(inbox.size()).toBe(maxInbox);
    expect(await take(inbox, "1")).toEqual(Uint32Array.of(1));
    const first = take(inbox, "0");
    first.catch(() => {});
    expect(inbox.waiting()).toBe(1);
    inbox.clear();
    await expect(first).rejects.toThrow("the engine restarted");
    expect([inbox.size(), inbox.waiting()]).toEqual([0, 0]);
  });

  test(`lets ${maxInbox} requests wait, each for its own`, async () => {
    const { inbox, time } = createBox();
    const waiting = Array.from({ length: maxInbox }, (_, at) => take(inbox, `${at}`));
    const given = Promise.allSettled(waiting);
    await expect(take(inbox, "one more")).rejects.toThrow(`more than ${maxInbox}`);
    inbox.put("7", tokens);
    await time.advanceAsync(1_000);
    expect((await given).filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    expect(inbox.waiting()).toBe(0);
  });
});

test(`at most ${maxKvLinks} prompts are fetched at a time`, async () => {
  const links = createKvLinks();
  const open = () => links.open(source, new AbortController().signal);
  // Nothing is sent before this turn of the event loop is over, and then they are cut.
  const source = { host: "127.0.0.1", port: 9, ticket: "t", engineId: undefined, waits: false };
  const opened = Array.from({ length: maxKvLinks }, open);
  const ends = Promise.allSettled(opened);
  await expect(open()).rejects.toThrow(`more than ${maxKvLinks}`);
  links.cut();
  expect((await ends).every(({ status }) => status === "rejected")).toBe(true);
});

describe("the store", () => {
  test("counts what is there from the first block on, and forgets what was used longest ago", () => {
    const store = createBlockStore(3);
    store.put(["a", "b", "c"]);
    expect(store.countFirst(["a", "b", "x", "c"])).toBe(2);
    store.put(["d"]);
    expect(store.size()).toBe(3);
    // `c` was not looked at.
    expect([store.countFirst(["c"]), store.countFirst(["a", "b", "d"])]).toEqual([0, 3]);
  });

  test("tells what came, by place, and what gave way, by name", () => {
    const store = createBlockStore(3);
    expect(store.put(["a", "b"])).toEqual({ added: [0, 1], removed: [] });
    expect(store.put(["a", "b", "c"])).toEqual({ added: [2], removed: [] });
    expect(store.put(["a", "d", "e"])).toEqual({ added: [1, 2], removed: ["b", "c"] });
    expect(store.put(["a", "d", "e"])).toEqual({ added: [], removed: [] });
    // More than there is room for: the first ones go at once.
    expect(store.put(["p", "q", "r", "s"])).toEqual({ added: [0, 1, 2, 3], removed: ["a", "d", "e", "p"] });
    expect(store.put([])).toEqual({ added: [], removed: [] });
  });

  test(`keeps ${maxStoredBlocks} names and no more`, () => {
    const store = createBlockStore(maxStoredBlocks);
    store.put(Array.from({ length: maxStoredBlocks + 1 }, (_, at) => `${at}`));
    expect(store.size()).toBe(maxStoredBlocks);
    expect([store.countFirst(["0"]), store.countFirst(["1"])]).toEqual([0, 1]);
  });

  test("names depend on everything before, on block size, adapter and salt", () => {
    const content = {
      prompt: Uint32Array.from({ length: 9 }, (_, at) => at),
      adapter: undefined,
      cacheSalt: undefined,
    };
    const names = blockNames(content, 4);
    expect(names).toHaveLength(2);
    expect(blockNames({ ...content, prompt: content.prompt.slice(0, 4) }, 4)).toEqual(names.slice(0, 1));
    const others = [
      blockNames({ ...content, adapter: "a" }, 4),
      blockNames({ ...content, cacheSalt: "a" }, 4),
      blockNames({ ...content, prompt: Uint32Array.of(5, ...content.prompt.slice(1)) }, 4),
      blockNames(content, 2),
    ].flat();
    expect(new Set([...names, ...others]).size).toBe(names.length + others.length);
  });
});

describe("long numbers", () => {
  const json = '{"bootstrap_room": 9223372036854775783,"x":{"ctx_request_id":1234567890123456}}';

  test("pass through JSON with every digit", () => {
    expect(JSON.parse(quoteLongIntegers(json))).toEqual({
      bootstrap_room: "9223372036854775783",
      x: { ctx_request_id: "1234567890123456" },
    });
    const there = JSON.stringify(JSON.parse(quoteLongIntegers(json)));
    expect(unquoteLongIntegers(there)).toBe(json.replace(": 9", ":9"));
  });

  test.each([
    '{"bootstrap_room":123456789012345}',
    '{"bootstrap_room":1234567890123456.5}',
    '{"bootstrap_room":1e300}',
    '{"other":9223372036854775783}',
    JSON.stringify({ prompt: '{"bootstrap_room": 9223372036854775783}' }),
    JSON.stringify({ prompt: 'say "bootstrap_room":9223372036854775783, please' }),
  ])("%s stays as it is", (text) => {
    expect(quoteLongIntegers(text)).toBe(text);
  });
});
