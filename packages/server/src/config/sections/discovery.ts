import { isIP } from "node:net";
import { type EngineTraits, isLoopback, kvPullProtocols, kvTransferProtocols, plainHost } from "@espalier/core";
import { Type } from "typebox";
import type { Environment } from "../interpolate.ts";
import type { Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, flag, integer, list, map, number, section, text } from "../schema-builders.ts";
import { engineRegion, firstRank } from "./engines.ts";
import {
  checkPods,
  checkPortOf,
  checkServer,
  checkTwice,
  compilePods,
  compileService,
  nameOfPods,
  nameServers,
  podPlace,
  port,
  portOf,
  recordsPattern,
  service,
  splitNamespace,
  splitPort,
} from "./network-places.ts";

const maxSources = 16;

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
      "Where the engines are, in the words of the routers' `mesh.region`. In Kubernetes, the label `topology.kubernetes.io/region` says so too.",
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
  "kv-transfer": choice(["none", ...kvTransferProtocols], {
    description: "How the engines transfer KV blocks, for requests split between a prefill and a decode engine.",
    default: "none",
  }),
  "kv-transfer-port": port("Port of an engine's side of the transfer, if it is not the protocol's default."),
  "kv-pull": choice(["none", ...kvPullProtocols], {
    description: "How the engines fetch KV blocks of prompts from each other.",
    default: "none",
  }),
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

const dns = list(
  section(
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
  ),
  {
    description: "DNS names whose addresses are engines. They are resolved again and again.",
    maxItems: maxSources,
    flag: "discover-dns",
  },
);

const services = list(
  section(
    "A Kubernetes service whose endpoints are engines. A plain string is the `service`.",
    {
      service: service(),
      family,
      ...traits,
    },
    { shorthand: "service" },
  ),
  {
    description: "Kubernetes services. Every ready endpoint is an engine.",
    maxItems: maxSources,
    flag: "discover-kubernetes",
  },
);

const pods = list(
  section("Kubernetes pods that are engines.", {
    ...podPlace("engines"),
    ...traits,
  }),
  { description: "Kubernetes pods, selected by labels. Every ready pod is an engine.", maxItems: maxSources },
);

const inferencePools = list(
  section(
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
          "Follow the InferenceModelRewrites of the pool. They give models other names, and divide requests among models, as `models.aliases` and `models.splits` do.",
        default: true,
      }),
      ...traits,
    },
    { shorthand: "pool" },
  ),
  {
    description: "InferencePools. Every pod that one selects is an engine, one for each target port.",
    maxItems: maxSources,
    flag: "discover-inference-pool",
  },
);

export const discovery = section("Where engines are found besides `engines` and `engines-file`.", {
  dns,
  services,
  pods,
  "inference-pools": inferencePools,
  kubernetes: section("Access to the Kubernetes API server. Inside a cluster nothing has to be set.", {
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

type Family = "auto" | "ipv4" | "ipv6";

/** Sources of engines in addition to the configured list. An undefined namespace is the service account's. */
export interface DiscoveryConfig {
  readonly dns: readonly {
    readonly name: string;
    /** Undefined for SRV records. */
    readonly port: number | undefined;
    readonly intervalMs: number;
    readonly misses: number;
    /** `ADDRESS` or `ADDRESS:PORT` each. */
    readonly servers: readonly string[];
    readonly family: Family;
    readonly traits: EngineTraits;
  }[];
  readonly services: readonly {
    readonly namespace: string | undefined;
    readonly service: string;
    /** Number or name; undefined for the first one. */
    readonly port: number | string | undefined;
    readonly family: Family;
    readonly traits: EngineTraits;
  }[];
  readonly pods: readonly {
    readonly namespace: string | undefined;
    readonly selector: string;
    readonly port: number | string;
    readonly traits: EngineTraits;
  }[];
  readonly inferencePools: readonly {
    readonly namespace: string | undefined;
    readonly pool: string;
    /** Whether its InferenceObjectives are followed. */
    readonly objectives: boolean;
    /** Whether its InferenceModelRewrites are followed. */
    readonly modelRewrites: boolean;
    readonly traits: EngineTraits;
  }[];
  readonly kubernetes: {
    readonly apiServer: string;
    readonly tokenFile: string | undefined;
    readonly caFile: string | undefined;
  };
}

type Tree = ConfigTree["discovery"];

/** Where Kubernetes mounts the token, the certificates and the namespace of a pod's service account. */
const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount";

export function compileDiscovery({ discovery }: Pick<ConfigTree, "discovery">, env: Environment): DiscoveryConfig {
  return {
    dns: discovery.dns.map(({ name: written, interval, misses, servers, family, ...traits }) => {
      const { name, port } = splitPort(written);
      return { name, port: portOf(port), intervalMs: interval, misses, servers, family, traits: compileTraits(traits) };
    }),
    services: discovery.services.map(({ service, family, ...traits }) => {
      return { ...compileService(service), family, traits: compileTraits(traits) };
    }),
    pods: discovery.pods.map((pods) => ({ ...compilePods(pods), traits: compileTraits(pods) })),
    inferencePools: discovery["inference-pools"].map(({ pool: written, objectives, ...rest }) => {
      const { namespace, name: pool } = splitNamespace(written);
      const { "model-rewrites": modelRewrites, ...traits } = rest;
      return { namespace, pool, objectives, modelRewrites, traits: compileTraits(traits) };
    }),
    kubernetes: compileAccess(discovery.kubernetes, env),
  };
}

function compileTraits(
  tree: Omit<Tree["inference-pools"][number], "pool" | "objectives" | "model-rewrites">,
): EngineTraits {
  const { scheme, models, role, weight, ranks, labels, region } = tree;
  const transfer = tree["kv-transfer"];
  const pull = tree["kv-pull"];
  return {
    ...{ scheme, models, role, weight, ranks, labels, region },
    firstRank: tree["first-rank"],
    kvEventsPort: tree["kv-events-port"],
    kvReplayPort: tree["kv-replay-port"],
    kvTopic: tree["kv-topic"],
    kvTransfer: transfer === "none" ? undefined : transfer,
    kvTransferPort: tree["kv-transfer-port"],
    kvPull: pull === "none" ? undefined : pull,
    kvPullPort: tree["kv-pull-port"],
  };
}

/** Inside a cluster the API server is found by the variables that every pod has, else by its name. */
function compileAccess(
  { "api-server": written, "token-file": tokenFile, "ca-file": caFile }: Tree["kubernetes"],
  { KUBERNETES_SERVICE_HOST: host = "", KUBERNETES_SERVICE_PORT: port = "" }: Environment,
): DiscoveryConfig["kubernetes"] {
  if (written !== undefined) return { apiServer: written, tokenFile, caFile };
  const named = isIP(host) === 6 ? `[${host}]` : host;
  return {
    apiServer: host === "" ? "https://kubernetes.default.svc" : `https://${named}:${port === "" ? "443" : port}`,
    tokenFile: tokenFile ?? `${accountFolder}/token`,
    caFile: caFile ?? `${accountFolder}/ca.crt`,
  };
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
