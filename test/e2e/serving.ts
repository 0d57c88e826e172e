import { waitFor } from "@espalier/testing";
import { type Program, start } from "./program.ts";

/** A running `espalier serve`. */
export interface Serving extends Program {
  readonly url: string;
  readonly adminUrl: string;
}

/** Starts `espalier serve` on free ports and waits until it can use its engines and follows so many feeds of events. */
export async function serveWithFeeds(
  engineUrls: readonly string[],
  feeds: number,
  ...args: string[]
): Promise<Serving> {
  const flags = [...engineUrls.flatMap((url) => ["--engine", url]), "--listen-port", "0", "--admin-port", "0", ...args];
  const program = start(["serve", ...flags]);
  const [, url = "", adminUrl = ""] = await program.until(/serves at (\S+), metrics and admin at (\S+)/);
  const ask = async <Answer>(path: string) => (await (await fetch(adminUrl + path)).json()) as Answer;
  const isReady = async () => {
    const { usableEngines } = await ask<{ usableEngines: number }>("/admin/status");
    const all = await ask<{ feeds: readonly { state: string }[] }>("/admin/feeds");
    const settled = all.feeds.filter(({ state }) => state === "live" || state === "partial");
    return usableEngines === engineUrls.length && settled.length === feeds;
  };
  await waitFor(isReady, { what: "usable engines and feeds", deadlineMs: 10_000 });
  return { ...program, url, adminUrl };
}
