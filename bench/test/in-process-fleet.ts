import { EventEmitter } from "node:events";
import { silentLogger } from "@espalier/core";
import { startEngineSim } from "@espalier/engine-sim";
import { createRouter, type FlagValues, loadConfig } from "@espalier/server";
import { waitFor } from "@espalier/testing";
import type {
  Child,
  EnginesListening,
  LocalEnginesOptions,
  RouterListening,
  StartRoutersOptions,
} from "espalier-router";

/** Stands in for the engines' process. */
export async function startEnginesHere(options: LocalEnginesOptions): Promise<Child<EnginesListening>> {
  const { count, model, speed, kvEvents } = options;
  const sim = await startEngineSim({
    engines: count,
    models: [model],
    speed,
    preset: "h100-32b-tp2",
    ...(kvEvents ? { kvEvents: { dialect: "vllm-0.32" } as const } : {}),
  });
  return childOf({ engines: sim.engines }, () => sim.stop());
}

/** Stands in for the routers' processes. A router that is killed is stopped, as far as one can be here. */
export async function startRoutersHere(
  { count, sharing, optionsOf, untilEngines }: StartRoutersOptions,
  children: Child<unknown>[],
): Promise<readonly RouterListening[]> {
  const routers: RouterListening[] = [];
  for (let index = 0; index < count; index++) {
    const { engineUrls, policy = "cache_aware", arguments: more = [] } = optionsOf(index);
    const seeds = routers.flatMap(({ meshAddress }) => (meshAddress === null ? [] : [meshAddress]));
    const flags: FlagValues = {
      "--listen-port": "0",
      "--admin-port": "0",
      "--engine": engineUrls,
      "--policy": policy,
      ...(sharing === "mesh" && count > 1
        ? { "--mesh-port": "0", "--mesh-router-id": `router-${index + 1}`, "--mesh-seed": seeds }
        : {}),
      ...Object.fromEntries(pairs(more)),
    };
    const router = createRouter({ config: loadConfig({ flags }), logger: silentLogger });
    await router.start();
    const listening = {
      url: router.url,
      adminUrl: router.adminUrl,
      meshAddress: addressOf(router.meshAddress),
      picker: null,
    };
    children.push(childOf(listening, () => router.stop()));
    await waitFor(() => router.readiness().ready, { what: `${untilEngines} usable engines` });
    routers.push(listening);
  }
  return routers;
}

function addressOf(url: string | null): string | null {
  return url === null ? null : url.replace(/^\w+:\/\//, "");
}

function pairs(words: readonly string[]): readonly (readonly [string, string])[] {
  return words.flatMap((word, at) => (at % 2 === 0 ? [[word, words[at + 1] ?? ""] as const] : []));
}

function childOf<Listening>(listening: Listening, end: () => Promise<unknown>): Child<Listening> {
  let ended: Promise<number | null> | undefined;
  let resolveEnded: (code: number | null) => void = () => {};
  const exited = new Promise<number | null>((resolve) => {
    resolveEnded = resolve;
  });
  const stop = async (): Promise<void> => {
    ended ??= end().then(() => null);
    resolveEnded(await ended);
  };
  const process = Object.assign(new EventEmitter(), {
    kill: () => {
      void stop();
      return true;
    },
  });
  return { listening, process: process as unknown as Child<Listening>["process"], exited, stop };
}
