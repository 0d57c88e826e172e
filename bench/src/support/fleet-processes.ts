import { shippedModelFolder } from "@espalier/tokenizer";
import {
  type Child,
  type LocalEnginesOptions,
  type LocalRouterOptions,
  type RouterListening,
  startLocalEngines,
  startLocalRouter,
} from "espalier-router";
import { benchModel } from "./bench-model.ts";
import { routerProgram } from "./router-program.ts";

/** What the engines and routers of a fleet have in common. */
export interface FleetProcessesOptions
  extends Pick<LocalEnginesOptions, "preset" | "speed" | "blocks">,
    Pick<LocalRouterOptions, "policy" | "arguments"> {
  /** How long a process may take to start: a busy machine is no failure. */
  readonly startTimeoutMs: number;
}

export type EngineProcess = Awaited<ReturnType<FleetProcesses["startEngine"]>>;

/** Simulated engines with KV events and routers of a mesh, each a process. All use the shipped tokenizer. */
export class FleetProcesses {
  readonly #options: FleetProcessesOptions;
  readonly #children: Child<unknown>[] = [];

  constructor(options: FleetProcessesOptions) {
    this.#options = options;
  }

  /** @returns its URL, and the routers' name for it */
  async startEngine() {
    const own = { count: 1, model: benchModel, port: 0, kvEvents: true, tokenizer: shippedModelFolder() };
    const child = await startLocalEngines({ ...this.#options, ...own });
    this.#children.push(child);
    const { url } = child.listening.engines[0]!;
    return { id: new URL(url).host, url, child };
  }

  /** @param others routers that run, with which it links */
  async startRouter(
    routerId: string,
    others: readonly Child<RouterListening>[],
    place: Pick<LocalRouterOptions, "engineUrls" | "port">,
  ): Promise<Child<RouterListening>> {
    const own = { adminPort: 0, tokenizer: shippedModelFolder(), runBy: routerProgram };
    const child = await startLocalRouter({
      ...{ ...this.#options, ...place, ...own },
      mesh: { routerId, seeds: others.flatMap(({ listening }) => listening.meshAddress ?? []) },
      arguments: ["--log-level", "error", ...(this.#options.arguments ?? [])],
    });
    this.#children.push(child);
    return child;
  }

  /** Ends all that still run. */
  async stop(): Promise<void> {
    await Promise.all(this.#children.splice(0).map((child) => child.stop()));
  }
}

/** Ends a process by a signal. @returns its exit code; null when it did not exit by itself */
export function endBy(signal: "SIGTERM" | "SIGKILL", { process, exited }: Child<unknown>): Promise<number | null> {
  process.kill(signal);
  return exited;
}

/** Starts a fleet; one that does not start is stopped. */
export async function started<Fleet extends { start(): Promise<void>; stop(): Promise<void> }>(
  fleet: Fleet,
): Promise<Fleet> {
  try {
    await fleet.start();
    return fleet;
  } catch (thrown) {
    await fleet.stop();
    throw thrown;
  }
}
