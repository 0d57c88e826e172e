import { isIP } from "node:net";
import { type EngineTraits, isLoopback } from "@espalier/common";
import type { Environment } from "./interpolate.ts";
import {
  checkPods,
  checkPortOf,
  checkServer,
  checkTwice,
  compilePods,
  compileService,
  nameOfPods,
  portOf,
  splitNamespace,
  splitPort,
} from "./places.ts";
import type { Problem } from "./problems.ts";
import type { ConfigTree } from "./schema/config-schema.ts";

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
