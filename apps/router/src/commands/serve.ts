import { type ConfigSource, createRouter, type Router } from "@espalier/server";
import { createLogger } from "@espalier/telemetry";
import type { Command } from "commander";
import { writeNote } from "../output/write.ts";
import { addCommand } from "./command-list.ts";
import { addConfigFlags, readConfig } from "./config-flags.ts";

export function registerServe(program: Command): void {
  const command = addCommand(program, "serve").description(
    "Runs a router until SIGTERM or Ctrl-C. On the first signal it drains: open answers may finish; the second one stops it at once. SIGHUP reads the configuration again, as a change of its file does.",
  );
  addConfigFlags(command).action(async () => {
    const { config: file } = command.opts<{ config?: string }>();
    await serve({ file, read: () => readConfig(command) });
  });
}

async function serve(source: ConfigSource): Promise<void> {
  const config = source.read();
  const outlive = process.send ? endWithParent() : () => {};
  const logger = createLogger(config.log);
  for (const warning of config.warnings) logger.warn(warning);
  const router = createRouter({
    config,
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
