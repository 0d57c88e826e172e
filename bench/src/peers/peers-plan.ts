import { parseArgs } from "node:util";
import type { ProxySizes } from "../suites/proxy-loads.ts";
import { readPositive, readWhole } from "../support/read-options.ts";
import { UsageError } from "../support/usage-error.ts";
import { bareName, ownName } from "./contenders.ts";
import type { TurnSizes } from "./measure-turns.ts";
import { products } from "./products.ts";

/** What a run of the suite does. */
export interface PeersPlan {
  readonly names: readonly string[];
  readonly runs: number;
  /** Time for everything but installing: no further run begins that would probably take it beyond. */
  readonly budgetMs: number;
  readonly sizes: ProxySizes;
  readonly turns: TurnSizes;
  /** Where products are installed. */
  readonly folder: string;
}

const msPerMinute = 60_000;
/** What `--only` may name. */
export const contenderNames: readonly string[] = [ownName, ...products.map(({ name }) => name), bareName];

/** @throws UsageError */
export function readPeersPlan(args: readonly string[]): PeersPlan {
  const text = { type: "string" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: { only: text, duration: text, runs: text, prompts: text, folder: text, quick: { type: "boolean" } },
  });
  const quick = values.quick === true;
  const names = values.only === undefined ? contenderNames : values.only.split(",");
  const unknown = names.find((name) => !contenderNames.includes(name));
  if (unknown !== undefined) throw new UsageError(`--only: there is no ${JSON.stringify(unknown)}`);
  return {
    names,
    runs: readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 20 }),
    budgetMs: (quick ? 3 : 12) * msPerMinute,
    folder: values.folder ?? ".cache/peers",
    sizes: {
      durationMs: readPositive("--duration", values.duration, { standard: quick ? 0.6 : 1.5, max: 60 }) * 1_000,
      warmUpMs: 500,
      growthRequests: readWhole("--prompts", values.prompts, { standard: quick ? 5_000 : 50_000, max: 1_000_000 }),
      growthWarmUpRequests: quick ? 2_000 : 5_000,
      turnWarmUpRequests: quick ? 1_000 : 4_000,
    },
    turns: {
      routers: 2,
      engines: 8,
      speed: 4,
      conversations: quick ? 60 : 100,
      warmUpConversations: 100,
      ratePerSecond: 40,
      waitsMs: quick ? [50, 1_000, 5_000] : [50, 200, 1_000, 2_000, 5_000],
      chanceWaitMs: 200,
    },
  };
}
