import { layOutTable, type TableColumn } from "@espalier/core";
import type { FeedReport } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin } from "../cli/admin-client.ts";
import { writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

const columns: readonly TableColumn<FeedReport>[] = [
  { header: "target", value: (feed) => feed.target },
  { header: "state", value: (feed) => feed.state },
  { header: "why", value: (feed) => feed.unusable ?? feed.reason },
  { header: "read by", value: (feed) => (feed.role === "owner" ? "this router" : (feed.owner ?? undefined)) },
  { header: "role here", value: (feed) => feed.role ?? undefined },
  { header: "endpoint", value: (feed) => feed.endpoint ?? undefined },
  { header: "messages", value: (feed) => feed.messages },
  { header: "sequence", value: (feed) => feed.lastSequence ?? undefined },
  { header: "blocks", value: ({ blocks }) => Object.values(blocks).reduce((sum, count) => sum + count, 0) },
  { header: "floating", value: (feed) => feed.floatingBlocks },
  { header: "gaps", value: (feed) => feed.gaps },
  // Metrics show no restart of a process that had counted nothing, and a feed none that happened while nobody read it.
  {
    header: "restarts",
    value: ({ restarts: met, engineRestarts: known }) => (met === undefined ? known : Math.max(met, known ?? 0)),
  },
  { header: "lag (ms)", value: (feed) => feed.lagMs ?? undefined },
];

const rankColumn: TableColumn<FeedReport> = { header: "rank", value: ({ rank }) => rank };

/** With the ranks by their engines' numbers, where any engine has several. */
function columnsOf(feeds: readonly FeedReport[]): readonly TableColumn<FeedReport>[] {
  const [target, ...others] = columns;
  return feeds.some(({ rank }) => rank !== undefined) ? [target!, rankColumn, ...others] : columns;
}

export function registerFeeds(program: Command): void {
  const command = addCommand(program, "feeds").description(
    "Lists the targets and pools whose KV events this router or a peer reads: live (complete), partial (gaps), replaying, stale (may be " +
      "outdated) or off. Engines that publish no events are not listed.",
  );
  addAdminOptions(command).action(async (options: AdminOptions) => {
    const { feeds } = await askAdmin<{ readonly feeds: readonly FeedReport[] }>(options, "/admin/feeds");
    if (options.json) writeJson(feeds);
    else
      writeResult(feeds.length === 0 ? "no engine or pool publishes KV events" : layOutTable(feeds, columnsOf(feeds)));
  });
}
