import { EspalierError, type HttpClient, hostInUrl, isLoopback, plainHost, wrapText } from "@espalier/core";
import { type CompiledConfig, type FleetProbe, probeFleet, type RouterStatus } from "@espalier/server";
import { type Command, Option } from "commander";
import { askEngines, withHttpClient } from "../cli/admin-client.ts";
import { type Check, fail, pass, reasonOf, runChecks, warn } from "../doctor/check.ts";
import { engineChecks } from "../doctor/engine-checks.ts";
import type { RunningReport, RunningRouter } from "../doctor/examined.ts";
import { machineChecks, ownChecks } from "../doctor/machine-checks.ts";
import { askRunning, routerChecks, runningChecks, statusAt } from "../doctor/router-checks.ts";
import { serviceChecks } from "../doctor/service-checks.ts";
import { openFileLimit } from "../open-files.ts";
import { writeJson, writeNote, writeResult } from "../output.ts";
import { eventWarnings, missingTokenizers } from "./check-config.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, configFile, readConfig } from "./config-flags.ts";
import { readVersion } from "./version.ts";

export function registerDoctor(program: Command): void {
  const command = addCommand(program, "doctor")
    .description(
      "Meets what `serve` with the same flags, file and environment will meet: this machine, listeners, secrets, " +
        "engines (health, models, metrics, KV events, tokenizers, adapters, clocks), overflow backends, the trace collector and the other routers. It joins no " +
        "mesh and listens nowhere, so it also runs beside a router. Every failed check names its setting and a fix; " +
        "exits with 1 if one failed.",
    )
    .addOption(
      new Option(
        "--admin <url>",
        "admin address of the running router (default: that of the configuration, if one runs)",
      ).env("ESPALIER_ADMIN_URL"),
    )
    .addOption(new Option("--key <key>", "admin key of running routers").env("ESPALIER_ADMIN_KEY"))
    .option("--json", "print JSON");
  addConfigFlags(command).action(async () => {
    const { json, ...asked } = command.opts<Asked & { json?: boolean }>();
    const checks = await examine(command, asked);
    if (json) writeJson(checks);
    else writeResult(describeChecks(checks));
    if (checks.some(({ status }) => status === "fail")) process.exitCode = 1;
  });
}

interface Asked {
  readonly admin?: string;
  readonly key?: string;
}

async function examine(command: Command, { admin, key }: Asked): Promise<readonly Check[]> {
  const machine = { node: process.versions.node, openFiles: openFileLimit() };
  const first = await runChecks(machineChecks, machine);
  const secretFiles: string[] = [];
  const path = configFile(command);
  const config = read(() => readConfig(command, path, (file) => file !== path && secretFiles.push(file)));
  if (!("effective" in config)) return [...first, ...config];
  return withHttpClient(async (http) => {
    const found = await findRunning(admin ?? adminUrlOf(config), key, http);
    if (admin !== undefined && !found.router && found.checks.length === 0) found.checks.push(unanswered(admin));
    const running = found.router && (await askRunning(found.router, http));
    const given = { config, secretFiles, running, version: readVersion(), ...machine };
    const isHere = admin === undefined || isLocal(admin);
    const [others, own] = await Promise.all([
      runChecks([...serviceChecks, ...routerChecks], given),
      withFleet(config, running, (fleet) => runChecks([...ownChecks, ...engineChecks], { ...given, isHere, fleet })),
    ]);
    return [
      ...first,
      ...checkConfiguration(config),
      ...found.checks,
      ...own,
      ...others,
      ...(running ? await runChecks(runningChecks, { ...given, running }) : []),
    ];
  });
}

/** Meets the engines as a router would. While one runs here, that one reads their events. */
async function withFleet(
  config: CompiledConfig,
  running: RunningReport | undefined,
  use: (fleet: FleetProbe) => Promise<readonly Check[]>,
): Promise<readonly Check[]> {
  try {
    const known = running ? await listedEngines(running) : [];
    const onWait = ([first, ...more]: readonly string[]) =>
      writeNote(`waiting for ${first}${more.length > 0 ? ` and ${more.length} more` : ""}`);
    const options = { openFiles: openFileLimit(), readsEvents: running === undefined, known, onWait };
    return await probeFleet(config, options, use);
  } catch (error) {
    const fix = "fix the file that the message names";
    return [{ check: "engine", ...fail("", reasonOf(error), { setting: "engine-tls", fix }) }];
  }
}

/** The configuration, or what is wrong with it: a line each. */
function read(config: () => CompiledConfig): CompiledConfig | readonly Check[] {
  try {
    return config();
  } catch (error) {
    if (!(error instanceof EspalierError)) throw error;
    const fix =
      error.code === "config_unreadable"
        ? "pass the file with --config, readable by this user"
        : "docs/CONFIGURATION.md describes every setting";
    return error.message.split("\n").map((line) => {
      const [, setting] = /^([a-z][\w.[\]-]*|--[a-z-]+): /.exec(line) ?? [];
      return { check: "configuration", ...fail("", line, { setting, fix }) };
    });
  }
}

function checkConfiguration(config: CompiledConfig): readonly Check[] {
  const { warnings } = config;
  const said = warnings.map((text) => warn("", text, { fix: "change the setting if that is not wanted" }));
  const missing = missingTokenizers(config).map((text) => ({ text, setting: text.slice(0, text.indexOf(":")) }));
  const events = eventWarnings(config).map((text) => ({ text, setting: "tokenizers" }));
  const fix = "set --tokenizer to the folder of the model's files";
  return [
    ...(said.length === 0 ? [pass("", "valid")] : said).map((one) => ({ check: "configuration", ...one })),
    ...[...missing, ...events].map(({ text, setting }) => ({
      check: "tokenizer",
      ...fail("", text, { setting, fix }),
    })),
  ];
}

interface Running {
  readonly router?: RunningRouter;
  readonly checks: Check[];
}

/** The admin address of a router of this configuration; undefined where it takes any free port. */
function adminUrlOf({ admin }: CompiledConfig): string | undefined {
  if (admin.port === 0) return undefined;
  const host = ["0.0.0.0", "::"].includes(admin.host) ? "127.0.0.1" : admin.host;
  return `${admin.tls ? "https" : "http"}://${hostInUrl(host)}:${admin.port}`;
}

const unanswered = (admin: string): Check => ({
  check: "running",
  ...fail(admin, "no router answers", {
    setting: "admin.port",
    fix: "start the router, or set --admin to its admin address",
  }),
});

/** Whether a router at a given address runs on this machine, with the ports of the configuration. */
const isLocal = (admin: string): boolean => URL.canParse(admin) && isLoopback(plainHost(new URL(admin).hostname));

/** The router at an admin address, if one runs there. */
async function findRunning(address: string | undefined, key: string | undefined, http: HttpClient): Promise<Running> {
  if (address === undefined) return { checks: [] };
  const adminUrl = address.replace(/\/$/, "");
  try {
    const { status, body, at } = await statusAt(http, adminUrl, key);
    if (status === 401) {
      const advice = { setting: "admin.key", fix: "pass --key or set ESPALIER_ADMIN_KEY" };
      return { checks: [{ check: "running", ...fail(adminUrl, "requires its admin key", advice) }] };
    }
    const found = JSON.parse(body) as Partial<RouterStatus>;
    if (typeof found.url !== "string") return { checks: [] };
    const says = pass(adminUrl, `a router runs: it reads KV events and has the ports, which are not checked`);
    return { router: { adminUrl, key, status: found as RouterStatus, at }, checks: [{ check: "running", ...says }] };
  } catch {
    // Nothing listens there, or another program, which the check of listeners tells.
    return { checks: [] };
  }
}

/** Engines that a running router has found, by whatever way. */
async function listedEngines({ adminUrl: admin, key }: RunningReport) {
  return askEngines({ admin, ...(key === undefined ? {} : { key }) });
}

const marks = { pass: "✓", warn: "!", fail: "✗" } as const;

/** A line for each check, its setting and fix behind it, and the count. Those that pass alike stand in one line. */
export function describeChecks(checks: readonly Check[]): string {
  const lines = new Map<string, readonly Check[]>();
  for (const one of checks) {
    const key = `${one.check} ${one.status === "pass" ? "" : one.target} ${one.message}`;
    lines.set(key, [...(lines.get(key) ?? []), one]);
  }
  const described = [...lines.values()].map((same) => {
    const { check, target, status, message, setting, fix } = same[0] as Check;
    const subject = same.length > 1 ? `${check} (${same.length})` : target === "" ? check : `${check} ${target}`;
    const advice = fix === null ? "" : ` → ${setting === null ? "" : `${setting}: `}${fix}`;
    return wrapText(`${marks[status]} ${subject}: ${message}${advice}`, 4);
  });
  const [failed, warned] = (["fail", "warn"] as const).map((is) => checks.filter(({ status }) => status === is).length);
  const warnings = warned === 0 ? "" : `, ${warned} with a warning`;
  const count = failed === 0 ? `all ${checks.length} checks passed` : `${failed} of ${checks.length} checks failed`;
  return [...described, "", count + warnings].join("\n");
}
