import { createLoadClient } from "@espalier/simulator";
import type { WaitPorts } from "../support/until.ts";
import { createFailoverClient, type Outcome } from "./failover-client.ts";
import { type FailureFleet, startFailureFleet } from "./failure-fleet.ts";
import { type RequestMix, runOpenLoad } from "./open-load.ts";

export interface SteadyLoadOptions {
  /** Requests per second. */
  readonly rate: number;
  readonly engines: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** Long enough to restart a fleet on a busy machine. */
const longestLoadMs = 600_000;
/** Time to fill caches and compile code. Failures in it count nevertheless. */
export const warmUpMs = 8_000;

const routers = 3;
/**
 * Half of the requests are streams of several seconds. One engine can keep only a few of the shared prompts; the fleet
 * can keep more.
 */
const mix: RequestMix = {
  ...{ families: 64, sharedWords: 512, ownWords: 24 },
  ...{ streamShare: 0.5, streamTokens: 40, plainTokens: 4 },
};
const preset = "b200-moe";
/** A token takes about 60 ms, so that answers last long without using much CPU on a small machine. */
const speed = 0.2;
const blocks = 2_048;
const drainDelay = "2s";

export const steadyParams = {
  ...{ routers, preset, speed, blocks, drain_delay: drainDelay, families: mix.families },
  ...{ shared_words: mix.sharedWords, own_words: mix.ownWords },
  ...{ stream_tokens: mix.streamTokens, plain_tokens: mix.plainTokens },
} as const;

/**
 * Sends at a steady rate to three routers in a mesh while `happen` runs.
 *
 * @param happen sending ends when it ends
 * @throws Error when the fleet does not start, or `happen` fails
 */
export async function underSteadyLoad(
  { rate, engines, ports, note }: SteadyLoadOptions,
  happen: (fleet: FailureFleet) => Promise<void>,
): Promise<readonly Outcome[]> {
  const drain = ["--drain-delay", drainDelay, "--health-timeout", "10s"];
  const fleet = await startFailureFleet({ engines, routers, preset, speed, blocks, arguments: drain, ports });
  const client = createLoadClient(ports.clock);
  const ended = new AbortController();
  note(`${routers} routers and ${engines} engines are linked`);
  try {
    const load = runOpenLoad({
      ...{ mix, ratePerSecond: rate, durationMs: longestLoadMs, seed: 1, ports, signal: ended.signal },
      client: createFailoverClient(client, fleet.urls),
    });
    await happen(fleet).finally(() => ended.abort());
    return await load;
  } finally {
    client.close();
    await fleet.stop();
  }
}
