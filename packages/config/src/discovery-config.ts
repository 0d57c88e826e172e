import { isIP } from "node:net";
import { type EngineTraits, isLoopback } from "@espalier/common";
import type { Environment } from "./interpolate.ts";
import type { Path, Problem } from "./problems.ts";
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
    services: discovery.services.map(({ service: written, family, ...traits }) => {
      const { namespace, name: rest } = splitNamespace(written);
      const { name: service, port } = splitPort(rest);
      return { namespace, service, port: portOf(port) ?? port, family, traits: compileTraits(traits) };
    }),
    pods: discovery.pods.map(({ selector, namespace, port, "port-name": portName = "", ...traits }) => {
      return { namespace, selector, port: port ?? portName, traits: compileTraits(traits) };
    }),
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
  const { dns, services, pods, kubernetes } = discovery;
  const problems = [
    ...dns.flatMap(({ name, servers }, at) => [
      ...checkPort(splitPort(name).port, ["discovery", "dns", at, "name"]),
      ...servers.flatMap((server, index) => checkServer(server, ["discovery", "dns", at, "servers", index])),
    ]),
    ...services.flatMap(({ service }, at) =>
      checkPort(splitPort(service).port, ["discovery", "services", at, "service"]),
    ),
    ...pods.flatMap(({ port, "port-name": portName }, at): Problem[] => {
      if ((port === undefined) !== (portName === undefined)) return [];
      return [{ path: ["discovery", "pods", at], message: "needs either port or port-name" }];
    }),
    ...checkTwice(
      "dns",
      dns.map(({ name }) => name),
    ),
    ...checkTwice(
      "services",
      services.map(({ service }) => service),
    ),
    ...checkTwice(
      "pods",
      pods.map(({ namespace = "", selector }) => `${namespace}/${selector}`),
    ),
    ...checkTwice(
      "inference-pools",
      discovery["inference-pools"].map(({ pool }) => pool),
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

function checkPort(port: string | undefined, path: Path): Problem[] {
  if (port === undefined || !/^\d+$/.test(port) || portOf(port) !== undefined) return [];
  return [{ path, message: `${port} is no port from 1 to 65535` }];
}

function checkServer(server: string, path: Path): Problem[] {
  const [, address = "", port] = /^\[?(.*?)\]?(?::(\d+))?$/.exec(isIP(server) === 6 ? `[${server}]` : server) ?? [];
  if (isIP(address) === 0) return [{ path, message: `${JSON.stringify(server)} is no IP address` }];
  return checkPort(port, path);
}

function checkTwice(kind: string, names: readonly string[]): Problem[] {
  return names.flatMap((name, at) => {
    const first = names.indexOf(name);
    return first === at ? [] : [{ path: ["discovery", kind, at], message: `is the same as element ${first}` }];
  });
}

function splitNamespace(written: string): { namespace: string | undefined; name: string } {
  const slash = written.indexOf("/");
  return slash < 0
    ? { namespace: undefined, name: written }
    : { namespace: written.slice(0, slash), name: written.slice(slash + 1) };
}

function splitPort(written: string): { name: string; port: string | undefined } {
  const colon = written.lastIndexOf(":");
  return colon < 0
    ? { name: written, port: undefined }
    : { name: written.slice(0, colon), port: written.slice(colon + 1) };
}

function portOf(text: string | undefined): number | undefined {
  const port = text !== undefined && /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? port : undefined;
}
