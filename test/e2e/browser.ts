import { spawnSync } from "node:child_process";
import axe from "axe-core";
import { type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { onTestFinished } from "vitest";

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
/** Opens an empty page that is closed after the test. */
export async function openPage(options: BrowserContextOptions = {}): Promise<Watched> {
  const browser = await chromium.launch({ executablePath: chromiumPath ?? "", args: ["--no-sandbox"] });
  onTestFinished(() => browser.close());
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
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

/** What axe finds on the page: a line for each rule with the first element that breaks it. */
export async function allFindings(page: Page): Promise<readonly string[]> {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate("axe.run()")) as axe.AxeResults;
  return violations.map(
    ({ id, impact, nodes }) => `${impact} ${id}: ${nodes[0]?.target} ${nodes[0]?.failureSummary ?? ""}`,
  );
}
