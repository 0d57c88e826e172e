import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hostInUrl, systemClock, systemScheduler } from "@espalier/core";
import { type Child, getText } from "../processes/start-child.ts";
import type { EnvoyConfig } from "./envoy-config.ts";

export interface EnvoyListening {
  /** Where clients connect. */
  readonly url: string;
  readonly adminUrl: string;
}

export interface StartEnvoyOptions {
  /** The program: see `installEnvoy`. */
  readonly program: string;
  readonly config: EnvoyConfig;
  /** Threads that serve requests; 2 by default. */
  readonly threads?: number;
  readonly startTimeoutMs?: number;
  /** Aborts the start. */
  readonly signal?: AbortSignal;
}

/** A running Envoy. */
export interface EnvoyProcess extends Child<EnvoyListening> {
  /** The last lines that it wrote. */
  log(): string;
}

const standardStartMs = 20_000;
const killAfterMs = 1_500;
const askEveryMs = 20;
/** Latest log of Envoy that an error quotes. */
const keptLogBytes = 8_192;

/**
 * Starts Envoy and waits until it has found out which pickers are well and serves. It ends when this process has ended for
 * any reason.
 *
 * @throws Error with the last lines of its log if it ends first or is not ready in time; the reason of `signal` if that aborts
 */
export async function startEnvoy(options: StartEnvoyOptions): Promise<EnvoyProcess> {
  const { program, config, threads = 2, startTimeoutMs = standardStartMs, signal } = options;
  const folder = await mkdtemp(join(tmpdir(), "espalier-envoy-"));
  const configPath = join(folder, "envoy.json");
  const adminPath = join(folder, "admin");
  try {
    await writeFile(configPath, JSON.stringify(config));
    const envoy = launch(program, [
      ...["--config-path", configPath, "--admin-address-path", adminPath, "--concurrency", String(threads)],
      // Hot restarts share memory by a number that two Envoys on one machine must not share.
      ...["--log-level", "warning", "--disable-hot-restart"],
    ]);
    try {
      const deadlineMs = systemClock.nowMs() + startTimeoutMs;
      for (;;) {
        const listening = await askListening(adminPath);
        if (listening) return { ...envoy, listening };
        signal?.throwIfAborted();
        if (envoy.hasEnded()) throw new Error(`Envoy ended (${program})\n${envoy.log()}`);
        if (systemClock.nowMs() > deadlineMs)
          throw new Error(`Envoy was not ready within ${startTimeoutMs} ms\n${envoy.log()}`);
        await new Promise<void>((resolve) => systemScheduler.after(askEveryMs, resolve));
      }
    } catch (error) {
      await envoy.stop();
      throw error;
    }
  } finally {
    // Envoy has read its configuration.
    await rm(folder, { recursive: true, force: true });
  }
}

interface Launched extends Omit<EnvoyProcess, "listening"> {
  hasEnded(): boolean;
}

function launch(program: string, words: readonly string[]): Launched {
  const child = spawn(program, words, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  let isOver = false;
  const keep = (text: string): void => {
    log = (log + text).slice(-keptLogBytes);
  };
  child.stderr.setEncoding("utf8").on("data", keep);
  const guard = child.pid === undefined ? undefined : guardOf(child.pid);
  const exited = new Promise<number | null>((resolve) => {
    const end = (code: number | null): void => {
      isOver = true;
      guard?.kill("SIGKILL");
      resolve(code);
    };
    child.once("error", (error) => {
      keep(error.message);
      end(null);
    });
    // Its last lines have arrived.
    child.once("close", end);
  });
  return {
    process: child,
    exited,
    hasEnded: () => isOver,
    log: () => log.trim(),
    async stop() {
      if (isOver) return;
      child.kill("SIGTERM");
      const cancel = systemScheduler.after(killAfterMs, () => child.kill("SIGKILL"));
      await exited;
      cancel();
    },
  };
}

/**
 * Kills a process once this one is gone: then the guard's input ends. A program of our own watches its channel instead.
 * Ctrl-C reaches the whole process group, and must not end the guard first.
 */
function guardOf(pid: number): ChildProcess {
  const script = 'trap "" INT TERM HUP; read -r _; kill -9 "$1" 2> /dev/null';
  const guard = spawn("/bin/sh", ["-c", script, "sh", String(pid)], { stdio: ["pipe", "ignore", "ignore"] });
  // Without a shell there is no guard.
  guard.once("error", () => {});
  guard.unref();
  return guard;
}

/** @returns undefined until Envoy is ready */
async function askListening(adminPath: string): Promise<EnvoyListening | undefined> {
  const address = await readFile(adminPath, "utf8").catch(() => "");
  if (!address.includes(":")) return undefined;
  const adminUrl = `http://${address}`;
  if ((await getText(`${adminUrl}/ready`)) === undefined) return undefined;
  const listeners = await getText(`${adminUrl}/listeners?format=json`);
  return listeners === undefined ? undefined : { url: clientUrl(listeners), adminUrl };
}

function clientUrl(listeners: string): string {
  const { listener_statuses: statuses } = JSON.parse(listeners) as {
    readonly listener_statuses: readonly {
      readonly name: string;
      readonly local_address: { readonly socket_address: { readonly address: string; readonly port_value: number } };
    }[];
  };
  const { address, port_value: port } = statuses[0]!.local_address.socket_address;
  if (address === "0.0.0.0" || address === "::") return `http://127.0.0.1:${port}`;
  return `http://${hostInUrl(address)}:${port}`;
}
