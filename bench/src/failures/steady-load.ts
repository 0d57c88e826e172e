import { createLoadClient } from "@espalier/load-driver";
import type { WaitPorts } from "../support/until.ts";
import { type FailureFleet, startFailureFleet } from "./failure-fleet.ts";
import { type RequestMix, runOpenLoad } from "./open-load.ts";
import { createPatientClient, type Told } from "./patient-client.ts";

export interface SteadyLoadOptions {
  /** Requests in a second. */
  readonly rate: number;
  readonly engines: number;
  readonly ports: WaitPorts;
  readonly note: (line: string) => void;
}

/** Long enough to restart a fleet on a busy machine. */
const longestLoadMs = 600_000;
/** Until caches are filled and code is compiled; what is lost in it counts all the same. */
export const warmUpMs = 8_000;

const routers = 3;
/**
 * Half of the requests are streams of some seconds. An engine keeps a few of the prompts that requests share, and all of
 * them together more than one of them could.
 */
const mix: RequestMix = {
  ...{ families: 64, sharedWords: 512, ownWords: 24 },
  ...{ streamShare: 0.5, streamTokens: 40, plainTokens: 4 },
};
const preset = "b200-moe";
/** Makes a token take some 60 ms, so that answers last without costing a machine with few cores much. */
const speed = 0.2;
const blocks = 2_048;
const drainDelay = "2s";

export const steadyParams = {
  ...{ routers, preset, speed, blocks, drain_delay: drainDelay, families: mix.families },
  ...{ shared_words: mix.sharedWords, own_words: mix.ownWords },
  ...{ stream_tokens: mix.streamTokens, plain_tokens: mix.plainTokens },
} as const;

/**
 * Sends at a steady rate to three routers in a mesh while something happens to them.
 *
 * @param happen ends when sending is to end
 * @throws Error when the fleet does not start, or what happens fails
 */
export async function underSteadyLoad(
  { rate, engines, ports, note }: SteadyLoadOptions,
  happen: (fleet: FailureFleet) => Promise<void>,
): Promise<readonly Told[]> {
  const drain = ["--drain-delay", drainDelay, "--health-timeout", "10s"];
  const fleet = await startFailureFleet({ engines, routers, preset, speed, blocks, arguments: drain, ports });
  const client = createLoadClient(ports.clock);
  const ended = new AbortController();
  note(`${routers} routers and ${engines} engines are linked`);
  try {
    const load = runOpenLoad({
      ...{ mix, ratePerSecond: rate, durationMs: longestLoadMs, seed: 1, ports, signal: ended.signal },
      client: createPatientClient(client, fleet.urls),
    });
    await happen(fleet).finally(() => ended.abort());
    return await load;
  } finally {
    client.close();
    await fleet.stop();
  }
}
