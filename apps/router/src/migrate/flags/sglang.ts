import type { Translation } from "../translation.ts";
import type { Finish, FlagRouter, GivenFlags } from "./flag-router.ts";
import { givenValue, setCollector } from "./translate-flags.ts";

const defaultMeshPort = 39_527;

/** The address of an engine in our form; undefined for one that is not reached over HTTP. */
function engineUrl(address: string): string | undefined {
  if (/^https?:\/\//.test(address)) return address;
  return address.includes("://") ? undefined : `http://${address}`;
}

/** How engines hand over KV blocks. */
function protocolOf(given: GivenFlags, { transfer = "sglang" }: FlagRouter): string {
  const connector = givenValue(given, "--kv-connector");
  if (connector === "mooncake") return connector;
  return givenValue(given, "--backend") === "vllm" ? "nixl" : transfer;
}

function translateEngines(given: GivenFlags, protocol: string, translation: Translation): void {
  const engines: unknown[] = [];
  const add = (flag: string, address: string, settings?: Readonly<Record<string, unknown>>): void => {
    const url = engineUrl(address);
    if (url !== undefined) engines.push(settings === undefined ? url : { url, ...settings });
    else {
      const why = "engines are reached over HTTP";
      translation.missing(`${flag} ${address}`, why, "the engine's HTTP port");
    }
  };
  for (const address of given.get("--worker-urls") ?? []) add("--worker-urls", address);
  const prefill = given.get("--prefill") ?? [];
  for (const [at, address] of prefill.entries()) {
    if (isPort(address)) continue;
    const port = Number(prefill[at + 1]);
    const transfer = { protocol, ...(Number.isInteger(port) && protocol === "sglang" ? { port } : {}) };
    add("--prefill", address, { role: "prefill", "kv-transfer": transfer });
  }
  for (const address of given.get("--decode") ?? []) {
    add("--decode", address, { role: "decode", "kv-transfer": { protocol } });
  }
  if (engines.length > 0) translation.settings.engines = engines;
}

/** What stands behind the address of a prefill engine. */
const isPort = (word: string): boolean => /^\d+$/.test(word) || word.toLowerCase() === "none";

function translateDiscovery(given: GivenFlags, transfer: string, translation: Translation): void {
  if (!given.has("--service-discovery")) return;
  const namespace = givenValue(given, "--service-discovery-namespace");
  if (namespace === undefined) {
    translation.remark({
      theirs: "--service-discovery-namespace, which is not given",
      outcome: "differs",
      ours: "the namespace of the service account",
      why: "theirs looks in all of them",
      instead: "an element of `discovery.pods` for each `namespace`",
    });
  }
  const place = {
    ...(namespace === undefined ? {} : { namespace }),
    port: Number(givenValue(given, "--service-discovery-port") ?? 80),
  };
  const pods = [
    ["--selector", {}],
    ["--prefill-selector", { role: "prefill", "kv-transfer": transfer }],
    ["--decode-selector", { role: "decode", "kv-transfer": transfer }],
  ] as const;
  translation.set(
    "discovery.pods",
    pods.flatMap(([flag, settings]) => {
      const selector = selectorOf(given, flag);
      return selector === undefined ? [] : [{ selector, ...place, ...settings }];
    }),
  );
}

/** Labels as one selector. They may be written as one word, too. */
function selectorOf(given: GivenFlags, flag: string): string | undefined {
  const labels = (given.get(flag) ?? []).flatMap((word) => word.split(" ")).filter((label) => label.includes("="));
  return labels.length === 0 ? undefined : labels.join(",");
}

function translateMesh(given: GivenFlags, translation: Translation): void {
  if (!given.has("--enable-mesh")) return;
  const port = Number(givenValue(given, "--mesh-port") ?? defaultMeshPort);
  const advertised = givenValue(given, "--mesh-advertise-host");
  const selector = selectorOf(given, "--router-selector");
  const seeds = (given.get("--mesh-peer-urls") ?? []).map((url) => url.replace(/^[a-z]+:\/\//, ""));
  translation.set("mesh.host", givenValue(given, "--mesh-host") ?? "0.0.0.0");
  translation.set("mesh.port", port);
  if (advertised !== undefined) translation.set("mesh.advertise", `${advertised}:${port}`);
  translation.set("mesh.seeds", seeds);
  if (selector !== undefined) translation.set("mesh.seed-pods", [{ selector, port }]);
}

/** What flags of SGLang's router and of those that came from it are together. */
export const finishSglang: Finish = (given, translation, router) => {
  const protocol = protocolOf(given, router);
  translateEngines(given, protocol, translation);
  translateDiscovery(given, protocol, translation);
  translateMesh(given, translation);
  if (given.has("--enable-trace")) {
    setCollector(givenValue(given, "--otlp-traces-endpoint") ?? "localhost:4317", "http", translation);
  }
  const model = givenValue(given, "--tokenizer-path") ?? givenValue(given, "--model-path");
  if (model !== undefined) {
    const path = model.replace(/\/tokenizer\.json$/, "");
    translation.set("tokenizers", [/^[./~]/.test(model) ? { path } : { mode: "engine" }]);
  }
};
