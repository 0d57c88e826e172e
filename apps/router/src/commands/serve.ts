import { availableParallelism } from "node:os";
import { resolve } from "node:path";
import { setFlagsFromString } from "node:v8";
import { type LogFields, type Logger, onStdinEnd, systemClock, systemRandom, systemScheduler } from "@espalier/core";
import type { CompiledConfig } from "@espalier/server";
import {
  type ConfigSource,
  createLogger,
  createRouter,
  type DashboardPage,
  type LoggerOptions,
  loadPlugins,
  type Router,
  type RouterGroup,
} from "@espalier/server";
import { type Command, Option } from "commander";
import { putEventLoopFirst } from "../event-loop-first.ts";
import { openFileLimit } from "../open-files.ts";
import { writeNote, writeResult } from "../output.ts";
import { createMeshSecret, launchClusterProcess } from "../processes/cluster-processes.ts";
import { isGroupMember, joinGroup, memberConfig } from "../processes/group-member.ts";
import type { MemberAddresses } from "../processes/process-group.ts";
import { ProcessGroup } from "../processes/process-group.ts";
import { missingTokenizers } from "./check-config.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, configFile, createConfigReader } from "./config-flags.ts";
import { readVersion } from "./version.ts";

/** The maximum for `auto`; a number may ask for as many. */
const maxProcesses = 64;

export function registerServe(program: Command): void {
  const command = addCommand(program, "serve").description(
    "Runs a router until SIGTERM or Ctrl-C. The first signal drains it: answers in flight finish. A second signal stops it at once. SIGHUP reloads the configuration, as a change of its file does. With --processes, all of that goes for each of them.",
  );
  command
    // For `espalier demo`, whose routers the user may kill: the page shows how.
    .addOption(new Option("--demo").hideHelp())
    .option("--json", "print the addresses as one JSON object on standard output, once the router serves")
    .option(
      "--exit-with-stdin",
      "drain, as on Ctrl-C, when standard input ends, as it does with the program that holds it",
    );
  addConfigFlags(command).action(async () => {
    const file = configFile(command);
    await serve({ file, read: createConfigReader(command, file) }, command.opts<ServeFlags>());
  });
}

interface ServeFlags {
  readonly demo?: boolean;
  readonly json?: boolean;
  readonly exitWithStdin?: boolean;
}

async function serve(source: ConfigSource, flags: ServeFlags): Promise<void> {
  if (isGroupMember()) return serveAsMember(source, flags);
  const outlive = process.send ? endWithParent() : () => {};
  try {
    const config = source.read();
    const count = config.processes === "auto" ? Math.min(availableParallelism(), maxProcesses) : config.processes;
    await (count > 1 ? serveAsGroup(config, count, flags) : serveAlone(source, config, flags));
  } finally {
    outlive();
  }
}

async function serveAlone(source: ConfigSource, config: CompiledConfig, flags: ServeFlags): Promise<void> {
  const { router, logger } = await startRouter({ source, config, flags });
  // Before the announcement: the parent may stop it as soon as it learns that it serves.
  const stopped = untilStopped(router, flags);
  process.on("SIGHUP", () => router.reload("signal"));
  logListening(router, logger);
  announce([router], flags);
  await stopped;
  await router.stop();
  // Pending output keeps the process alive. Flushing it here would wait forever if nothing reads it.
  logger.info("stopped");
}

/** One of several processes, started by the first one. */
async function serveAsMember(source: ConfigSource, flags: ServeFlags): Promise<void> {
  const outlive = endWithParent();
  const member = await joinGroup();
  try {
    const read = () => memberConfig(source.read(), member.place);
    const { router, logger } = await startRouter({
      ...{ source: { file: source.file, read }, config: read(), flags },
      ...{ group: member.group, fields: { process: member.place.index + 1 } },
    });
    const drained = member.serve(router, router);
    logListening(router, logger);
    await drained;
    await router.stop();
    logger.info("stopped");
  } finally {
    outlive();
    await member.leave();
  }
}

/** The first of several processes. It serves nothing itself; it starts, restarts and ends those that do. */
async function serveAsGroup(config: CompiledConfig, count: number, flags: ServeFlags): Promise<void> {
  const logger = createLogger(loggerOptions(config.log));
  const group = new ProcessGroup({
    ...{ count, launch: launchClusterProcess, logger },
    meshSecret: createMeshSecret(),
    ...{ clock: systemClock, scheduler: systemScheduler, random: systemRandom },
  });
  const members = await group.start();
  let isStopping = false;
  const stop = (isDelayed: boolean): void => {
    isStopping = true;
    group.stop(isDelayed);
  };
  process.on("SIGTERM", () => stop(true));
  process.on("SIGINT", () => stop(false));
  if (flags.exitWithStdin) onStdinEnd(() => isStopping || stop(false));
  process.on("SIGHUP", () => group.reload());
  announce(members, flags);
  await group.ended;
}

/** Standard error, as far as log lines depend on it. */
interface LogOutput {
  readonly isTTY?: boolean;
  /** Whether it shows colours; honours `NO_COLOR`. */
  hasColors?(): boolean;
}

/** Readable lines on a terminal, in colours if supported, and JSON elsewhere. */
export function loggerOptions(
  { level, format }: CompiledConfig["log"],
  output: LogOutput = process.stderr,
): Pick<LoggerOptions, "level" | "format" | "coloured"> {
  const isPretty = format === "pretty" || (format === "auto" && output.isTTY === true);
  return {
    level,
    format: isPretty ? "pretty" : "json",
    coloured: isPretty && output.isTTY === true && output.hasColors?.() === true,
  };
}

interface StartOptions {
  readonly source: ConfigSource;
  readonly config: CompiledConfig;
  readonly flags: ServeFlags;
  readonly group?: RouterGroup;
  /** Fields of every log line. */
  readonly fields?: LogFields;
}

/**
 * How far V8's heap may grow beyond what lives before all of it is collected. By itself V8 takes 10 to 300, by how fast the
 * heap fills; the bodies of requests fill memory beside the heap, and a router that gets few others ends at 10: a full
 * collection for each 250 bodies of 48 KB, though the young generation's collections free them.
 */
const heapGrowthPercent = 200;

async function startRouter({ source, config, flags, group, fields = {} }: StartOptions) {
  putEventLoopFirst();
  setFlagsFromString(`--heap-growing-percent=${heapGrowthPercent}`);
  const levelled = createLogger(loggerOptions(config.log));
  const logger = levelled.child(fields);
  outliveRejections(logger);
  const file = source.file && resolve(source.file);
  logger.info(file ? "configuration read" : "no configuration file; using flags, environment and defaults", { file });
  for (const warning of config.warnings) logger.warn(warning);
  for (const problem of missingTokenizers(config)) logger.error(problem);
  const dashboard = dashboardPage(config, flags.demo === true);
  const router = createRouter({
    config,
    ...(await loadPlugins(config.plugins)),
    ...(dashboard && { dashboard }),
    ...(group && { group }),
    openFiles: openFileLimit(),
    version: readVersion(),
    warmUpMs: config.warmUpMs,
    hasOthers: config.mesh.backend !== "off",
    configSource: source,
    onReload: ({ log }) => levelled.setLevel(log.level),
    logger,
    onDroppedLogLines: levelled.onDropped,
  });
  await router.start();
  return { router, logger };
}

/**
 * By default Node ends a process for a promise that was rejected while nobody held it. All routers may have the same
 * defect, or the same plugin, at the same moment, and again after each restart; what the promise stood for is one
 * operation.
 */
function outliveRejections(logger: Logger): void {
  process.on("unhandledRejection", (error) =>
    logger.error("unhandled promise rejection: a defect of the router or of a plugin; continuing", {
      error,
    }),
  );
}

function logListening({ url, adminUrl, rolloutsUrl, meshAddress, picker, config }: Router, logger: Logger): void {
  const addresses = {
    url,
    adminUrl,
    ...(rolloutsUrl !== null && { rolloutsUrl }),
    meshAddress,
    picker: picker?.address,
  };
  logger.info("listening", { ...addresses, policy: config.policy.name });
}

/** Reports to the parent, a program or the user where it serves. @param routers in order */
function announce(routers: readonly MemberAddresses[], flags: ServeFlags): void {
  const [first, ...others] = routers;
  if (!first) return;
  const { url, adminUrl, rolloutsUrl, meshAddress, picker } = first;
  const adminUrls = routers.map((router) => router.adminUrl);
  const addresses = { url, adminUrl, rolloutsUrl, meshAddress, picker, adminUrls };
  if (flags.json) writeResult(JSON.stringify(addresses));
  if (process.send) process.send({ type: "listening", ...addresses });
  else if (others.length === 0)
    writeNote(`espalier serves at ${url}, metrics and admin at ${adminUrl}${pickerNote(picker)}`);
  else
    writeNote(`espalier serves at ${url} by ${routers.length} processes, metrics and admin at ${adminUrls.join(" ")}`);
}

function pickerNote(picker: Router["picker"]): string {
  return picker === null ? "" : `, gateways at ${picker.address} (health checks: ${picker.healthAddress})`;
}

/** Not loaded before somebody opens the page. */
const loadDashboard = async () => (await import("@espalier/dashboard")).dashboardFiles();

function dashboardPage({ admin }: CompiledConfig, isDemo: boolean): DashboardPage | undefined {
  if (!admin.dashboard) return undefined;
  return { files: loadDashboard, ...(isDemo ? { killCommand: `kill -9 ${process.pid}` } : {}) };
}

/**
 * SIGTERM drains as configured, Ctrl-C drains without waiting for load balancers, and a second signal stops at once.
 * The end of standard input is no second signal.
 */
function untilStopped(router: Router, { exitWithStdin }: ServeFlags): Promise<void> {
  return new Promise((resolve) => {
    const stop = (delayMs: number): void => {
      const { graceMs } = router.config.drain;
      if (router.drain.started) router.drain.force();
      else void router.drain.run({ delayMs, graceMs }).then(() => resolve());
    };
    process.on("SIGTERM", () => stop(router.config.drain.delayMs));
    process.on("SIGINT", () => stop(0));
    if (exitWithStdin) onStdinEnd(() => router.drain.started || stop(0));
  });
}

/**
 * Ends this process when its parent exits or disconnects. Nothing reads the log then, and an orderly exit would wait
 * for it to be written.
 *
 * @returns cancels that: a finished process disconnects from its parent itself, and exits in order
 */
function endWithParent(): () => void {
  const end = (): void => {
    process.kill(process.pid, "SIGKILL");
  };
  if (process.connected) process.once("disconnect", end);
  else end();
  return () => process.off("disconnect", end);
}
