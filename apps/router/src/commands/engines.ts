import { layOutTable, type TableColumn } from "@espalier/core";
import type { Engine } from "@espalier/server";
import type { Command } from "commander";
import { type AdminOptions, addAdminOptions, askAdmin, askEngines } from "../cli/admin-client.ts";
import { collect, readName, UsageError } from "../cli/read-flags.ts";
import { withRegion } from "../cli/region-column.ts";
import { percentOf, writeJson, writeResult } from "../output.ts";
import { addCommand } from "./command-list.ts";

const columns: readonly TableColumn<Engine>[] = [
  { header: "id", value: (engine) => engine.id },
  { header: "state", value: stateText },
  { header: "breaker", value: (engine) => engine.breaker.state },
  { header: "in flight", value: ({ targets }) => targets.reduce((sum, { load }) => sum + load.in_flight, 0) },
  {
    header: "oldest wait (s)",
    value: ({ oldest_wait_ms: ms }) => (ms === null ? undefined : ms / 1_000),
    digits: 1,
  },
  { header: "ttft (ms)", value: ({ last_minute }) => last_minute.ttft_ms ?? undefined },
  { header: "tpot (ms)", value: ({ last_minute }) => last_minute.tpot_ms ?? undefined, digits: 1 },
  { header: "running", value: ({ targets }) => targets[0]?.signals.running ?? undefined },
  { header: "waiting", value: ({ targets }) => targets[0]?.signals.waiting ?? undefined },
  { header: "kv use (%)", value: ({ targets }) => percentOf(targets[0]?.signals.kv_use), digits: 1 },
  { header: "role", value: ({ role, assigned_role }) => (assigned_role === null ? role : `${role}, ${assigned_role}`) },
  { header: "network (ms)", value: (engine) => engine.network_ms ?? undefined, digits: 1 },
  { header: "models", value: (engine) => engine.models?.join(", ") },
  { header: "why", value: ({ trouble, state, reason }) => (state === "up" ? (trouble ?? undefined) : reason) },
];

/** The state of an engine, and what else keeps requests from it. */
export function stateText({
  state,
  draining,
  paused,
  targets,
}: Pick<Engine, "state" | "draining" | "paused" | "targets">): string {
  const asleep = targets.filter((target) => target.asleep).length;
  const sleep = asleep === targets.length ? ["asleep"] : [`${asleep} of ${targets.length} ranks asleep`];
  return [state, ...(draining ? ["draining"] : []), ...(paused ? ["paused"] : []), ...(asleep > 0 ? sleep : [])].join(
    ", ",
  );
}

export function registerEngines(program: Command): void {
  const command = addCommand(program, "engines").description(
    "Lists, adds, drains and removes engines of a running router. Without a subcommand, it lists them.",
  );
  const list = command.command("list", { isDefault: true }).summary("list engines with their state and load");
  // Unknown subcommands arrive here.
  list.allowExcessArguments();
  addAdminOptions(list).action(async (options: AdminOptions) => {
    const [stranger] = list.args;
    if (stranger !== undefined) readName(stranger, "engines", names(command));
    const engines = await askEngines(options);
    if (options.json) writeJson(engines);
    else writeResult(layOutTable(engines, withRegion(columns, engines)));
  });
  registerAdd(command);
  registerRemove(command);
  registerDrain(command, "drain", true, "send an engine no new requests; requests in flight finish");
  registerDrain(command, "undrain", false, "send an engine new requests again");
}

const names = ({ commands }: Command): readonly string[] => commands.map((child) => child.name());

interface AddOptions extends AdminOptions {
  readonly id?: string;
  readonly model: readonly string[];
  readonly role?: string;
  readonly weight?: string;
  readonly label: readonly string[];
}

function registerAdd(command: Command): void {
  const child = command
    .command("add")
    .argument("<url>", "the engine's URL")
    .summary("add an engine, mesh-wide")
    .description(
      "Adds an engine, or restores a removed one, until it is removed or all routers stop. Put permanent engines " +
        "into the configuration.",
    )
    .option("--id <id>", "unique name (default: host and port of the URL)")
    .option("--model <name>", "model it serves; repeatable (default: queried from the engine)", collect, [])
    .option("--role <role>", "both, prefill or decode")
    .option("--weight <number>", "relative share of traffic")
    .option("--label <name=value>", "label; repeatable", collect, []);
  addAdminOptions(child).action(async (url: string, options: AddOptions) => {
    const { id, model, role, weight, label } = options;
    const written = {
      url,
      ...(id === undefined ? {} : { id }),
      ...(model.length === 0 ? {} : { models: model }),
      ...(role === undefined ? {} : { role }),
      ...(weight === undefined ? {} : { weight: Number(weight) }),
      ...(label.length === 0 ? {} : { labels: Object.fromEntries(label.map(readLabel)) }),
    };
    const engine = await askAdmin<Engine>(options, "/admin/engines", { method: "POST", json: JSON.stringify(written) });
    if (options.json) writeJson(engine);
    else writeResult(layOutTable([engine], withRegion(columns, [engine])));
  });
}

/** @throws UsageError */
function readLabel(written: string): readonly [string, string] {
  const [name = "", ...value] = written.split("=");
  if (name === "" || value.length === 0) throw new UsageError(`--label ${written}: expected NAME=VALUE`);
  return [name, value.join("=")];
}

/** Engines are added by URL, so a URL names one as well. A name that no engine has is unchanged. */
async function idOf(given: string, options: AdminOptions): Promise<string> {
  if (!URL.canParse(given) || !given.includes("://")) return given;
  const engines = await askEngines(options);
  const { href } = new URL(given);
  return engines.find(({ url }) => URL.canParse(url) && new URL(url).href === href)?.id ?? given;
}

function registerRemove(command: Command): void {
  const child = command
    .command("remove")
    .argument("<id>", "engine id or URL")
    .summary("remove an engine, mesh-wide")
    .description(
      "Removes an engine, even a configured one, until it is added again or all routers stop. Requests in flight " +
        "finish.",
    );
  addAdminOptions(child).action(async (given: string, options: AdminOptions) => {
    const id = await idOf(given, options);
    await askAdmin<undefined>(options, `/admin/engines/${encodeURIComponent(id)}`, { method: "DELETE", json: "" });
    if (options.json) writeJson({ removed: id });
    else writeResult(`${id} removed`);
  });
}

function registerDrain(command: Command, name: string, draining: boolean, summary: string): void {
  const child = command.command(name).argument("<id>", "engine id or URL").summary(summary);
  if (draining) child.option("--move", "have other engines continue its streams, as far as the retry budget allows");
  addAdminOptions(child).action(async (given: string, options: AdminOptions & { readonly move?: true }) => {
    const id = await idOf(given, options);
    const { move } = options;
    const path = `/admin/engines/${encodeURIComponent(id)}`;
    const engine = await askAdmin<Engine>(options, path, { method: "PATCH", json: JSON.stringify({ draining, move }) });
    if (options.json) writeJson(engine);
    else writeResult(layOutTable([engine], withRegion(columns, [engine])));
  });
}
