import { isLoopback } from "@espalier/common";
import { hasSeeds, meshBackend } from "./mesh-backend.ts";
import { checkPods, checkPortOf, checkServer, checkTwice, compilePods, compileService, nameOfPods } from "./places.ts";
import type { Problem } from "./problems.ts";
import type { ConfigTree } from "./schema/config-schema.ts";
import { Secret } from "./secret.ts";

/** What finds seeds, beside those that are listed. A namespace that is undefined is the service account's. */
export interface SeedSourcesConfig {
  /** Names whose SRV records are routers. */
  readonly records: readonly string[];
  /** Name servers for names, these and those of listed seeds: `ADDRESS` or `ADDRESS:PORT` each. Empty for the system's. */
  readonly servers: readonly string[];
  /** A file for `parseSeedsFile`. */
  readonly file: string | undefined;
  readonly services: readonly {
    readonly namespace: string | undefined;
    readonly service: string;
    /** Number or name; undefined for the first one. */
    readonly port: number | string | undefined;
  }[];
  readonly pods: readonly {
    readonly namespace: string | undefined;
    readonly selector: string;
    readonly port: number | string;
  }[];
}

/** What the router shares with others, and how. */
export interface MeshConfig {
  readonly backend: "off" | "peers" | "redis";
  /** Undefined leaves the choice to the router. */
  readonly routerId: string | undefined;
  readonly cluster: string;
  readonly events: "owner" | "direct";
  readonly host: string;
  readonly port: number;
  /** `HOST:PORT` */
  readonly advertise: string | undefined;
  /** `HOST:PORT` each. */
  readonly seeds: readonly string[];
  readonly seedSources: SeedSourcesConfig;
  readonly secret: Secret | undefined;
  /** Others than `secret` that count as well; none without it. */
  readonly acceptedSecrets: readonly Secret[];
  readonly tls: { readonly certFile: string; readonly keyFile: string; readonly caFile: string } | undefined;
  /** There is one with `redis`. It may hold a password. */
  readonly redisUrl: Secret | undefined;
  readonly joinGraceMs: number;
}

/** Names of SRV records begin so; those of hosts do not, and these have no port. */
const isRecords = (seed: string): boolean => seed.startsWith("_") && !seed.includes(":");

export function compileMesh({ mesh }: Pick<ConfigTree, "mesh">): MeshConfig {
  const { tls, secret, "redis-url": redisUrl } = mesh;
  return {
    backend: meshBackend(mesh),
    routerId: mesh["router-id"],
    cluster: mesh.cluster,
    events: mesh.events,
    host: mesh.host,
    port: mesh.port ?? 0,
    advertise: mesh.advertise,
    seeds: mesh.seeds.filter((seed) => !isRecords(seed)),
    seedSources: {
      records: [...new Set(mesh.seeds.filter(isRecords))],
      servers: mesh["seed-servers"],
      file: mesh["seeds-file"],
      services: mesh["seed-services"].map(compileService),
      pods: mesh["seed-pods"].map(compilePods),
    },
    secret: secret === undefined ? undefined : new Secret(secret),
    acceptedSecrets: [...new Set(mesh["accepted-secrets"])]
      .filter((accepted) => accepted !== secret)
      .map((accepted) => new Secret(accepted)),
    tls: tls && { certFile: tls["cert-file"], keyFile: tls["key-file"], caFile: tls["ca-file"] },
    redisUrl: redisUrl === undefined ? undefined : new Secret(redisUrl),
    joinGraceMs: mesh["join-grace"],
  };
}

/** What a schema cannot say: how routers prove who they are, and where they are found. */
export function checkMesh({ mesh }: Pick<ConfigTree, "mesh">): Problem[] {
  const { host, port, secret, tls, "redis-url": redisUrl } = mesh;
  const backend = meshBackend(mesh);
  if (mesh.backend === "auto" && redisUrl !== undefined && (port !== undefined || hasSeeds(mesh))) {
    return [{ path: ["mesh", "backend"], message: "must say peers or redis, because settings of both are given" }];
  }
  if (backend === "redis" && redisUrl === undefined) {
    return [{ path: ["mesh", "redis-url"], message: "is required, because mesh.backend is redis" }];
  }
  if (backend === "peers" && !isLoopback(host) && secret === undefined && tls === undefined) {
    return [
      { path: ["mesh", "secret"], message: `or mesh.tls is required, because ${host} is not a loopback address` },
    ];
  }
  if (mesh["accepted-secrets"].length > 0 && secret === undefined) {
    return [{ path: ["mesh", "secret"], message: "is required beside mesh.accepted-secrets" }];
  }
  return checkSeeds(mesh);
}

function checkSeeds(mesh: ConfigTree["mesh"]): Problem[] {
  const { seeds, "seed-servers": servers, "seed-services": services, "seed-pods": pods } = mesh;
  return [
    ...seeds.flatMap((seed, at) => checkPortOf(seed, ["mesh", "seeds", at])),
    ...servers.flatMap((server, at) => checkServer(server, ["mesh", "seed-servers", at])),
    ...services.flatMap((service, at) => checkPortOf(service, ["mesh", "seed-services", at])),
    ...pods.flatMap((pod, at) => checkPods(pod, ["mesh", "seed-pods", at])),
    ...checkTwice(services, ["mesh", "seed-services"]),
    ...checkTwice(pods.map(nameOfPods), ["mesh", "seed-pods"]),
  ];
}
