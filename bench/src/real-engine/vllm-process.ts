import { type ChildProcess, spawn } from "node:child_process";
import { openSync } from "node:fs";
import { join } from "node:path";
import { systemClock, systemScheduler } from "@espalier/core";
import { freePorts } from "../support/free-ports.ts";
import { untilNothingMissing } from "../support/until.ts";

/** A running vLLM server. */
export interface VllmProcess {
  /** `http://127.0.0.1:PORT` */
  readonly url: string;
  readonly ports: VllmPorts;
  /** Kills it as a crash would. */
  kill(): Promise<void>;
}

export interface VllmOptions {
  readonly python: string;
  /** Folder of the model. */
  readonly model: string;
  /** Folder for its log. */
  readonly logs: string;
  readonly name: string;
  /** Uses this port instead of a free one, so that it returns at the same address. */
  readonly ports?: VllmPorts;
}

interface VllmPorts {
  readonly http: number;
  readonly events: number;
  readonly replay: number;
}

const startTimeoutMs = 240_000;

/**
 * Starts a vLLM server with random weights on the CPU and waits until it is healthy.
 *
 * @throws Error when it ends or takes longer than four minutes; its log says why
 */
export async function startVllm(options: VllmOptions): Promise<VllmProcess> {
  const { python, model, logs, name } = options;
  const ports = options.ports ?? (await newPorts());
  const events = {
    enable_kv_cache_events: true,
    publisher: "zmq",
    endpoint: `tcp://*:${ports.events}`,
    replay_endpoint: `tcp://*:${ports.replay}`,
    topic: "kv-events",
  };
  const flags = [
    ["--model", model, "--served-model-name", "tiny", "--load-format", "dummy", "--dtype", "bfloat16"],
    ["--enforce-eager", "--max-model-len", "2048", "--max-num-seqs", "16"],
    ["--block-size", "32", "--num-gpu-blocks-override", "96", "--enable-prefix-caching"],
    ["--enable-prompt-tokens-details", "--host", "127.0.0.1", "--port", String(ports.http)],
    ["--kv-events-config", JSON.stringify(events)],
  ].flat();
  const log = openSync(join(logs, `${name}.log`), "w");
  const child = spawn(python, ["-m", "vllm.entrypoints.openai.api_server", ...flags], {
    stdio: ["ignore", log, log],
    // A process group of its own, so that its workers end with it.
    detached: true,
    env: {
      PATH: "/usr/bin:/bin",
      HOME: logs,
      VLLM_CPU_KVCACHE_SPACE: "1",
      VLLM_SERVER_DEV_MODE: "1",
      HF_HUB_OFFLINE: "1",
    },
  });
  const kill = () => killGroup(child);
  const url = `http://127.0.0.1:${ports.http}`;
  try {
    await untilHealthy(url, child);
  } catch (error) {
    await kill();
    throw new Error(`${name} did not start; see ${join(logs, `${name}.log`)}`, { cause: error });
  }
  return { url, ports, kill };
}

async function newPorts(): Promise<VllmPorts> {
  const [http = 0, events = 0, replay = 0] = await freePorts(3);
  return { http, events, replay };
}

function untilHealthy(url: string, child: ChildProcess): Promise<void> {
  const missing = async (): Promise<string | undefined> => {
    if (child.exitCode !== null) throw new Error(`it ended with ${child.exitCode}`);
    const isHealthy = await fetch(`${url}/health`).then(
      ({ ok }) => ok,
      () => false,
    );
    return isHealthy ? undefined : "it was not healthy";
  };
  return untilNothingMissing(missing, startTimeoutMs, { clock: systemClock, scheduler: systemScheduler });
}

function killGroup(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) {
      resolve();
      return;
    }
    child.once("exit", () => resolve());
    process.kill(-child.pid, "SIGKILL");
  });
}
