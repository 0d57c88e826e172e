import { shippedModelFolder } from "@espalier/tokenizer";
import {
  type Child,
  type EnvoyOptions,
  type EnvoyProcess,
  envoyConfig,
  pickerOf,
  type RouterListening,
  standardEnvoyLimits,
  startEnvoy,
  startRouters,
} from "espalier-router";
import type { Json } from "./client.ts";
import { pickerConfig } from "./gateway.ts";
import { type EngineLike, type MeshOptions, meshRouters } from "./mesh-rig.ts";
import type { Rig, RunningRouter } from "./rig.ts";

const host = "127.0.0.1";

/** What an Envoy of a test is, where it is not as shipped. */
export type GatewayOptions = Partial<Omit<EnvoyOptions, "listen" | "admin" | "pickers" | "engines">>;

export interface Gateway {
  readonly url: string;
  readonly envoy: EnvoyProcess;
  /** A statistic of Envoy, by its whole name. */
  stat(name: string): Promise<number>;
}

/** Starts the real Envoy before endpoint pickers. */
export async function startGateway(
  rig: Rig,
  program: string,
  pickers: readonly Pick<RouterListening, "url" | "picker">[],
  engines: readonly EngineLike[],
  options: GatewayOptions = {},
): Promise<Gateway> {
  const config = envoyConfig({
    listen: { host, port: 0 },
    admin: { host, port: 0 },
    pickers: pickers.map(pickerOf),
    engines: engines.map(({ url }) => ({ host, port: Number(new URL(url).port) })),
    requestBody: "full-duplex",
    answersThroughPicker: true,
    limits: standardEnvoyLimits,
    ...options,
  });
  const envoy = await startEnvoy({ program, config, threads: 1 });
  rig.own(() => envoy.stop());
  const { url, adminUrl } = envoy.listening;
  return {
    url,
    envoy,
    async stat(name) {
      const text = await (await fetch(`${adminUrl}/stats?filter=^${name}$`)).text();
      return Number(text.split(": ")[1] ?? Number.NaN);
    },
  };
}

/** Three routers of a mesh in this process, each an endpoint picker. */
export async function meshPickers(
  rig: Rig,
  engines: readonly EngineLike[],
  { config = {}, ...more }: MeshOptions = {},
): Promise<readonly (RunningRouter & Pick<RouterListening, "picker">)[]> {
  const given = config["endpoint-picker"] as Json | undefined;
  const options = { ...more, config: { ...config, "endpoint-picker": { ...pickerConfig, ...given } } };
  const routers = await meshRouters(rig, 3, engines, options);
  return routers.map((router) => ({ ...router, picker: router.router.picker }));
}

/** Three routers of a mesh, each an endpoint picker and a process of its own, which can be killed and stopped. */
export async function pickerProcesses(
  rig: Rig,
  engines: readonly EngineLike[],
  words: readonly string[] = [],
): Promise<readonly Child<RouterListening>[]> {
  const children: Child<RouterListening>[] = [];
  rig.own(() => Promise.all(children.map((child) => child.stop())));
  const settings = { port: 0, adminPort: 0, tokenizer: shippedModelFolder(), arguments: words, isPicker: true };
  await startRouters(
    {
      ...{ count: 3, sharing: "mesh", untilEngines: engines.length },
      optionsOf: () => ({ engineUrls: engines.map(({ url }) => url), ...settings }),
    },
    children,
  );
  return children;
}
