import { parseArgs } from "node:util";
import { bareName, ownName } from "../data-path/contenders.ts";
import type { LoadSizes } from "../data-path/loads.ts";
import { readPositive, readWhole } from "../support/read-options.ts";
import { UsageError } from "../support/usage-error.ts";
import type { TurnSizes } from "./measure-turns.ts";
import { products } from "./products.ts";

/** What a run of the suite does. */
export interface PeersPlan {
  readonly names: readonly string[];
  readonly runs: number;
  /** Time limit for everything except installing: no run begins that would probably exceed it. */
  readonly budgetMs: number;
  readonly sizes: LoadSizes;
  /** Whether the short loads are repeated under round robin. */
  readonly isRoundRobinToo: boolean;
  /** Whether `wrk` repeats the closed loops. */
  readonly isCheckedByWrk: boolean;
  /** Further Node releases in which the router runs, separated by commas. */
  readonly nodeReleases: string | undefined;
  /** Whether measured programs take priority over other programs of the machine. */
  readonly isFirst: boolean;
  /** The loads or those of a cold start, if any of them, and whether to run the two-turn test. */
  readonly parts: { readonly loads: "data-path" | "cold-start" | undefined; readonly turns: boolean };
  readonly turns: TurnSizes;
  /** Where products are installed. */
  readonly folder: string;
}

const parts: readonly string[] = ["data-path", "cold-start", "turns"];
const msPerMinute = 60_000;
/** The names that `--only` accepts. */
export const contenderNames: readonly string[] = [ownName, ...products.map(({ name }) => name), bareName];

/** @throws UsageError */
export function readPeersPlan(args: readonly string[]): PeersPlan {
  const text = { type: "string" } as const;
  const flag = { type: "boolean" } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      ...{ only: text, duration: text, runs: text, prompts: text, folder: text, node: text, part: text, minutes: text },
      ...{ quick: flag, priority: flag, "round-robin": flag, wrk: flag },
    },
  });
  const quick = values.quick === true;
  const names = values.only === undefined ? contenderNames : values.only.split(",");
  const unknown = names.find((name) => !contenderNames.includes(name));
  if (unknown !== undefined) throw new UsageError(`--only: there is no ${JSON.stringify(unknown)}`);
  const part = values.part;
  if (part !== undefined && !parts.includes(part)) throw new UsageError(`--part must be one of ${parts.join(", ")}`);
  return {
    names,
    isRoundRobinToo: values["round-robin"] === true,
    isCheckedByWrk: values.wrk === true,
    nodeReleases: values.node,
    isFirst: values.priority === true,
    parts: {
      loads: part === "turns" ? undefined : part === "cold-start" ? part : "data-path",
      turns: part === undefined || part === "turns",
    },
    runs: readWhole("--runs", values.runs, { standard: quick ? 1 : 3, max: 20 }),
    budgetMs: readWhole("--minutes", values.minutes, { standard: quick ? 3 : 12, max: 600 }) * msPerMinute,
    folder: values.folder ?? ".cache/peers",
    sizes: {
      durationMs: readPositive("--duration", values.duration, { standard: quick ? 0.5 : 1, max: 60 }) * 1_000,
      coldRequests: readWhole("--prompts", values.prompts, { standard: quick ? 5_000 : 36_000, max: 1_000_000 }),
      growthWarmUpRequests: quick ? 2_000 : 5_000,
      largeWarmUpRequests: quick ? 500 : 2_000,
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
