import { spawnSync } from "node:child_process";
import axe from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { afterAll, onTestFinished } from "vitest";

const names = ["chromium", "chromium-browser", "google-chrome"];

/** The system's Chromium; undefined where there is none. */
export const chromiumPath: string | undefined = names
  .map((name) => spawnSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).stdout.trim())
  .find((path) => path !== "");

/** A page in a real browser, and what went wrong in it. */
export interface Watched {
  readonly page: Page;
  /** Errors and warnings of the console, uncaught errors, and violations of the content security policy. */
  readonly complaints: string[];
}

const watchViolations =
  'addEventListener("securitypolicyviolation", (event) => console.error("CSP: " + event.violatedDirective + " " + event.blockedURI));';

/** One browser for the tests of a file; each page has cookies, storage and a cache of its own. */
let launched: Promise<Browser> | undefined;
afterAll(async () => (await launched)?.close());

/** Opens an empty page that is closed after the test. */
export async function openPage(options: BrowserContextOptions = {}): Promise<Watched> {
  launched ??= chromium.launch({ executablePath: chromiumPath ?? "", args: ["--no-sandbox"] });
  const page = await (await launched).newPage({ viewport: { width: 1280, height: 900 }, ...options });
  onTestFinished(() => page.context().close());
  await page.addInitScript(watchViolations);
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") {
      complaints.push(`${message.text()} ${message.location().url}`);
    }
  });
  return { page, complaints };
}

/**
 * What axe finds on the page: a line for each rule with the first element that breaks it.
 *
 * @param rules `colours`: those that another theme may break; the others see neither colours nor themes
 */
export async function allFindings(page: Page, rules: "all" | "colours" = "all"): Promise<readonly string[]> {
  if (await page.evaluate("window.axe === undefined")) await page.evaluate(axe.source);
  const options = rules === "all" ? {} : { runOnly: ["color-contrast", "link-in-text-block"] };
  const { violations } = (await page.evaluate(`axe.run(${JSON.stringify(options)})`)) as axe.AxeResults;
  return violations.map(
    ({ id, impact, nodes }) => `${impact} ${id}: ${nodes[0]?.target} ${nodes[0]?.failureSummary ?? ""}`,
  );
}
