import { once } from "node:events";
import { waitFor } from "@espalier/testing";
import { afterEach, expect, test } from "vitest";
import { WebSocket } from "ws";
import { WebsocketProvider } from "y-websocket";
import * as Y from "yjs";
import { publishingSims } from "./cache-rig.ts";
import { ask, tokensOf } from "./cached-turns.ts";
import { type MeshView, meshOf, meshRouters, untilFolded, untilRead, untilSpread } from "./mesh-rig.ts";
import { createRig, type RunningRouter } from "./rig.ts";

const rig = createRig();
afterEach(() => rig.close());

const adminKey = "the operators' key";

/** Where documents are followed. */
const documentsUrl = ({ adminUrl }: RunningRouter): string => `${adminUrl.replace(/^http/, "ws")}/yjs`;

/** The provider that browsers use. */
function follow(router: RunningRouter, name: string, params: Record<string, string> = { key: adminKey }) {
  const doc = new Y.Doc();
  const provider = new WebsocketProvider(documentsUrl(router), name, doc, {
    params,
    disableBc: true,
    // The provider wants the browser's class; that of `ws` does all that it uses.
    WebSocketPolyfill: WebSocket as unknown as typeof globalThis.WebSocket,
  });
  rig.own(() => provider.destroy());
  return { doc, provider };
}

async function followed(router: RunningRouter, name: string): Promise<Y.Doc> {
  const { doc, provider } = follow(router, name);
  await waitFor(() => provider.synced, { what: `${name} that is synced` });
  return doc;
}

async function twoRouters() {
  const sims = await publishingSims(rig, 2);
  const routers = await meshRouters(rig, 2, sims, { config: { admin: { key: adminKey } } });
  await untilRead(routers, 2);
  return { sims, routers, one: routers[0]!, other: routers[1]! };
}

const complete = (router: RunningRouter, seed: number, count = 200) =>
  ask(router, "/v1/completions", { prompt: tokensOf(seed, count), max_tokens: 1 });

const journalOf = ({ router, epoch }: MeshView): string => `journal/default/${router}/${epoch}`;

/** A journal is one array: bytes that begin with their kind, and plain objects. */
function itemsOf(doc: Y.Doc) {
  const items = doc.getArray<unknown>("log").toArray();
  const ofKind = (kind: number): number =>
    items.filter((item) => item instanceof Uint8Array && item[0] === kind).length;
  const claims = items.flatMap((item) =>
    typeof item === "object" && item !== null && "claim" in item ? [(item.claim as { target: string }).target] : [],
  );
  return { facts: ofKind(1), placements: ofKind(2), claims };
}

test("the journals of all routers are followed live, at any of them", async () => {
  const { sims, routers, one, other } = await twoRouters();
  // A router that has written nothing has no journal at the others.
  for (const [seed, router] of routers.entries()) await complete(router, 100 + seed);
  await untilSpread(routers, 2);
  await untilFolded(routers, sims);
  const views = await Promise.all(routers.map(meshOf));
  const journals = await Promise.all(views.map((view) => followed(one, journalOf(view))));
  const elsewhere = await Promise.all(views.map((view) => followed(other, journalOf(view))));
  const claims = journals.flatMap((doc) => itemsOf(doc).claims);
  expect([...new Set(claims)].sort()).toEqual(sims.map(({ id }) => id).sort());
  const before = journals.map(itemsOf);
  for (let seed = 2; seed < 6; seed++) await complete(seed % 2 === 0 ? one : other, seed);
  await untilFolded(routers, sims);
  const grown = (): boolean => {
    const now = journals.map(itemsOf);
    const sum = (list: typeof now, what: "facts" | "placements") => list.reduce((all, items) => all + items[what], 0);
    return sum(now, "facts") > sum(before, "facts") && sum(now, "placements") > sum(before, "placements");
  };
  await waitFor(grown, { what: "facts and placements that come live" });
  await waitFor(
    () => journals.every((doc, at) => JSON.stringify(itemsOf(doc)) === JSON.stringify(itemsOf(elsewhere[at]!))),
    { what: "the same journals at both routers" },
  );
});

test("the registry is followed live: an engine that an operator drains", async () => {
  const { sims, one, other } = await twoRouters();
  const registry = await followed(other, "registry/1");
  const isDrainKnown = (): boolean => JSON.stringify(registry.getMap("entries").toJSON()).includes(sims[0]!.id);
  expect(isDrainKnown()).toBe(false);
  const answer = await one.admin("PATCH", `/admin/engines/${encodeURIComponent(sims[0]!.id)}`, { draining: true });
  expect(answer.status).toBe(200);
  await waitFor(isDrainKnown, { what: "the drained engine" });
});

interface Overview {
  readonly engines: readonly {
    readonly id: string;
    readonly state: string;
    readonly draining: boolean;
    readonly models: readonly string[];
    readonly read: readonly { readonly quality: string; readonly owner: string; readonly blocks: number }[];
  }[];
  readonly load: readonly { readonly target: string; readonly own: number; readonly others: number }[];
  readonly links: {
    readonly router: string;
    readonly links: readonly { readonly router: string; isLinked: boolean }[];
  };
}

const overviewOf = (doc: Y.Doc): Partial<Overview> => doc.getMap("overview").toJSON();

test("the overview tells of engines, load and links, and follows them", async () => {
  const { sims, one } = await twoRouters();
  const doc = await followed(one, "overview/router-0");
  await expect
    .poll(() => overviewOf(doc), { timeout: 5_000 })
    .toMatchObject({
      engines: sims.map(({ id }) => ({ id, state: "up", draining: false, models: ["tiny"] })),
      load: sims.map(() => ({ own: 0, others: 0 })),
      links: { router: "router-0", links: [{ router: "router-1", isLinked: true }] },
    });
  const common = tokensOf(1, 320);
  for (let at = 0; at < 3; at++) {
    await ask(one, "/v1/completions", { prompt: [...common, ...tokensOf(10 + at, 64)], max_tokens: 1 });
  }
  const largest = async () => {
    const headers = { authorization: `Bearer ${adminKey}` };
    const { prefixes } = (await (await fetch(`${one.adminUrl}/admin/prefixes`, { headers })).json()) as {
      readonly prefixes: readonly { readonly blocks: number; readonly holders: readonly unknown[] }[];
    };
    return prefixes.some(({ blocks, holders }) => blocks === 20 && holders.length === 1);
  };
  await waitFor(largest, { what: "the prefix of 320 tokens" });
  await waitFor(() => overviewOf(doc).engines?.some(({ read }) => (read[0]?.blocks ?? 0) > 20), { what: "blocks" });
});

test("who has no key, or another one, reads nothing", async () => {
  const { one } = await twoRouters();
  const own = journalOf(await meshOf(one));
  for (const query of ["", "?key=wrong", `?key=${encodeURIComponent(`${adminKey}x`)}`]) {
    const socket = new WebSocket(`${documentsUrl(one)}/${own}${query}`);
    const [error] = (await once(socket, "error")) as [Error];
    expect(error.message).toContain("401");
  }
  const withHeader = new WebSocket(`${documentsUrl(one)}/${own}`, { headers: { authorization: `Bearer ${adminKey}` } });
  await once(withHeader, "open");
  withHeader.terminate();
});

test("documents that are not there and paths that are none are refused", async () => {
  const { one } = await twoRouters();
  const headers = { authorization: `Bearer ${adminKey}` };
  const absent = new WebSocket(`${documentsUrl(one)}/journal/default/nobody/1`, { headers });
  expect(((await once(absent, "error")) as [Error])[0].message).toContain("404");
  const elsewhere = new WebSocket(`${documentsUrl(one).replace("/yjs", "/admin")}/mesh`, { headers });
  await once(elsewhere, "error");
});

test("what a reader writes goes nowhere", async () => {
  const { routers, one, other } = await twoRouters();
  const name = journalOf(await meshOf(one));
  const { doc, provider } = follow(one, name);
  await waitFor(() => provider.synced, { what: "sync" });
  doc.getArray("log").push([Uint8Array.of(1, 2, 3), { claim: { target: "intruder" } }]);
  await waitFor(async () => (await one.metrics()).sum("espalier_yjs_incidents_total") > 0, { what: "a refused write" });
  await complete(one, 1);
  for (const router of routers) {
    const seen = await followed(router, name);
    expect(itemsOf(seen).claims).not.toContain("intruder");
  }
  expect((await meshOf(other)).targets.map(({ target }) => target)).not.toContain("intruder");
});
