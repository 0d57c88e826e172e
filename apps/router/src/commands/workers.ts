import { formatTable, type TableColumn } from "@espalier/workload";
import type { Command } from "commander";
import { writeJson, writeResult } from "../output/write.ts";
import { type AdminOptions, addAdminOptions, askAdmin } from "./admin-client.ts";

/** The part of an engine's description that the table shows. */
interface Worker {
  readonly id: string;
  readonly url: string;
  readonly state: string;
  readonly reason: string;
  readonly draining: boolean;
  readonly role: string;
  /** The side that an engine of role `both` keeps to; null where it does not. */
  readonly duty: string | null;
  readonly models: readonly string[] | null;
  readonly breaker: { readonly state: string };
  readonly targets: readonly {
    readonly load: { readonly in_flight: number };
    readonly signals: {
      readonly running: number | null;
      readonly waiting: number | null;
      readonly kv_use: number | null;
    };
  }[];
}

const columns: readonly TableColumn<Worker>[] = [
  { header: "id", value: (worker) => worker.id },
  { header: "state", value: (worker) => (worker.draining ? `${worker.state}, draining` : worker.state) },
  { header: "breaker", value: (worker) => worker.breaker.state },
  { header: "in flight", value: ({ targets }) => targets.reduce((sum, { load }) => sum + load.in_flight, 0) },
  { header: "running", value: ({ targets }) => targets[0]?.signals.running ?? undefined },
  { header: "waiting", value: ({ targets }) => targets[0]?.signals.waiting ?? undefined },
  { header: "kv use (%)", value: ({ targets }) => percent(targets[0]?.signals.kv_use), digits: 1 },
  { header: "role", value: ({ role, duty }) => (duty === null ? role : `${role}, ${duty}`) },
  { header: "models", value: (worker) => worker.models?.join(", ") },
  { header: "why", value: (worker) => (worker.state === "up" ? undefined : worker.reason) },
];

export function registerWorkers(program: Command): void {
  const command = program
    .command("workers")
    .summary("list the engines of a running router, or take one out for a while")
    .description("Lists the engines of a running router, or takes one out for a while. `list` need not be written.");
  const list = command.command("list", { isDefault: true }).summary("list the engines with their state and load");
  addAdminOptions(list).action(async (options: AdminOptions) => {
    const { workers } = await askAdmin<{ workers: readonly Worker[] }>(options, "/admin/workers");
    if (options.json) writeJson(workers);
    else writeResult(formatTable(workers, columns));
  });
  registerDrain(command, "drain", true, "give an engine no new requests; those it has may finish");
  registerDrain(command, "undrain", false, "give an engine new requests again");
}

function registerDrain(command: Command, name: string, draining: boolean, summary: string): void {
  const child = command.command(name).argument("<id>", "the engine's id, as `workers` lists it").summary(summary);
  addAdminOptions(child).action(async (id: string, options: AdminOptions) => {
    const path = `/admin/workers/${encodeURIComponent(id)}`;
    const worker = await askAdmin<Worker>(options, path, { method: "PATCH", json: JSON.stringify({ draining }) });
    if (options.json) writeJson(worker);
    else writeResult(formatTable([worker], columns));
  });
}

function percent(share: number | null | undefined): number | undefined {
  return share === null || share === undefined ? undefined : share * 100;
}
