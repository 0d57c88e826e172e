import { readFileSync } from "node:fs";
import {
  EspalierError,
  type HttpClient,
  hostInUrl,
  isLoopback,
  plainHost,
  systemClock,
  wrapText,
} from "@espalier/core";
import type { RouterStatus } from "@espalier/server";
import { type CompiledConfig, parseEnginesFile } from "@espalier/server";
import { type Command, Option } from "commander";
import { askEngines, withHttpClient } from "../cli/admin-client.ts";
import { type Check, checkClock, cross, reasonOf, tick } from "../doctor/check.ts";
import { type CheckedEngine, checkEngines } from "../doctor/engine-checks.ts";
import { checkMachine, checkPorts, checkSecret } from "../doctor/machine-checks.ts";
import { checkRunning, checkSeeds, type RunningRouter } from "../doctor/router-checks.ts";
import { openFileLimit } from "../open-files.ts";
import { writeJson, writeResult } from "../output.ts";
import { eventWarnings, missingTokenizers } from "./check-config.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, configFile, readConfig } from "./config-flags.ts";
import { readVersion } from "./version.ts";

export function registerDoctor(program: Command): void {
  const command = addCommand(program, "doctor")
    .description(
      "Checks the requirements of a router with this configuration: this machine, " +
        "ports, secrets, engines (models, versions, clocks, tokenizers, event sockets) and the other " +
        "routers. Run it before or beside a router. Every failed check includes a fix; exits with 1 if one failed.",
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
    const { admin, key, json } = command.opts<{ admin?: string; key?: string; json?: boolean }>();
    const checks = await examine(() => readConfig(command, configFile(command)), admin, key);
    if (json) writeJson(checks);
    else writeResult(describeChecks(checks));
    if (checks.some(({ ok }) => !ok)) process.exitCode = 1;
  });
}

async function examine(
  read: () => CompiledConfig,
  admin: string | undefined,
  key: string | undefined,
): Promise<readonly Check[]> {
  const machine = checkMachine(process.versions.node, openFileLimit());
  const config = attempt(read);
  if (!("effective" in config)) return [...machine, config];
  return withHttpClient(async (http) => {
    const { router, checks } = await findRunning(admin ?? adminUrlOf(config), key, http);
    if (admin !== undefined && !router && checks.length === 0) checks.push(unanswered(admin));
    const file = readEnginesFile(config);
    const parts = await Promise.all([
      checkPorts(config, admin === undefined || isHere(admin) ? router?.status.url : undefined),
      checkEngines(config, enginesOf(config, file.engines, await listedEngines(router)), http),
      checkSeeds(config),
      router ? checkRunning(router, readVersion()) : [],
    ]);
    return [
      ...machine,
      ...checkConfiguration(config),
      ...file.checks,
      ...checkSecret(config),
      ...checks,
      ...parts.flat(),
    ];
  });
}

function attempt(read: () => CompiledConfig): CompiledConfig | Check {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof EspalierError)) throw error;
    return cross("configuration", "", error.message, "run `espalier check-config` for details");
  }
}

function checkConfiguration(config: CompiledConfig): readonly Check[] {
  const said = config.warnings.length === 0 ? "valid" : `valid, but: ${config.warnings.join(" ")}`;
  const absent = [...missingTokenizers(config), ...eventWarnings(config)].map((warning) =>
    cross("tokenizer", "", warning, "set --tokenizer to the folder of the model's files"),
  );
  return [tick("configuration", "", said), ...absent];
}

const timeoutMs = 2_000;
/** Largest answer of a router's admin API. */
const maxBytes = 16_777_216;

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

const unanswered = (admin: string): Check =>
  cross("router", admin, "no router answers", "start the router, or set --admin to its admin address");

/** Whether a router at a given address runs on this machine, with the ports of the configuration. */
const isHere = (admin: string): boolean => URL.canParse(admin) && isLoopback(plainHost(new URL(admin).hostname));

/** The router at an admin address, if one runs there. */
async function findRunning(address: string | undefined, key: string | undefined, http: HttpClient): Promise<Running> {
  if (address === undefined) return { checks: [] };
  const adminUrl = address.replace(/\/$/, "");
  const askedWallMs = systemClock.wallMs();
  try {
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const {
      status,
      body,
      headers: sent,
    } = await http({ url: `${adminUrl}/admin/status`, headers, timeoutMs, maxBytes });
    if (status === 401) {
      return {
        checks: [cross("router", adminUrl, "requires its admin key", "pass --key or set ESPALIER_ADMIN_KEY")],
      };
    }
    const found = JSON.parse(body) as Partial<RouterStatus>;
    if (typeof found.url !== "string") return { checks: [] };
    const clock = [...checkClock(adminUrl, sent.date, askedWallMs, systemClock.wallMs())];
    return { router: { adminUrl, key, status: found as RouterStatus }, checks: clock };
  } catch {
    // Nothing listens there, or another program, which the check of ports tells.
    return { checks: [] };
  }
}

/** Engines that a running router has found, by whatever way. */
async function listedEngines(router: RunningRouter | undefined): Promise<readonly string[]> {
  if (!router) return [];
  const { adminUrl: admin, key } = router;
  return (await askEngines({ admin, ...(key === undefined ? {} : { key }) })).map(({ url }) => url);
}

/** The engines of the configuration and its file, and those that only a running router knows. */
function enginesOf(
  { engines }: CompiledConfig,
  ofFile: readonly CheckedEngine[],
  listed: readonly string[],
): readonly CheckedEngine[] {
  const known = [...engines, ...ofFile];
  const urls = new Set(known.map(({ url }) => url));
  return [...known, ...listed.filter((url) => !urls.has(url)).map((url) => ({ url, models: [] }))];
}

function readEnginesFile({ enginesFile: path }: CompiledConfig) {
  if (path === undefined) return { engines: [], checks: [] };
  try {
    return { engines: parseEnginesFile(readFileSync(path, "utf8"), path), checks: [] };
  } catch (error) {
    return { engines: [], checks: [cross("engines file", path, reasonOf(error), "fix the file or its path")] };
  }
}

/** A line for each check, its fix behind it, and the count. Ticks that say the same stand in one line. */
export function describeChecks(checks: readonly Check[]): string {
  const lines = new Map<string, readonly Check[]>();
  for (const one of checks) {
    const key = one.ok ? `${one.check} ${one.says}` : `${one.check} ${one.of} ${one.says}`;
    lines.set(key, [...(lines.get(key) ?? []), one]);
  }
  const described = [...lines.values()].map((same) => {
    const { check, of, ok, says, fix } = same[0] as Check;
    const subject = same.length > 1 ? `${check} (${same.length})` : of === "" ? check : `${check} ${of}`;
    return wrapText(`${ok ? "✓" : "✗"} ${subject}: ${says}${fix === undefined ? "" : ` → ${fix}`}`, 4);
  });
  const wrong = checks.filter(({ ok }) => !ok).length;
  const count = wrong === 0 ? `all ${checks.length} checks passed` : `${wrong} of ${checks.length} checks failed`;
  return [...described, "", count].join("\n");
}
