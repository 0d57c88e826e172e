import { bareName, ownName } from "../data-path/contenders.ts";
import { nodeParam } from "../data-path/node-releases.ts";
import { products } from "../peers/products.ts";
import { priorityParam } from "../support/cpu-pinning.ts";
import { flag, names, optional, type ParamValues, positive, quick, runs, text, whole } from "../support/params.ts";
import { UsageError } from "../support/usage-error.ts";

/** The names that `--only` accepts. */
export const contenderNames: readonly string[] = [ownName, ...products.map(({ name }) => name), bareName];
const parts: readonly string[] = ["data-path", "cold-start", "turns"];
const msPerMinute = 60_000;

export const peersParams = {
  only: names("these alone", contenderNames, { shown: "all" }),
  node: nodeParam,
  part: optional({
    placeholder: "NAME",
    help: "data-path, cold-start (only by name; half a minute for each product and run) or turns, without the others",
    read(flag, given = "") {
      if (parts.includes(given)) return given;
      throw new UsageError(`${flag} must be one of ${parts.join(", ")}`);
    },
  }),
  priority: priorityParam,
  wrk: flag("the closed loops of 4 and 48 KB once more by wrk, to check our own load generator by"),
  "round-robin": flag("also what those that look at caches take under round robin"),
  duration: positive({
    help: "seconds of each closed loop; paced streams take 1.5 times and latencies twice as long",
    ...{ standard: 1, quick: 0.5, most: 60 },
  }),
  runs: runs(3, 20, "runs with fresh processes, of which the medians count"),
  minutes: whole({ help: "the most that it takes", standard: 12, quick: 3, most: 600 }),
  prompts: whole({
    help: "distinct prompts of 4 KB that each gets first: the cold figures, and the growth of memory",
    ...{ standard: 36_000, quick: 5_000, most: 1_000_000 },
  }),
  folder: text("DIR", "where products are installed, once", ".cache/peers"),
  quick: quick("one short run, 5000 prompts"),
};

/** What a run of the suite does. */
export type PeersPlan = ReturnType<typeof peersPlan>;

export function peersPlan({ part, quick: isQuick, ...values }: ParamValues<typeof peersParams>) {
  return {
    names: values.only,
    /** Whether the short loads are repeated under round robin. */
    isRoundRobinToo: values["round-robin"],
    /** Whether `wrk` repeats the closed loops. */
    isCheckedByWrk: values.wrk,
    nodeReleases: values.node,
    isFirst: values.priority,
    /** The loads or those of a cold start, if any of them, and whether to run the two-turn test. */
    parts: {
      loads: part === "turns" ? undefined : part === "cold-start" ? ("cold-start" as const) : ("data-path" as const),
      turns: part === undefined || part === "turns",
    },
    runs: values.runs,
    /** Time limit for everything except installing. */
    budgetMs: values.minutes * msPerMinute,
    folder: values.folder,
    sizes: {
      durationMs: values.duration * 1_000,
      coldRequests: values.prompts,
      growthWarmUpRequests: isQuick ? 2_000 : 5_000,
      largeWarmUpRequests: isQuick ? 500 : 2_000,
      turnWarmUpRequests: isQuick ? 1_000 : 4_000,
    },
    turns: {
      ...{ routers: 2, engines: 8, speed: 4, conversations: isQuick ? 60 : 100, warmUpConversations: 100 },
      ...{ ratePerSecond: 40, waitsMs: isQuick ? [50, 1_000, 5_000] : [50, 200, 1_000, 2_000, 5_000] },
      chanceWaitMs: 200,
    },
  };
}
