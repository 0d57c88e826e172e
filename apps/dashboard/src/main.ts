/// <reference lib="dom" />

import { followDocument, pageTime } from "./follow/browser-ports.ts";
import { createFleetFollower } from "./follow/fleet-follower.ts";
import { type PrefixRow, prefixRows } from "./model/prefixes.ts";
import { createKeyForm, keptKey } from "./view/key-form.ts";
import { createPage } from "./view/page.ts";

const tickMs = 1_000;
/** How often the largest prefixes are asked for. */
const prefixesMs = 2_000;

const ports = { time: pageTime, fetch: (url: string, options: RequestInit) => fetch(url, options), followDocument };
const others = (document.documentElement.dataset.origins ?? "").split(" ").filter(Boolean);
const page = createPage();
const keyForm = createKeyForm(() => fleet.restart());
let prefixes: readonly PrefixRow[] = [];
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
    page.update({ fleet: fleet.state(), prefixes, nowMs: pageTime.wallMs() });
  });
}

async function askPrefixes(): Promise<void> {
  const { source } = fleet.state();
  if (!source?.isLive || document.hidden) return;
  const key = keptKey.get();
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  try {
    const answer = await ports.fetch(`${source.origin}/admin/prefixes`, { headers, cache: "no-store" });
    if (answer.ok) prefixes = prefixRows(await answer.json());
  } catch {
    // The follower notices a router that is gone.
  }
}

pageTime.every(tickMs, () => {
  if (!document.hidden) page.updatePlots(fleet.series());
  show();
});
pageTime.every(prefixesMs, () => void askPrefixes());
show();
