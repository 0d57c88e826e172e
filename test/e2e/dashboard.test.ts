import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { waitFor } from "@espalier/testing";
import { shippedModelFolder } from "@espalier/tokenizer";
import type { Page } from "playwright-core";
import { describe, expect, onTestFinished, test } from "vitest";
import { startProxy } from "../integration/http-proxy.ts";
import { allFindings, chromiumPath, openPage, type Watched } from "./browser.ts";
import { engines, temporaryFile } from "./files.ts";
import { type Program, start } from "./program.ts";
import { type Serving, serveWithFeeds } from "./serving.ts";

const freePorts = ["--port", "0", "--admin-port", "0"];
/** Where pictures of the page are written; nowhere unless asked for. */
const pictures = process.env.DASHBOARD_PICTURES;
/** Seconds that plots in pictures show. */
const plottedS = 90;
const themes = ["light", "dark"] as const;
/** A telephone. */
const narrow = { width: 390, height: 844 };

async function demo(...args: string[]): Promise<{ readonly program: Program; readonly url: string }> {
  const program = start([...freePorts, ...args], { script: "scripts/start.mjs" });
  const [, url = ""] = await program.until(/^dashboard +(\S+)$/m);
  await program.until(/Ctrl-C stops everything/);
  return { program, url };
}

const live = '[data-live="yes"]';

/** Milliseconds from the beginning of the load until the page is live. */
async function loadTimeMs(page: Page, url: string): Promise<number> {
  const startMs = performance.now();
  await page.goto(url);
  await page.locator(live).waitFor();
  return performance.now() - startMs;
}

/** What the browser itself reports of sockets whose router was killed is no fault of the page. */
const faultsOf = ({ complaints }: Watched, ...deadOrigins: string[]): readonly string[] =>
  complaints.filter((text) => {
    const isNetwork = /net::ERR_|WebSocket connection to/.test(text);
    return !(isNetwork && deadOrigins.some((origin) => text.includes(new URL(origin).host)));
  });

/** What comes in must not move what is there: panels stay where they are. */
const placesOfPanels = `[...document.querySelectorAll("section")].map((section) => {
  const { top, height } = section.getBoundingClientRect();
  return [section.className, Math.round(top + scrollY), Math.round(height)].join(" ");
})`;

const router = (page: Page, name: string) => page.locator(".routers > li", { hasText: name });

/** Whoever opens the page after a router of three has died is told of it, and that nobody answers once the others have died, too. */
async function seeLosses(page: Page): Promise<void> {
  const late = (await openPage()).page;
  await late.goto((await router(page, "router-2").locator("a").getAttribute("href")) ?? "");
  await late.getByText("2 of 3 alive").waitFor();
  await router(late, "router-1").and(late.locator('[data-state="gone"]')).waitFor();
  for (const name of ["router-2", "router-3"]) {
    const kill = (await router(page, name).locator("code").textContent()) ?? "";
    expect(spawnSync("sh", ["-c", kill]).status).toBe(0);
  }
  await late.getByText("0 of 3 alive").waitFor();
  await late.getByText(/^No router answers/).waitFor();
  expect(await late.locator('.routers > [data-state="linked"]').count()).toBe(0);
  expect(await late.getByText("admission is off").count()).toBe(0);
}

if (chromiumPath === undefined) {
  process.stderr.write("NOT RUN: the dashboard in a browser; chromium is not installed\n");
}

describe.skipIf(chromiumPath === undefined)("the dashboard in a browser", () => {
  test("goes live at once, shows what is decided, and goes on when its router is killed by its own instructions", async () => {
    const { url } = await demo("--engines", "2", "--load", "10");
    const watched = await openPage();
    const { page } = watched;
    // Where tests have to share the machine, one load may take longer.
    await expect.poll(() => loadTimeMs(page, url), { timeout: 60_000 }).toBeLessThan(2_000);
    const places = await page.evaluate(placesOfPanels);
    await page.locator(".decisions > li").first().waitFor();
    await expect.poll(() => page.locator(".engines tbody tr").count()).toBe(2);
    await page.locator('.routers > li[data-state="live"]').nth(2).waitFor();
    expect(await page.locator("#live").textContent()).toBe("live from router-1");
    await page.locator(".trails .step").first().waitFor();
    await page.locator(".branch").first().waitFor();

    await router(page, "router-1").locator("summary").click();
    const command = (await router(page, "router-1").locator("code").textContent()) ?? "";
    expect(command).toMatch(/^kill -9 \d+$/);
    expect(faultsOf(watched)).toEqual([]);
    expect(spawnSync("sh", ["-c", command]).status).toBe(0);

    await page.getByText(/^router-1 is gone.*: reading from router-[23]\.$/).waitFor();
    expect(await page.locator("#live").textContent()).toMatch(/^live from router-[23]$/);
    await router(page, "router-1").and(page.locator('[data-state="gone"]')).waitFor();
    const newest = await page.locator(".decisions time").first().textContent();
    await expect
      .poll(() => page.locator(".decisions time").first().textContent(), { timeout: 10_000 })
      .not.toBe(newest);
    await page
      .getByText(/^router-1 went down at .* [1-9]\d* of its \d+ sessions resumed on other routers, [1-9]/)
      .waitFor();
    expect(faultsOf(watched, url)).toEqual([]);
    expect(await page.evaluate(placesOfPanels)).toEqual(places);

    await seeLosses(page);
  });

  test("has pages for engines and decisions, a tree to walk, what was before it was opened, and nothing for axe", async () => {
    const { url } = await demo("--engines", "3", "--routers", "2", "--load", "12");
    const watched = await openPage();
    const { page } = watched;
    const findings: string[] = [];
    const check = async (where: string): Promise<void> => {
      findings.push(...(await allFindings(page)).map((finding) => `${where}: ${finding}`));
    };
    await page.goto(url);
    await page.locator(live).waitFor();
    const engineNames = page.locator(".engines tbody .name");
    await expect.poll(() => engineNames.count()).toBe(3);

    const names = await engineNames.allTextContents();
    await page.getByRole("searchbox", { name: "Search engines" }).fill(names[1] ?? "");
    await expect.poll(() => engineNames.allTextContents()).toEqual([names[1]]);
    await page.getByText("1 found").waitFor();
    await page.getByRole("searchbox").fill("");
    await page.getByRole("button", { name: "Cached blocks" }).click();
    await page.locator('th[aria-sort="descending"]', { hasText: "Cached blocks" }).waitFor();

    await page.locator(".branch").first().click();
    await page.locator(".path a").nth(1).waitFor();
    await page.getByText(/\d shared below|no shared prefix below/).waitFor();
    await page.getByRole("link", { name: "All prefixes" }).click();
    await expect.poll(() => page.locator(".path a").count()).toBe(1);
    await check("overview");

    await engineNames.first().click();
    await page.getByText("Pending prefill tokens").waitFor();
    await check("engine");
    await page.getByRole("link", { name: "← Overview" }).click();
    await page.locator("body:not([data-detail])").waitFor();
    await page.locator(".decisions:visible .when").first().click();
    await page.getByRole("heading", { name: /^Decision at/ }).waitFor();
    await page.getByRole("button", { name: "Explain" }).click();
    await expect.poll(() => page.locator("form.explain + div .candidates tbody tr").count()).toBe(3);
    await page.getByLabel("Request body").fill("{");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.locator(".explain .wrong", { hasText: /./ }).waitFor();
    await page.getByLabel("Request body").fill('{"model": "sim-model"}');
    // What the router that decided remembers, whichever router the page came from.
    await page.locator("article:visible .explanation .lead").first().waitFor();
    expect(await page.locator("article:visible .explanation tbody tr[data-chosen]").count()).toBeGreaterThan(0);
    await check("decision");

    const late = await openPage({ viewport: { width: 400, height: 800 }, colorScheme: "dark" });
    await late.page.goto(url);
    await late.page.locator(live).waitFor();
    await late.page.getByRole("img", { name: /^Requests per second .* now \d/ }).waitFor({ timeout: 5_000 });
    expect(await late.page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(400);
    findings.push(...(await allFindings(late.page)).map((finding) => `narrow and dark: ${finding}`));
    expect(findings).toEqual([]);
    // A request that is refused is no error of the page, though the browser reports it.
    const refusals = /the server responded with a status of 400/;
    expect([...faultsOf(watched), ...faultsOf(late)].filter((text) => !refusals.test(text))).toEqual([]);
  });

  test("goes on where the other router says that browsers find it, through its proxy", async () => {
    const adminUrls = ["", ""];
    const [first = "", second = ""] = await Promise.all(
      adminUrls.map((_, at) => startProxy(onTestFinished, () => adminUrls[at]!)),
    );
    const serve = async (at: number, ...more: string[]): Promise<Program> => {
      const flags = [
        "--listen-port",
        "0",
        "--admin-port",
        "0",
        "--mesh-port",
        "0",
        "--mesh-router-id",
        `router-${at + 1}`,
      ];
      const program = start(["serve", ...flags, "--admin-advertise", [first, second][at]!, ...more]);
      const [, adminUrl = ""] = await program.until(/metrics and admin at (\S+)/);
      adminUrls[at] = adminUrl;
      return program;
    };
    const killed = await serve(0);
    const { address } = (await (await fetch(`${adminUrls[0]}/admin/mesh`)).json()) as { address: string };
    await serve(1, "--mesh-seed", address);
    const { page, complaints } = await openPage();
    const isOriginListed = async () =>
      (await (await fetch(`${first}/dashboard/`)).text()).includes(`data-origins="${second}"`);
    await waitFor(isOriginListed, { what: "the other router's origin", deadlineMs: 10_000 });
    await page.goto(`${first}/dashboard/`);
    await page.locator(live).waitFor();
    expect(await page.locator("#live").textContent()).toBe("live from router-1");
    await page.locator('.routers > li[data-state="live"]').nth(1).waitFor();
    expect(complaints).toEqual([]);
    killed.kill("SIGKILL");
    // The line on top says what is worse: this fleet has no engine.
    await page.getByText(/^Also: .*router-1 is gone.*: reading from router-2/).waitFor();
    expect(complaints.filter((text) => text.includes("CSP"))).toEqual([]);
  });

  test("can be read and used with 400 pixels, with keys alone, and in both themes", async () => {
    const [engine = ""] = await engines({ engines: 1, speed: 50 });
    const { adminUrl } = await serveWithFeeds([engine], 0, "--kv-events-mode", "off");
    const watched = await openPage({ viewport: { width: 400, height: 800 }, colorScheme: "dark" });
    const { page } = watched;
    await page.goto(adminUrl, { waitUntil: "load" });
    expect(page.url()).toBe(`${adminUrl}/dashboard/`);
    await page.locator(live).waitFor();
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(400);
    const ground = () => page.evaluate("getComputedStyle(document.documentElement).backgroundColor");
    const dark = await ground();
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.className")).toBe("skip");
    for (const name of ["Overview", "Programs", "Auto"]) {
      await page.keyboard.press("Tab");
      expect(await page.evaluate("document.activeElement.textContent")).toBe(name);
    }
    await page.keyboard.press("Enter");
    expect([await page.getByRole("button", { name: "Theme: Light" }).count(), await ground()]).not.toEqual([1, dark]);
    const landmarks = ["banner", "main"] as const;
    for (const role of landmarks) expect(await page.getByRole(role).count()).toBe(1);
    const regions = ["Engines", "Routers", "Events", "Decisions", "Sessions", "Prefix tree", "Queues"];
    for (const name of regions) expect(await page.getByRole("region", { name }).count(), name).toBe(1);
    expect(faultsOf(watched)).toEqual([]);
  });

  test("asks for the admin key once, and says when it is another one", async () => {
    const [engine = ""] = await engines({ engines: 1, speed: 50 });
    const program = start(["serve", "--engine", engine, "--listen-port", "0", "--admin-port", "0"], {
      env: { ESPALIER_ADMIN_KEY: "the operators' key" },
    });
    const [, adminUrl = ""] = await program.until(/metrics and admin at (\S+)/);
    const { page } = await openPage();
    await page.goto(`${adminUrl}/dashboard/`);
    const answer = async (key: string): Promise<void> => {
      await page.getByLabel("Key", { exact: true }).fill(key);
      await page.getByRole("button", { name: "Open the dashboard" }).click();
    };
    await answer("another key");
    await page.getByText("Wrong key.").waitFor();
    await answer("the operators' key");
    await page.locator(live).waitFor();
    await page.reload();
    await page.locator(live).waitFor();
    expect(await page.getByRole("dialog").count()).toBe(0);
  });
});

/** Twelve routers before sixty engines. They ask seldom, so that one machine can run them all. */
async function largeFleet(): Promise<readonly Serving[]> {
  const tokenizer = shippedModelFolder();
  const urls = await engines({
    engines: 60,
    models: ["llama-70b"],
    speed: 1,
    tokenizer,
    kvEvents: { dialect: "auto" },
  });
  const config = temporaryFile(
    "espalier.yaml",
    JSON.stringify({
      ...{ engines: urls, tokenizers: [{ path: tokenizer }], listen: { port: 0 }, admin: { port: 0 } },
      ...{ scrape: { interval: "5s", timeout: "4s" }, health: { interval: "10s", timeout: "9s" } },
    }),
  );
  const serve = async (at: number, ...more: string[]): Promise<Serving> => {
    const program = start([
      "serve",
      "--config",
      config,
      "--mesh-port",
      "0",
      "--mesh-router-id",
      `router-${at}`,
      ...more,
    ]);
    const [, url = "", adminUrl = ""] = await program.until(/serves at (\S+), metrics and admin at (\S+)/, 200_000);
    return { ...program, url, adminUrl };
  };
  const first = await serve(1);
  const { address } = (await (await fetch(`${first.adminUrl}/admin/mesh`)).json()) as { address: string };
  const others = Array.from({ length: 11 }, (_, at) => serve(at + 2, "--mesh-seed", address));
  return [first, ...(await Promise.all(others))];
}

/** Users who go on with their conversations, each at one router after the other, until the test is over. */
function converse(
  routers: readonly Serving[],
  { users, everyMs }: { readonly users: number; readonly everyMs: number },
) {
  const messagesOf = Array.from({ length: users }, (_, user) => [`${instructions(user % 5)}\n\nUser ${user} asks: `]);
  let turn = 0;
  const timer = setInterval(() => {
    const user = turn % users;
    const router = routers[(turn + Math.floor(turn / users)) % routers.length]!;
    turn++;
    const messages = messagesOf[user]!.map((content, at) => ({ role: at % 2 === 0 ? "user" : "assistant", content }));
    const body = JSON.stringify({ model: "llama-70b", stream: true, max_tokens: 60, messages });
    const headers = { "content-type": "application/json", "x-session-id": String(user) };
    fetch(`${router.url}/v1/chat/completions`, { method: "POST", body, headers })
      .then(async (answer) => {
        await answer.text();
        messagesOf[user]!.push(`answer ${turn}: ${instructions(user + turn).slice(0, 300)}`, `and then, ${turn}?`);
        if (messagesOf[user]!.length > 16) messagesOf[user]!.splice(1);
      })
      .catch(() => {});
  }, everyMs);
  onTestFinished(() => clearInterval(timer));
}

/** Text that some users have in common. */
function instructions(kind: number): string {
  return Array.from({ length: 120 + 90 * (kind % 5) }, (_, at) => `Rule ${at} of ${kind}: tie branch ${at * 7}.`).join(
    " ",
  );
}

if (pictures !== undefined) {
  test("pictures for the documents", { timeout: 500_000 }, async () => {
    const folder = fileURLToPath(new URL(`../../${pictures}/`, import.meta.url));
    const routers = await largeFleet();
    converse(routers, { users: 36, everyMs: 400 });
    const url = `${routers[0]?.adminUrl}/dashboard/`;
    const open = async (options: Parameters<typeof openPage>[0]): Promise<Page> => {
      const { page } = await openPage(options);
      await page.goto(url);
      await page.locator(live).waitFor();
      return page;
    };
    const take = (page: Page, name: string, fullPage: boolean) =>
      page.screenshot({ path: join(folder, `dashboard-${name}.png`), fullPage });
    const pointsKept = async (): Promise<number> => {
      const answer = await fetch(`${routers[0]?.adminUrl}/admin/history`);
      return ((await answer.json()) as { atMs: readonly number[] }).atMs.length;
    };
    const until = { what: "plots with something in them", deadlineMs: 200_000 };
    await waitFor(async () => (await pointsKept()) > plottedS, until);
    // Sessions are known from when a page is opened, plots from before.
    const page = await open({});
    await waitFor(async () => (await pointsKept()) > plottedS + 40, until);
    routers[1]?.kill("SIGKILL");
    const back = /router-2 went down at .* [1-9]\d* of its \d+ sessions resumed on other routers/;
    await page.getByText(back).waitFor({ timeout: 60_000 });
    await page.locator('.routers > li[data-state="gone"]').waitFor({ timeout: 60_000 });
    for (const colorScheme of themes) {
      await page.emulateMedia({ colorScheme });
      await take(page, colorScheme, true);
    }
    await page.close();
    for (const colorScheme of themes) {
      const page = await open({ colorScheme, viewport: narrow });
      await page.getByRole("img", { name: /^Requests per second .* now \d/ }).waitFor();
      await page.locator('.routers > li[data-state="gone"]').waitFor();
      await take(page, `${colorScheme}-narrow`, false);
      await page.close();
    }
  });
}
