import type { Logger } from "@espalier/common";
import type { CompiledConfig } from "@espalier/config";
import { dashboardFiles } from "@espalier/dashboard";
import { type ConfigSource, createRouter, type DashboardPage, type Router } from "@espalier/server";
import { createLogger } from "@espalier/telemetry";
import { type Command, Option } from "commander";
import { writeNote } from "../output/write.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, readConfig } from "./config-flags.ts";

export function registerServe(program: Command): void {
  const command = addCommand(program, "serve").description(
    "Runs a router until SIGTERM or Ctrl-C. On the first signal it drains: open answers may finish; the second one stops it at once. SIGHUP reads the configuration again, as a change of its file does.",
  );
  // For `espalier demo`, which runs routers to be killed: the page says how.
  command.addOption(new Option("--demo").hideHelp());
  addConfigFlags(command).action(async () => {
    const { config: file, demo = false } = command.opts<{ config?: string; demo?: boolean }>();
    await serve({ file, read: () => readConfig(command) }, demo);
  });
}

async function serve(source: ConfigSource, isDemo: boolean): Promise<void> {
  const config = source.read();
  const outlive = process.send ? endWithParent() : () => {};
  const logger = createLogger(config.log);
  for (const warning of config.warnings) logger.warn(warning);
  const dashboard = dashboardPage(config, logger, isDemo);
  const router = createRouter({
    config,
    ...(dashboard && { dashboard }),
    configSource: source,
    onReload: ({ log }) => logger.setLevel(log.level),
    logger,
  });
  await router.start();
  // Before it is announced: whoever hears that it serves may stop it at once.
  const stopped = untilStopped(router);
  process.on("SIGHUP", () => router.reload("signal"));
  const { url, adminUrl, meshAddress } = router;
  logger.info("listening", { url, adminUrl, meshAddress, policy: config.policy.name });
  if (process.send)
    process.send({ type: "listening", url: router.url, adminUrl: router.adminUrl, meshAddress: router.meshAddress });
  else writeNote(`espalier serves at ${router.url}, metrics and admin at ${router.adminUrl}`);
  await stopped;
  await router.stop();
  outlive();
  // What is still to be written holds the process. To flush it here would wait for ever if nobody reads it any more.
  logger.info("stopped");
}

function dashboardPage({ admin }: CompiledConfig, logger: Logger, isDemo: boolean): DashboardPage | undefined {
  if (!admin.hasDashboard) return undefined;
  const files = dashboardFiles();
  if (files.length === 0) logger.warn("there is no dashboard: it was never built; `npm run build` does that");
  return { files, ...(isDemo ? { killCommand: `kill -9 ${process.pid}` } : {}) };
}

/** SIGTERM drains as configured, Ctrl-C without waiting for load balancers; whoever signals twice means now. */
function untilStopped(router: Router): Promise<void> {
  return new Promise((resolve) => {
    const stop = (delayMs: number): void => {
      const { graceMs } = router.config.drain;
      if (router.drain.started) router.drain.force();
      else void router.drain.run({ delayMs, graceMs }).then(() => resolve());
    };
    process.on("SIGTERM", () => stop(router.config.drain.delayMs));
    process.on("SIGINT", () => stop(0));
  });
}

/**
 * When the process that forked this one is gone, or lets go of it, nobody is left to serve. Nobody reads the log either,
 * and an exit in order would wait for it to be written.
 *
 * @returns ends that: a process that is done lets go of its parent itself, and exits in order
 */
function endWithParent(): () => void {
  const end = (): void => {
    process.kill(process.pid, "SIGKILL");
  };
  if (process.connected) process.once("disconnect", end);
  else end();
  return () => process.off("disconnect", end);
}
