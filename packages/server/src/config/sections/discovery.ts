import { hostInUrl, isLoopback, kvPullProtocols, kvTransferProtocols, plainHost } from "@espalier/core";
import { Type } from "typebox";
import type { Environment } from "../interpolate.ts";
import type { Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, flag, integer, list, map, number, section, text } from "../schema-builders.ts";
import { compiled, type SettingsOf } from "../settings-of.ts";
import { engineRegion, firstRank } from "./engines.ts";
import {
  checkPods,
  checkPortOf,
  checkServer,
  checkTwice,
  nameOfPods,
  nameServers,
  podPlace,
  port,
  portOf,
  recordsPattern,
  service,
  splitNamespace,
  splitPort,
  withOnePort,
} from "./network-places.ts";

/** Sources of each kind. */
const maxSources = 16;

/** `none` is nothing in code. */
const unlessNone = <Protocol extends string>(protocol: Protocol) =>
  protocol === "none" ? undefined : (protocol as Exclude<Protocol, "none">);

/** Settings for every engine of a source. Annotations and labels in Kubernetes override them. */
const traits = {
  scheme: choice(["http", "https"], { description: "URL scheme of the engines.", default: "http" }),
  models: list(text({ description: "Name of a model.", maxLength: 256 }), {
    description: "Models that the engines serve. With an empty list, the router asks each engine.",
    maxItems: 1_000,
  }),
  role: choice(["both", "prefill", "decode"], {
    description: "Which part of a request the engines compute: `prefill`, `decode`, or `both`.",
    default: "both",
  }),
  weight: number({
    description: "Relative share of traffic for each of the engines.",
    minimum: 0.001,
    maximum: 1_000_000,
    default: 1,
  }),
  region: Type.Optional(
    engineRegion(
      "Region of the engines, by the names of the routers' `mesh.region`. In Kubernetes, the default is the label `topology.kubernetes.io/region`.",
    ),
  ),
  ranks: integer({
    description:
      "Number of data-parallel ranks of each engine. The router picks a rank per request and names it in `x-data-parallel-rank`.",
    default: 1,
    minimum: 1,
    maximum: 64,
  }),
  "first-rank": firstRank("each engine's"),
  "kv-events-port": port(
    "Port where rank 0 of each engine publishes KV events. Without it, the router asks each engine.",
  ),
  "kv-replay-port": port("Port where missed KV events are replayed. Used only together with `kv-events-port`."),
  "kv-topic": text({
    description: "Topic prefix: only KV events whose topic starts with it are read.",
    minLength: 0,
    default: "",
  }),
  "kv-transfer": compiled(
    choice(["none", ...kvTransferProtocols], {
      description: "How the engines transfer KV blocks, for requests split between a prefill and a decode engine.",
      default: "none",
    }),
    unlessNone,
  ),
  "kv-transfer-port": port("Port of an engine's side of the transfer, if it is not the protocol's default."),
  "kv-pull": compiled(
    choice(["none", ...kvPullProtocols], {
      description: "How the engines fetch KV blocks of prompts from each other.",
      default: "none",
    }),
    unlessNone,
  ),
  "kv-pull-port": port("Port of an engine's side channel for that, if it is not the protocol's default."),
  labels: map(text({ description: "Value of a label.", minLength: 0, maxLength: 256 }), {
    description: "Free-form labels of the engines.",
    maxProperties: 64,
  }),
};

const family = choice(["auto", "ipv4", "ipv6"], {
  description:
    "Which address family to use. `auto` uses IPv6 addresses only if there are no IPv4 ones, so that an engine with both counts once.",
  default: "auto",
});

const dnsSource = section(
  "A DNS name whose addresses are engines. A plain string is the `name`.",
  {
    name: text({
      description:
        "The DNS name. With `HOST:PORT`, every address of the host is an engine at that port; with `_SERVICE._PROTOCOL.HOST`, every SRV record is an engine.",
      maxLength: 260,
      pattern: `^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\\.?:\\d{1,5}|${recordsPattern})$`,
      expected: "HOST:PORT or _SERVICE._PROTOCOL.HOST",
    }),
    interval: duration({
      description: "Time between two DNS queries for the name.",
      default: "5s",
      minimum: "100ms",
      maximum: "10m",
    }),
    misses: integer({
      description: "Answers in a row that lack an address before its engine is removed.",
      default: 3,
      minimum: 1,
      maximum: 100,
    }),
    servers: nameServers({ description: "Name servers to query. With an empty list, the system's are used." }),
    family,
    ...traits,
  },
  { shorthand: "name" },
);

/** The name has a port in it, unless it is of records. As in each source, the traits of its engines are one object in code. */
const dns = list(
  compiled(dnsSource, ({ name: written, intervalMs, misses, servers, family, ...traits }) => {
    const { name, port: digits } = splitPort(written);
    return { name, port: portOf(digits), intervalMs, misses, servers, family, traits };
  }),
  {
    description: "DNS names whose addresses are engines. They are resolved periodically.",
    maxItems: maxSources,
    flag: "discover-dns",
  },
);

const serviceSource = section(
  "A Kubernetes service whose endpoints are engines. A plain string is the `service`.",
  {
    service: service(),
    family,
    ...traits,
  },
  { shorthand: "service" },
);

const services = list(
  compiled(serviceSource, ({ service: place, family, ...traits }) => ({ ...place, family, traits })),
  {
    description: "Kubernetes services. Every ready endpoint is an engine.",
    maxItems: maxSources,
    flag: "discover-kubernetes",
  },
);

const podSource = section("Kubernetes pods that are engines.", {
  ...podPlace("engines"),
  ...traits,
});

const pods = list(
  compiled(podSource, ({ selector, namespace, port: number, portName, ...traits }) => ({
    ...withOnePort({ selector, namespace, port: number, portName }),
    traits,
  })),
  { description: "Kubernetes pods, selected by labels. Every ready pod is an engine.", maxItems: maxSources },
);

const inferencePoolSource = section(
  "An InferencePool of the Gateway API Inference Extension. A plain string is the `pool`.",
  {
    pool: text({
      description: "Name of the pool: `NAMESPACE/NAME`, or `NAME` in the namespace of the service account.",
      maxLength: 320,
      pattern: "^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
      expected: "NAMESPACE/NAME",
    }),
    objectives: flag({
      description:
        "Follow the InferenceObjectives of the pool. Requests that name one in `x-llm-d-inference-objective` get its priority.",
      default: true,
    }),
    "model-rewrites": flag({
      description:
        "Follow the InferenceModelRewrites of the pool. They define aliases and splits of models, like `models.aliases` and `models.splits`.",
      default: true,
    }),
    ...traits,
  },
  { shorthand: "pool" },
);

const inferencePools = list(
  compiled(inferencePoolSource, ({ pool: written, objectives, modelRewrites, ...traits }) => {
    const { namespace, name: pool } = splitNamespace(written);
    return { namespace, pool, objectives, modelRewrites, traits };
  }),
  {
    description: "InferencePools. Every pod that one selects is an engine, one for each target port.",
    maxItems: maxSources,
    flag: "discover-inference-pool",
  },
);

export const discovery = section("Discovery of engines, in addition to `engines` and `engines-file`.", {
  dns,
  services,
  pods,
  "inference-pools": inferencePools,
  kubernetes: section("Access to the Kubernetes API server. Inside a cluster, the defaults work.", {
    "api-server": Type.Optional(
      text({
        description:
          "URL of the Kubernetes API server: `https://HOST:PORT`. Default: the API server of the cluster the router runs in.",
        maxLength: 2_048,
        pattern: "^https?://[^\\s/?#@\\\\]+$",
        expected: "an http:// or https:// URL without path",
      }),
    ),
    "token-file": Type.Optional(
      filePath(
        "File with the bearer token for the Kubernetes API server. The router reads it again before each request. Default: the service account's token, unless `api-server` is set.",
      ),
    ),
    "ca-file": Type.Optional(
      filePath(
        "PEM file with the certificate authorities to trust for the Kubernetes API server. Default: the service account's, unless `api-server` is set.",
      ),
    ),
  }),
});

type DiscoverySettings = SettingsOf<typeof discovery>;

/** Sources of engines in addition to the configured list. An undefined namespace is the service account's. */
export interface DiscoveryConfig extends DiscoverySettings {
  readonly kubernetes: DiscoverySettings["kubernetes"] & { readonly apiServer: string };
}

/** Where Kubernetes mounts the token, the certificates and the namespace of a pod's service account. */
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Inside a cluster the API server is found by the variables that every pod has, else by its name. */
export function withApiServer(
  settings: DiscoverySettings,
  { KUBERNETES_SERVICE_HOST: host = "", KUBERNETES_SERVICE_PORT: port = "" }: Environment,
): DiscoveryConfig {
  const { apiServer, tokenFile, caFile } = settings.kubernetes;
  if (apiServer !== undefined) return { ...settings, kubernetes: { apiServer, tokenFile, caFile } };
  const kubernetes = {
    apiServer:
      host === "" ? "https://kubernetes.default.svc" : `https://${hostInUrl(host)}:${port === "" ? "443" : port}`,
    tokenFile: tokenFile ?? `${accountFolder}/token`,
    caFile: caFile ?? `${accountFolder}/ca.crt`,
  };
  return { ...settings, kubernetes };
}

/** Checks that ports and addresses are valid, no source is listed twice, and no token is sent in the clear. */
export function checkDiscovery({ discovery }: ConfigTree): Problem[] {
  const { dns, services, pods, kubernetes, "inference-pools": inferencePools } = discovery;
  const problems = [
    ...dns.flatMap(({ name, servers }, at) => [
      ...checkPortOf(name, ["discovery", "dns", at, "name"]),
      ...servers.flatMap((server, index) => checkServer(server, ["discovery", "dns", at, "servers", index])),
    ]),
    ...services.flatMap(({ service }, at) => checkPortOf(service, ["discovery", "services", at, "service"])),
    ...pods.flatMap((one, at) => checkPods(one, ["discovery", "pods", at])),
    ...checkTwice(
      dns.map(({ name }) => name),
      ["discovery", "dns"],
    ),
    ...checkTwice(
      services.map(({ service }) => service),
      ["discovery", "services"],
    ),
    ...checkTwice(pods.map(nameOfPods), ["discovery", "pods"]),
    ...checkTwice(
      inferencePools.map(({ pool }) => pool),
      ["discovery", "inference-pools"],
    ),
  ];
  const { "api-server": server = "", "token-file": tokenFile } = kubernetes;
  const path = ["discovery", "kubernetes", "api-server"];
  if (server !== "" && !URL.canParse(server))
    problems.push({ path, message: `${JSON.stringify(server)} is not a URL` });
  else if (server.startsWith("http:") && tokenFile !== undefined && !isLoopback(plainHost(new URL(server).hostname))) {
    problems.push({ path, message: "must be https://, because a token is sent there" });
  }
  return problems;
}
