import { isIP } from "node:net";
import { type EngineTraits, isLoopback, kvTransferProtocols } from "@espalier/common";
import { Type } from "typebox";
import type { Environment } from "../interpolate.ts";
import type { Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, integer, list, map, number, section, text } from "../schema-builders.ts";
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

/** What is said of every engine that a source finds. Annotations and labels in Kubernetes count before it. */
const traits = {
  scheme: choice(["http", "https"], { description: "How engines are spoken to.", default: "http" }),
  models: list(text({ description: "A model's name.", maxLength: 256 }), {
    description: "Models that the engines serve; empty to ask them.",
    maxItems: 1_000,
  }),
  role: choice(["both", "prefill", "decode"], { description: "What the engines do for a request.", default: "both" }),
  weight: number({ description: "Relative share of traffic.", minimum: 0.001, maximum: 1_000_000, default: 1 }),
  ranks: integer({
    description: "Data-parallel ranks of an engine that requests are sent to one by one, by `x-data-parallel-rank`.",
    default: 1,
    minimum: 1,
    maximum: 64,
  }),
  "kv-events-port": port("Port at which rank 0 publishes its KV events. By default the engines are asked."),
  "kv-replay-port": port("Port at which missed events can be asked for; counts beside `kv-events-port` only."),
  "kv-topic": text({ description: "Only events with a topic that starts so.", minLength: 0, default: "" }),
  "kv-transfer": choice(["none", ...kvTransferProtocols], {
    description: "How the engines hand KV blocks over, for requests that two engines serve together.",
    default: "none",
  }),
  "kv-transfer-port": port("Port of an engine's side of the transfer, where it is not the protocol's usual one."),
  labels: map(text({ description: "A label's value.", minLength: 0, maxLength: 256 }), {
    description: "Free-form labels of the engines.",
    maxProperties: 64,
  }),
};

const family = choice(["auto", "ipv4", "ipv6"], {
  description: "Which addresses count. `auto` takes IPv6 ones only where there are no others: an engine is one engine.",
  default: "auto",
});

const dns = list(
  section(
    "A name in DNS that stands for engines. A plain text stands for the name.",
    {
      name: text({
        description:
          "`HOST:PORT`: every address of the host is an engine at that port. `_SERVICE._PROTOCOL.HOST`: every SRV record.",
        maxLength: 260,
        pattern: `^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\\.?:\\d{1,5}|${recordsPattern})$`,
        expected: "HOST:PORT or _SERVICE._PROTOCOL.HOST",
      }),
      interval: duration({ description: "Between two questions.", default: "5s", minimum: "100ms", maximum: "10m" }),
      misses: integer({
        description: "Answers in a row without an address after which its engine leaves.",
        default: 3,
        minimum: 1,
        maximum: 100,
      }),
      servers: nameServers({ description: "Name servers; empty for the system's." }),
      family,
      ...traits,
    },
    { shorthand: "name" },
  ),
  {
    description: "Names in DNS that stand for engines, asked for again and again.",
    maxItems: maxSources,
    flag: "discover-dns",
  },
);

const services = list(
  section(
    "A service of Kubernetes whose endpoints are engines. A plain text stands for the service.",
    {
      service: service(),
      family,
      ...traits,
    },
    { shorthand: "service" },
  ),
  {
    description: "Services of Kubernetes: endpoints that are ready are engines.",
    maxItems: maxSources,
    flag: "discover-kubernetes",
  },
);

const pods = list(
  section("Pods of Kubernetes that are engines.", {
    ...podPlace("The engines'"),
    ...traits,
  }),
  { description: "Pods of Kubernetes by their labels: those that are ready are engines.", maxItems: maxSources },
);

const inferencePools = list(
  section(
    "An InferencePool of the Gateway API Inference Extension. A plain text stands for the pool.",
    {
      pool: text({
        description: "`NAMESPACE/NAME`. Without a namespace, the service account's own.",
        maxLength: 320,
        pattern: "^([a-z0-9]([a-z0-9-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        expected: "NAMESPACE/NAME",
      }),
      ...traits,
    },
    { shorthand: "pool" },
  ),
  {
    description: "InferencePools: the pods that they select are engines, one for each target port.",
    maxItems: maxSources,
    flag: "discover-inference-pool",
  },
);

export const discovery = section("Where engines are found, beside `engines` and `engines-file`.", {
  dns,
  services,
  pods,
  "inference-pools": inferencePools,
  kubernetes: section("How the API server of Kubernetes is reached. Inside a cluster nothing of it is needed.", {
    "api-server": Type.Optional(
      text({
        description: "`https://HOST:PORT`. By default that of the cluster that the router runs in.",
        maxLength: 2_048,
        pattern: "^https?://[^\\s/?#@\\\\]+$",
        expected: "an http:// or https:// URL without path",
      }),
    ),
    "token-file": Type.Optional(
      filePath(
        "Holds the bearer token; read again before each request. The service account's, where `api-server` is not given.",
      ),
    ),
    "ca-file": Type.Optional(
      filePath("Certificates in PEM form to trust. The service account's, where `api-server` is not given."),
    ),
  }),
});

type Family = "auto" | "ipv4" | "ipv6";

/** Where engines are found, beside those that are listed. A namespace that is undefined is the service account's. */
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
    inferencePools: discovery["inference-pools"].map(({ pool: written, ...traits }) => {
      const { namespace, name: pool } = splitNamespace(written);
      return { namespace, pool, traits: compileTraits(traits) };
    }),
    kubernetes: compileAccess(discovery.kubernetes, env),
  };
}

function compileTraits(tree: Omit<Tree["inference-pools"][number], "pool">): EngineTraits {
  const { scheme, models, role, weight, ranks, labels } = tree;
  const transfer = tree["kv-transfer"];
  return {
    ...{ scheme, models, role, weight, ranks, labels },
    kvEventsPort: tree["kv-events-port"],
    kvReplayPort: tree["kv-replay-port"],
    kvTopic: tree["kv-topic"],
    kvTransfer: transfer === "none" ? undefined : transfer,
    kvTransferPort: tree["kv-transfer-port"],
  };
}

/** Inside a cluster, as its programs find the API server: by variables that every pod has, else by its name. */
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

/** What a schema cannot say: ports and addresses are real, nothing is followed twice, and no token is sent in the clear. */
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
  else if (server.startsWith("http:") && tokenFile !== undefined && !isLoopback(hostOf(server))) {
    problems.push({ path, message: "must be https://, because a token is sent there" });
  }
  return problems;
}

const hostOf = (url: string): string => new URL(url).hostname.replace(/^\[|\]$/g, "");
