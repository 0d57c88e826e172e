import { type Clock, type Scheduler, systemClock, systemScheduler } from "@espalier/core";
import { onTestFinished } from "vitest";
import {
  createProxy,
  type Proxy as EngineProxy,
  type ProxyOptionsInput,
  type ResendGuard,
} from "../../src/proxy/index.ts";

export interface ProxySetup {
  readonly options?: ProxyOptionsInput;
  readonly time?: { readonly clock: Clock; readonly scheduler: Scheduler };
}

export interface AttemptRig {
  readonly proxy: EngineProxy;
  /** Sends one request and says how that ended, such as `answered 200 text`, `failed reset` or `refused draining`. */
  attempt(url: string): Promise<string>;
}

/** Of a request that is sent once. */
export const sentOnce: ResendGuard = { isResent: false, broke() {}, redial: () => false };

/** A proxy that ends with the test. */
export async function attemptRig({ options = {}, time }: ProxySetup = {}): Promise<AttemptRig> {
  const proxy = createProxy({ clock: systemClock, scheduler: systemScheduler, ...time, options });
  await proxy.start();
  onTestFinished(() => proxy.stop());
  const attempt = (url: string): Promise<string> =>
    new Promise((ended) => {
      let [status, text] = [0, ""];
      const owner = {
        awaitsContent: false,
        answered(code: number): boolean {
          status = code;
          return true;
        },
        received(chunk: Buffer): boolean {
          text += chunk.toString();
          return true;
        },
        ended: () => ended(`answered ${status} ${text}`),
        failed: (kind: string) => ended(`failed ${kind}`),
        refused: ({ code }: { readonly code: string }) => ended(`refused ${code}`),
        stalled: () => ended("stalled"),
      };
      const request = { upstream: { url, headers: [] }, method: "GET", path: "/", headers: [], body: null };
      const begun = proxy.attempt(owner, { ...request, deadlineMs: Number.POSITIVE_INFINITY, resends: sentOnce });
      if (!begun.start()) ended("overloaded");
    });
  return { proxy, attempt };
}
