import { mkdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { allFindings, chromiumPath, openPage } from "./browser.ts";
import { createStateRig, dashboardStates } from "./dashboard-states.ts";

/** Where pictures of the states are written; nowhere unless asked for. */
const pictures = process.env.DASHBOARD_PICTURES;
const folder = pictures && fileURLToPath(new URL(`../../${pictures}/states/`, import.meta.url));

/** A desk, a large screen, and a telephone. */
const screens = {
  wide: { width: 1440, height: 1000 },
  huge: { width: 2560, height: 1300 },
  narrow: { width: 390, height: 844 },
};
const themes = ["light", "dark"] as const;

/** Whether the row that a link led to is seen as a whole. */
const isInView = `(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(
  document.querySelector(":target").getBoundingClientRect(),
)`;

const arePlotsFitted =
  "document.querySelector('.plot canvas')?.clientWidth === document.querySelector('.plot').clientWidth";

/** Rows of which a part is seen: between the end of their box and what covers rows there. */
const cutRows = `[...document.querySelectorAll(".scroll")].flatMap((box) => {
  const cover = box.querySelector(".below span");
  const end = box.getBoundingClientRect().bottom - cover.getBoundingClientRect().height;
  return [...box.querySelectorAll("tbody tr, .scroll > ol > li, .scroll > ul > li, .branch .line")]
    .map((row) => row.getBoundingClientRect())
    .filter(({ top, bottom }) => top < end - 1 && bottom > end + 1)
    .map(({ top, bottom }) => box.className + " " + [top, bottom, end].map(Math.round));
})`;

describe.skipIf(chromiumPath === undefined)("pictures of the states that somebody may be woken by", () => {
  test.each(dashboardStates.map((state) => [state.name, state] as const))(
    "%s",
    { timeout: 200_000 },
    async (name, state) => {
      const rig = createStateRig();
      const router = await state.begin(rig);
      const { page } = await openPage({ viewport: screens.wide });
      await page.goto(`${router.adminUrl}/dashboard/`);
      await page.locator('[data-live="yes"]').waitFor();
      await state.after?.(rig);
      const top = page.locator(`#findings[data-rule="${state.rule}"]`);
      await top.waitFor({ timeout: 60_000 });
      await expect.poll(() => top.locator(".first strong").textContent(), { timeout: 20_000 }).toMatch(state.sentence);
      expect((await top.locator(".first .finding > span:not(.light, .links)").allTextContents()).join("")).toMatch(
        state.next,
      );
      for (const [text, row] of Object.entries(state.links ?? {})) {
        const link = top.locator(".first a", { hasText: text });
        await link.focus();
        await page.keyboard.press("Enter");
        const target = page.locator(":target");
        await expect.poll(() => target.textContent(), { timeout: 5_000 }).toMatch(row);
        expect(await page.evaluate(isInView), text).toBe(true);
        await page.evaluate("scrollTo(0, 0)");
      }
      await state.shows?.(page);
      // The cover follows the rows before the next frame is shown.
      await expect.poll(() => page.evaluate(cutRows), { message: "rows that are cut off" }).toEqual([]);
      expect(await allFindings(page), "light").toEqual([]);
      await page.emulateMedia({ colorScheme: "dark" });
      expect(await allFindings(page, "colours"), "dark").toEqual([]);
      await page.setViewportSize(screens.narrow);
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBeLessThanOrEqual(screens.narrow.width);
      expect(await allFindings(page), "narrow").toEqual([]);
      if (folder === undefined) return;
      mkdirSync(folder, { recursive: true });
      for (const [size, viewport] of Object.entries(screens)) {
        for (const colorScheme of themes) {
          await page.setViewportSize(viewport);
          await page.emulateMedia({ colorScheme });
          // The page's content security policy forbids to wait within the page.
          await expect.poll(() => page.evaluate(arePlotsFitted), { timeout: 10_000 }).toBe(true);
          await page.screenshot({ path: `${folder}${name}-${size}-${colorScheme}.png`, fullPage: true });
        }
      }
    },
  );
});
