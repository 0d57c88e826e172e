/// <reference lib="dom" />

import { followDocument, pageTime } from "./follow/browser-ports.ts";
import { createFleetFollower } from "./follow/fleet-follower.ts";
import { type DetailAddress, readDetailLink } from "./model/detail-address.ts";
import { type PathStep, pathTo } from "./model/prefix-tree.ts";
import { type PrefixRow, prefixRows } from "./model/prefixes.ts";
import { type ProgramReport, readPrograms } from "./model/programs.ts";
import { asObject, asText } from "./model/read-json.ts";
import { createKeyForm, keptKey } from "./view/key-form.ts";
import { createPage } from "./view/page.ts";
import { wholeTree } from "./view/prefix-tree.ts";

const tickMs = 1_000;
/** How often the largest prefixes, or the programs, are asked for. */
const reportsMs = 2_000;

const ports = { time: pageTime, fetch: (url: string, options: RequestInit) => fetch(url, options), followDocument };
const others = (document.documentElement.dataset.origins ?? "").split(" ").filter(Boolean);
const page = createPage({ explain: askExplain, past: askPast });
const keyForm = createKeyForm(() => fleet.restart());
let prefixes: readonly PrefixRow[] = [];
let path: readonly PathStep[] = [];
let programs: ProgramReport | undefined;
let address: DetailAddress | undefined = readDetailLink(location.hash);
let isDue = false;

const fleet = createFleetFollower({
  ...{ home: location.origin, others, key: keptKey.get, ports },
  onChange: () => show(),
  onUnauthorized: () => keyForm.ask(),
});

/** Updates the page, at most once per animation frame. */
function show(): void {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(() => {
    isDue = false;
    page.update({ fleet: fleet.state(), prefixes, path, programs, address, nowMs: pageTime.wallMs() });
  });
}

function headers(): Record<string, string> {
  const key = keptKey.get();
  return key === undefined ? {} : { authorization: `Bearer ${key}` };
}

/** Asks the source. @returns undefined where it does not answer: the follower notices a router that is gone */
async function askSource(report: string): Promise<unknown> {
  const { source } = fleet.state();
  if (!source?.isLive || document.hidden) return undefined;
  try {
    const answer = await ports.fetch(source.origin + report, { headers: headers(), cache: "no-store" });
    return answer.ok ? await answer.json() : {};
  } catch {
    return undefined;
  }
}

async function askPrefixes(): Promise<void> {
  const asked = path.at(-1)?.hash;
  const report = await askSource(`/admin/prefixes${asked === undefined ? "" : `?below=${asked}`}`);
  // Whoever has walked on meanwhile does not see where they were.
  if (report !== undefined && path.at(-1)?.hash === asked) prefixes = prefixRows(report);
}

async function askPrograms(): Promise<void> {
  if (address?.kind !== "programs") return;
  const report = await askSource("/admin/programs");
  if (report !== undefined) programs = readPrograms(report);
}

/** Only the router that the page came from answers it: others let it read, and not more. */
async function askExplain(body: string): Promise<unknown> {
  const sent = { ...headers(), "content-type": "application/json" };
  return answerOf(await ports.fetch("/admin/explain", { method: "POST", body, headers: sent }));
}

/** The same router finds the one that decided. */
async function askPast(requestId: string): Promise<unknown> {
  return answerOf(await ports.fetch(`/admin/requests/${encodeURIComponent(requestId)}`, { headers: headers() }));
}

/** Throws an Error with the router's own words. */
async function answerOf(answer: Response): Promise<unknown> {
  const report: unknown = await answer.json();
  if (!answer.ok) throw new Error(asText(asObject(asObject(report).error).message, `status ${answer.status}`));
  return report;
}

function walk(): void {
  address = readDetailLink(location.hash);
  // An engine's page counts what it has of the largest prefixes, not of a branch.
  if (address?.kind === "engine" && path.length > 0) {
    path = [];
    void askPrefixes().then(show);
  }
  if (address?.kind === "prefix") {
    path = address.key === wholeTree ? [] : pathTo(address.key, path, prefixes);
    void askPrefixes().then(show);
  }
  void askPrograms().then(show);
  show();
}

addEventListener("hashchange", walk);
pageTime.every(tickMs, () => {
  if (!document.hidden) page.updatePlots(fleet.series());
  show();
});
pageTime.every(reportsMs, () => void askPrefixes());
pageTime.every(reportsMs, () => void askPrograms().then(show));
walk();
