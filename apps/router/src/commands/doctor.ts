import { readFileSync } from "node:fs";
import { EspalierError, type HttpClient, hostInUrl, systemClock, wrapText } from "@espalier/core";
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
      "Reads flags, environment and file as `serve` would, and checks what a router of that configuration needs: this machine, " +
        "its ports and secrets, the engines with their models, versions, clocks, tokenizers and event sockets, and the other " +
        "routers. Run it before a router, or beside one. Exits with 1 when something is wrong, and says how to mend it.",
    )
    .addOption(new Option("--key <key>", "admin key of the routers that run").env("ESPALIER_ADMIN_KEY"))
    .option("--json", "print JSON");
  addConfigFlags(command).action(async () => {
    const { key, json } = command.opts<{ key?: string; json?: boolean }>();
    const checks = await examine(() => readConfig(command, configFile(command)), key);
    if (json) writeJson(checks);
    else writeResult(describeChecks(checks));
    if (checks.some(({ ok }) => !ok)) process.exitCode = 1;
  });
}

async function examine(read: () => CompiledConfig, key: string | undefined): Promise<readonly Check[]> {
  const machine = checkMachine(process.versions.node, openFileLimit());
  const config = attempt(read);
  if (!("effective" in config)) return [...machine, config];
  return withHttpClient(async (http) => {
    const { router, checks } = await findRunning(config, key, http);
    const file = readEnginesFile(config);
    const parts = await Promise.all([
      checkPorts(config, router?.status.url),
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
    return cross("configuration", "", error.message, "`espalier check-config` reads it in the same way");
  }
}

function checkConfiguration(config: CompiledConfig): readonly Check[] {
  const said = config.warnings.length === 0 ? "valid" : `valid, but: ${config.warnings.join(" ")}`;
  const absent = [...missingTokenizers(config), ...eventWarnings(config)].map((warning) =>
    cross("tokenizer", "", warning, "--tokenizer names the folder of the model's files"),
  );
  return [tick("configuration", "", said), ...absent];
}

const timeoutMs = 2_000;
/** Largest answer of a router's admin API. */
const maxBytes = 16_777_216;

interface Running {
  readonly router?: RunningRouter;
  readonly checks: readonly Check[];
}

/** The router that has the admin address of this configuration, if one runs. */
async function findRunning({ admin }: CompiledConfig, key: string | undefined, http: HttpClient): Promise<Running> {
  if (admin.port === 0) return { checks: [] };
  const host = ["0.0.0.0", "::"].includes(admin.host) ? "127.0.0.1" : admin.host;
  const adminUrl = `${admin.tls ? "https" : "http"}://${hostInUrl(host)}:${admin.port}`;
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
        checks: [cross("router", adminUrl, "asks for its admin key", "--key, or ESPALIER_ADMIN_KEY, gives it")],
      };
    }
    const found = JSON.parse(body) as Partial<RouterStatus>;
    if (typeof found.url !== "string") return { checks: [] };
    const clock = checkClock(adminUrl, sent.date, askedWallMs, systemClock.wallMs());
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
    return { engines: [], checks: [cross("engines file", path, reasonOf(error), "correct the file, or its path")] };
  }
}

/** A line for each check, its mend behind it, and the count. Ticks that say the same stand in one line. */
export function describeChecks(checks: readonly Check[]): string {
  const lines = new Map<string, readonly Check[]>();
  for (const one of checks) {
    const key = one.ok ? `${one.check} ${one.says}` : `${one.check} ${one.of} ${one.says}`;
    lines.set(key, [...(lines.get(key) ?? []), one]);
  }
  const described = [...lines.values()].map((same) => {
    const { check, of, ok, says, mend } = same[0] as Check;
    const subject = same.length > 1 ? `${check} (${same.length})` : of === "" ? check : `${check} ${of}`;
    return wrapText(`${ok ? "✓" : "✗"} ${subject}: ${says}${mend === undefined ? "" : ` → ${mend}`}`, 4);
  });
  const wrong = checks.filter(({ ok }) => !ok).length;
  const count = wrong === 0 ? `all ${checks.length} checks passed` : `${wrong} of ${checks.length} checks failed`;
  return [...described, "", count].join("\n");
}
