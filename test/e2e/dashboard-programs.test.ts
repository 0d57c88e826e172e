import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { describe, expect, onTestFinished, test } from "vitest";
import { chat, post } from "../integration/client.ts";
import { untilLinked } from "../integration/mesh-rig.ts";
import type { RunningRouter } from "../integration/rig.ts";
import { allFindings, chromiumPath, openPage } from "./browser.ts";
import { createStateRig } from "./dashboard-states.ts";

/** Where pictures of the page are written; nowhere unless asked for. */
const pictures = process.env.DASHBOARD_PICTURES;
const folder = pictures && fileURLToPath(new URL(`../../${pictures}/programs/`, import.meta.url));
const screens = { wide: { width: 1440, height: 900 }, narrow: { width: 390, height: 844 } };
const themes = ["light", "dark"] as const;

const live = '[data-live="yes"]';
const tile = (page: Page, state: string) => page.locator(`.states button[data-program=${state}]`);
const countOf = async (page: Page, state: string): Promise<number> =>
  Number(await tile(page, state).locator(".value").textContent());
const rows = (page: Page) => page.locator(".programs tbody tr");

/** Rows of which a part is seen: between the end of the table's box and what covers rows there. */
const cutRows = `(() => {
  const box = document.querySelector(".programs-panel .scroll");
  const end = box.getBoundingClientRect().bottom - box.querySelector(".below span").getBoundingClientRect().height;
  return [...box.querySelectorAll("tbody tr")]
    .map((row) => row.getBoundingClientRect())
    .filter(({ top, bottom }) => top < end - 1 && bottom > end + 1).length;
})()`;

/** In one go, for the next decision puts another session first. */
const followFirst = `(() => {
  const link = document.querySelector(".trails a");
  link.click();
  return link.textContent;
})()`;

/** Sessions of Claude Code, each third with an agent of its own: they pause, go on with what they have, and queue. */
function runAgents(routers: readonly RunningRouter[], count: number): void {
  const agents = Array.from({ length: count }, (_, session) =>
    [undefined, ...(session % 3 === 0 ? ["explore"] : [])].map((agent) => startAgent(routers, session, agent)),
  ).flat();
  const timer = setInterval(() => {
    for (const goOn of agents) goOn();
  }, 100);
  onTestFinished(() => clearInterval(timer));
}

/** @returns called every 100 ms: begins a step when the pause after the last one is over */
function startAgent(routers: readonly RunningRouter[], session: number, agent: string | undefined): () => void {
  const headers = {
    "x-claude-code-session-id": `session ${session}`,
    ...(agent && { "x-claude-code-agent-id": agent }),
  };
  const messages = [{ role: "user", content: `Tree ${session} of ${agent}. `.repeat(200 + 15 * session) }];
  let [step, pause] = [0, 0];
  return () => {
    pause -= 1;
    if (pause >= 0) return;
    pause = Number.POSITIVE_INFINITY;
    const body = chat({ model: "llama-8b", stream: true, max_tokens: 30, messages });
    const url = `${routers[(session + step) % routers.length]!.url}/v1/chat/completions`;
    void post(url, body, headers)
      .catch(() => {})
      .then(() => {
        step += 1;
        pause = 1 + ((7 * session + step) % 30);
        messages.push({ role: "assistant", content: `I read file ${step}. ` });
        messages.push({ role: "user", content: `Line ${step} of file ${session}: prune the branch. `.repeat(60) });
        if (messages.length > 41) messages.splice(1);
      });
  };
}

describe.skipIf(chromiumPath === undefined)("the page of all programs", () => {
  test("says why it is empty, then counts programs by state and lists them", { timeout: 200_000 }, async () => {
    const rig = createStateRig();
    await rig.engines(2, 1);
    const config = { admission: { classes: [{ name: "default", "max-pending-tokens": 3_000 }] } };
    for (const name of ["router-1", "router-2"]) await rig.router(name, config);
    await untilLinked(rig.routers);
    const { page, complaints } = await openPage({ viewport: screens.wide });
    await page.goto(`${rig.routers[0]!.adminUrl}/dashboard/`);
    await page.locator(live).waitFor();

    // With keys alone: over the skip link and the name of this view.
    for (let press = 0; press < 3; press++) await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.getByText(/named its session\. .* x-session-id\. See docs\/start\/coding-agents\.md\.$/).waitFor();
    expect(await page.locator('nav [aria-current="page"]').textContent()).toBe("Programs");
    expect(await allFindings(page), "empty").toEqual([]);

    runAgents(rig.routers, 24);
    await rows(page).nth(31).waitFor({ timeout: 60_000 });
    await expect.poll(() => countOf(page, "queued"), { timeout: 30_000 }).toBeGreaterThan(0);
    await expect.poll(() => countOf(page, "running"), { timeout: 30_000 }).toBeGreaterThan(0);
    await expect.poll(() => countOf(page, "idle"), { timeout: 30_000 }).toBeGreaterThan(0);
    await page.getByText(/tokens computed · longest wait \d/).waitFor();
    // The cover follows the rows before the next frame is shown.
    await expect.poll(() => page.evaluate(cutRows), { message: "rows that are cut off" }).toBe(0);

    await tile(page, "running").click();
    const states = () => rows(page).locator("td:nth-child(2) > span:nth-child(2)").allTextContents();
    await expect.poll(async () => new Set(await states())).toEqual(new Set(["running"]));
    await tile(page, "ended").click();
    await page.getByText("No ended program now.").waitFor();
    await tile(page, "ended").click();
    await page.getByRole("button", { name: "Context" }).click();
    await page.locator('th[aria-sort="descending"]', { hasText: "Context" }).waitFor();
    const agents = rows(page).filter({ has: page.locator("td:nth-child(13) a[href]") });
    const name = (await agents.first().locator("th").textContent())!;
    await page.getByRole("searchbox", { name: "Search programs" }).fill(name);
    await expect.poll(() => rows(page).count()).toBe(1);
    expect(await rows(page).locator("td").last().textContent()).toMatch(/^x-claude-code-session-id/);
    await page.getByRole("searchbox", { name: "Search programs" }).fill("");
    await page.locator(".pauses tbody tr", { hasText: "length" }).first().waitFor();
    await rows(page).getByText("after length").first().waitFor();
    // An agent leads to the session that began it, which is listed with what it began.
    await rows(page).locator("td:nth-child(13) a[href]").first().click();
    await expect.poll(() => rows(page).count()).toBe(2);
    await page.getByRole("link", { name: "Programs", exact: true }).click();
    await rows(page).nth(31).waitFor();

    expect(await allFindings(page), "light").toEqual([]);
    await page.emulateMedia({ colorScheme: "dark" });
    expect(await allFindings(page, "colours"), "dark").toEqual([]);
    await page.setViewportSize(screens.narrow);
    expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(screens.narrow.width);
    expect(await allFindings(page), "narrow").toEqual([]);
    await take(page);

    // A session of the overview leads to its program.
    await page.goto(`${rig.routers[0]!.adminUrl}/dashboard/`);
    await page.locator(".trails a").first().waitFor();
    const sought = String(await page.evaluate(followFirst));
    const isListed = async (): Promise<boolean> => {
      const texts = await rows(page).allTextContents();
      return texts.length > 0 && texts.every((text) => text.includes(sought));
    };
    await expect.poll(isListed).toBe(true);
    await page.getByRole("link", { name: "Programs", exact: true }).click();
    await rows(page).nth(31).waitFor();
    expect(complaints).toEqual([]);
  });
});

async function take(page: Page): Promise<void> {
  if (folder === undefined) return;
  mkdirSync(folder, { recursive: true });
  for (const [size, viewport] of Object.entries(screens)) {
    for (const colorScheme of themes) {
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: `${folder}${size}-${colorScheme}.png`, fullPage: true });
    }
  }
}
