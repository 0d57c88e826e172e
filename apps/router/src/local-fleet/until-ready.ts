import { get } from "node:http";
import { systemClock, systemScheduler } from "@espalier/common";
import type { RouterListening } from "./local-fleet.ts";

/** What a router on this machine says of itself, as far as it matters to those who start it. */
export interface RouterStatus {
  readonly usableEngines: number;
  readonly models: readonly string[];
}

const readyTimeoutMs = 10_000;
const askEveryMs = 20;

/**
 * Waits until a router can use so many engines, so that the first requests do not find half a fleet.
 *
 * @param signal gives up
 * @throws Error saying how many it found when they are fewer after 10 s, or when it was given up
 */
export async function untilReady(
  { url, adminUrl }: RouterListening,
  engines: number,
  signal?: AbortSignal,
): Promise<RouterStatus> {
  const deadlineMs = systemClock.nowMs() + readyTimeoutMs;
  for (;;) {
    const status = await askStatus(adminUrl);
    if (status && status.usableEngines >= engines) return status;
    if (systemClock.nowMs() > deadlineMs || signal?.aborted) {
      throw new Error(`the router at ${url} can use ${status?.usableEngines ?? 0} of ${engines} engines`);
    }
    await new Promise<void>((resolve) => systemScheduler.after(askEveryMs, resolve));
  }
}

/** @returns undefined when there is no answer */
function askStatus(adminUrl: string): Promise<RouterStatus | undefined> {
  return new Promise((resolve) => {
    const request = get(`${adminUrl}/admin/status`, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (piece: string) => {
        text += piece;
      });
      response.on("end", () => resolve(response.statusCode === 200 ? (JSON.parse(text) as RouterStatus) : undefined));
      response.on("error", () => resolve(undefined));
    });
    request.on("error", () => resolve(undefined));
  });
}
