import { dashboardFiles } from "@espalier/dashboard";
import { waitFor } from "@espalier/testing";
import type { Page } from "playwright-core";
import { expect, onTestFinished } from "vitest";
import { chat, type Json, post } from "../integration/client.ts";
import { joinRouter, meshOf, untilLinked } from "../integration/mesh-rig.ts";
import { createRig, type RunningRouter } from "../integration/rig.ts";
import { start } from "./program.ts";

/** A fleet in a state that somebody may be woken by. */
export interface DashboardState {
  readonly name: string;
  /** The rule whose finding is on top, what that says, and what it says to do. */
  readonly rule: string;
  readonly sentence: RegExp;
  readonly next: RegExp;
  /** What its links say, and what the row says that each leads to. */
  readonly links?: Readonly<Record<string, RegExp>>;
  /** What the page shows besides, once the finding is on top. */
  readonly shows?: (page: Page) => Promise<unknown>;
  /** @returns the router whose page is opened */
  readonly begin: (rig: StateRig) => Promise<RunningRouter>;
  /** What happens once the page is live. */
  readonly after?: (rig: StateRig) => Promise<unknown>;
}

interface StateRig {
  readonly routers: RunningRouter[];
  readonly sims: Awaited<ReturnType<ReturnType<typeof createRig>["sims"]>>[number][];
  /** @param speed how many times as fast as life; 4 unless given */
  engines(count: number, speed?: number): Promise<void>;
  /** Joins the mesh of the first one. */
  router(name: string, config?: Json, mesh?: Json): Promise<RunningRouter>;
  /** Users who go on with their conversations until the test is over. */
  traffic(everyMs: number): void;
  /** Ends something between two requests. Answers cut or refused by its end would be on top of the page for a minute. */
  whileQuiet<Value>(what: () => Value | Promise<Value>): Promise<Value>;
}

const secret = "a secret that only the routers of these tests know";

/** Everything that is started ends with the test. */
export function createStateRig(): StateRig {
  const rig = createRig();
  onTestFinished(() => rig.close().catch(() => {}));
  const page = { files: async () => dashboardFiles() };
  const routers: RunningRouter[] = [];
  const sims: StateRig["sims"] = [];
  const underWay = new Set<Promise<unknown>>();
  let isQuiet = false;
  return {
    ...{ routers, sims },
    async engines(count, speed = 4) {
      sims.push(...(await rig.sims(count, { models: ["llama-8b"], speed })));
    },
    async router(name, config = {}, mesh = {}) {
      const options = { page, tokenizes: false, usable: 0, config, mesh: { "router-id": name, secret, ...mesh } };
      const router = await joinRouter(rig, routers[0], sims, options);
      routers.push(router);
      return router;
    },
    traffic(everyMs) {
      let turn = 0;
      const instructions = (kind: number): string =>
        `Rule of ${kind}: tie every branch to its wire. `.repeat(40 + 30 * kind);
      const timer = setInterval(() => {
        if (isQuiet) return;
        const user = turn++ % 12;
        const question = `Question ${Math.floor(turn / 36)} of ${user}: which wire? `.repeat(8);
        const content = `${instructions(user % 3)} ${question}`;
        const body = chat({ model: "llama-8b", stream: true, max_tokens: 40, messages: [{ role: "user", content }] });
        const headers = {
          "x-session-id": String(user),
          "x-espalier-priority": user % 2 === 0 ? "interactive" : "batch",
        };
        const url = `${routers[turn % routers.length]?.url}/v1/chat/completions`;
        const answer = post(url, body, headers).catch(() => {});
        underWay.add(answer);
        void answer.then(() => underWay.delete(answer));
      }, everyMs);
      onTestFinished(() => clearInterval(timer));
    },
    async whileQuiet(what) {
      isQuiet = true;
      await Promise.all(underWay);
      const value = await what();
      isQuiet = false;
      return value;
    },
  };
}

async function fleet(rig: StateRig, engines: number, routers: number): Promise<RunningRouter> {
  await rig.engines(engines);
  for (let at = 1; at <= routers; at++) await rig.router(`router-${at}`);
  if (routers > 1) await untilLinked(rig.routers);
  rig.traffic(120);
  return rig.routers[0]!;
}

export const dashboardStates: readonly DashboardState[] = [
  {
    name: "quiet",
    rule: "quiet",
    sentence: /^Every request of the last minute was answered; 4 engines and 2 routers up\.$/,
    next: /^$/,
    begin: (rig) => fleet(rig, 4, 2),
  },
  {
    name: "no-engine",
    rule: "no_engine",
    sentence: /^No engine is configured or discovered: requests get 503\.$/,
    next: /^Add one with espalier engines add URL/,
    begin: (rig) => rig.router("router-1"),
  },
  {
    name: "engine-down",
    rule: "engines_down",
    sentence: /^127\.0\.0\.1:\d+ is down: .+\.$/,
    next: /^Restart the engine/,
    links: { "Show engine": /127\.0\.0\.1:\d+.*down/, "Show event": /127\.0\.0\.1:\d+ is down/ },
    begin: (rig) => fleet(rig, 4, 2),
    after: ({ sims, whileQuiet }) => whileQuiet(() => sims[1]!.stop()),
    // A search that leaves the engine out does not hide it from who follows the link.
    async shows(page) {
      await page.getByRole("searchbox").fill("another engine");
      await page.locator(".engines tbody tr").first().waitFor({ state: "detached" });
      await page.locator(".first a", { hasText: "Show engine" }).click();
      await page.locator("tr:target", { hasText: "down" }).waitFor();
    },
  },
  {
    name: "no-usable-engine",
    rule: "no_usable_engine",
    sentence: /^No engine accepts requests: 2 down\.$/,
    next: /^Restart the engine/,
    links: { "Show engines": /^Engines$/, "Show event": /engines? (are|is) down|circuit open/ },
    begin: (rig) => fleet(rig, 2, 1),
    after: ({ sims }) => Promise.all(sims.map((sim) => sim.stop())),
    // Figures of before say how old they are, and what was cached on these engines is no cache.
    async shows(page) {
      await page.locator(".chart[data-old] .aside", { hasText: / ago$/ }).first().waitFor({ timeout: 30_000 });
      expect(await page.locator(".engines tbody td:nth-child(6)").allTextContents()).toEqual(["–", "–"]);
      await page.locator(".tree-panel .aside", { hasText: "all engines are down" }).waitFor();
    },
  },
  {
    name: "cut-answers",
    rule: "failed_requests",
    sentence: /^\d+ of \d+ requests .*cut off in the last minute\.$/,
    next: /^(Start with 127|Explain one with)/,
    async begin(rig) {
      await rig.engines(3);
      const router = await rig.router("router-1", { resume: { max: 0 } });
      rig.traffic(120);
      return router;
    },
    after: ({ sims }) => sims[0]!.fault({ kind: "cut-mid-stream", afterTokens: 4 }),
  },
  {
    name: "refused-requests",
    rule: "limited_requests",
    sentence: /^\d+ of \d+ requests got 429 in the last minute: a limit was reached\.$/,
    next: /^No queue rejects requests now: the router's limits or an engine does/,
    async begin(rig) {
      await rig.engines(2);
      const router = await rig.router("router-1", { limits: { "max-concurrent-requests": 2 } });
      rig.traffic(60);
      return router;
    },
  },
  {
    name: "lost-router",
    rule: "lost_routers",
    sentence: /^router-3 is gone/,
    next: /^Restart it, or check the network/,
    links: { "Show router": /router-3.*gone/, "Show event": /router-3 was lost/ },
    async shows(page) {
      const texts = [".first strong", ".routers [data-state=gone] .figures", ".events li:has-text('was lost') time"];
      const timeAt = async (place: string) =>
        /\d\d:\d\d:\d\d/.exec((await page.locator(place).textContent()) ?? "")?.[0];
      // The event follows the banner by a moment.
      const isOne = async () => {
        const times = new Set(await Promise.all(texts.map(timeAt)));
        return times.size === 1 && !times.has(undefined);
      };
      await waitFor(isOne, { what: "one time for one event", deadlineMs: 10_000 });
    },
    async begin(rig) {
      const first = await fleet(rig, 4, 2);
      const flags = ["--listen-port", "0", "--admin-port", "0", "--mesh-port", "0", "--mesh-router-id", "router-3"];
      const seed = ["--mesh-seed", (first.router.meshAddress ?? "").replace(/^\w+:\/\//, "")];
      const engines = rig.sims.flatMap(({ url }) => ["--engine", url]);
      const program = start(["serve", ...flags, ...seed, "--policy", "cache_aware", ...engines], {
        env: { ESPALIER_MESH_SECRET: secret },
      });
      await program.until(/metrics and admin at (\S+)/);
      const isAlive = async () =>
        (await meshOf(first)).members.some(({ router, isLinked }) => router === "router-3" && isLinked);
      await waitFor(isAlive, { what: "the third router", deadlineMs: 20_000 });
      killed.set(rig, program);
      return first;
    },
    after: async (rig) => killed.get(rig)?.kill("SIGKILL"),
  },
  {
    name: "unequal-routers",
    rule: "refused_routers",
    sentence: /^A router at 127\.0\.0\.1.* is refused: its mesh secret differs\.$/,
    next: /^Give all routers the same mesh\.secret\.$/,
    links: { "Show routers": /^Routers$/ },
    async begin(rig) {
      const first = await fleet(rig, 4, 1);
      return rig.whileQuiet(async () => {
        await rig.router("router-2", { retry: { "budget-ratio": 0.3 } });
        await untilLinked(rig.routers);
        await rig.router("router-9", {}, { secret: "another secret than that of the routers" });
        rig.routers.pop();
        return first;
      });
    },
  },
  {
    name: "draining",
    rule: "draining_routers",
    sentence: /^router-2 is draining\.$/,
    next: /^After a deliberate stop/,
    links: { "Show router": /router-2.*draining/, "Show event": /router-2 is draining/ },
    begin: (rig) => fleet(rig, 4, 2),
    async after({ routers, sims, whileQuiet }) {
      await routers[0]!.admin("PATCH", `/admin/engines/${encodeURIComponent(sims[2]!.id)}`, { draining: true });
      await whileQuiet(() => {
        void routers[1]!.router.drain.run({ delayMs: 600_000, graceMs: 0 });
        routers.splice(1);
      });
    },
  },
  {
    name: "no-router",
    rule: "no_router",
    sentence: /^No router answers since \d\d:\d\d:\d\d\. The page shows the last known state/,
    next: /^Check that the routers run/,
    async shows(page) {
      await page.locator(".chart[data-old] .aside", { hasText: / ago$/ }).first().waitFor({ timeout: 30_000 });
      expect(await page.locator(".engines tbody .state").allTextContents()).toEqual(Array(4).fill("was up"));
      expect(await page.locator(".engines tbody td:nth-child(3)").allTextContents()).toEqual(Array(4).fill("–"));
      await page.locator(".engines-panel .aside", { hasText: /not known since/ }).waitFor();
    },
    begin: (rig) => fleet(rig, 4, 1),
    async after({ routers: [router] }) {
      const { admin } = router!;
      const requests = async () => ((await admin("GET", "/admin/status")).json as { totals: Json }).totals.requests;
      await waitFor(async () => Number(await requests()) > 40, { what: "figures to be old", deadlineMs: 60_000 });
      await router!.router.stop();
    },
  },
];

const killed = new WeakMap<StateRig, { kill(signal: "SIGKILL"): void }>();
