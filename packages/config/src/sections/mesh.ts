import { isLoopback } from "@espalier/common";
import { Type } from "typebox";
import { type Problem, problemsError } from "../problems.ts";
import { isSection, readTree } from "../read-tree.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, integer, list, section, text } from "../schema-builders.ts";
import { Secret } from "../secret.ts";
import { parseYaml } from "../yaml-document.ts";
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
  recordsPattern,
  service,
} from "./network-places.ts";

const maxSources = 16;
const maxSeeds = 256;

/** `HOST:PORT`, with an IPv6 address in brackets. */
const addressPattern = "([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\]):\\d{1,5}";

const address = (description: string) =>
  text({ description, maxLength: 512, pattern: `^${addressPattern}$`, expected: "HOST:PORT" });

/** What `seeds-file` holds. */
const seedsInFile = list(address("A router, or a name that stands for the addresses of several."), {
  description: "Where other routers are found.",
  maxItems: maxSeeds,
});

const name = (description: string, standard?: string) =>
  text({
    description,
    ...(standard === undefined ? {} : { default: standard }),
    maxLength: 128,
    pattern: "^[A-Za-z0-9._-]+$",
    expected: "1 to 128 letters, digits, dots, dashes and underscores",
  });

export const mesh = section("What this router shares with other routers: what engines hold, and their load.", {
  backend: choice(["auto", "off", "peers", "redis"], {
    description:
      "`peers` links the routers with each other; `redis` has them share by way of a Redis server; `off` shares nothing. " +
      "`auto` is `redis` where `redis-url` is given, `peers` where `port` or seeds are, and else `off`.",
    default: "auto",
  }),
  "router-id": Type.Optional(
    name("Name of this router, the same after a restart and no other's. By default made of host name and mesh port."),
  ),
  cluster: name("Name of the group of routers; others are refused.", "default"),
  events: choice(["owner", "direct"], {
    description:
      "`owner`: one router reads the KV events of an engine and tells the others. `direct`: each router reads them itself.",
    default: "owner",
  }),
  host: text({
    description: "Address to listen on for other routers. One that is not a loopback address needs `secret` or `tls`.",
    default: "127.0.0.1",
    maxLength: 253,
    pattern: "^[A-Za-z0-9.:_-]+$",
    expected: "a host name or an IP address",
  }),
  port: Type.Optional(
    integer({ description: "Port to listen on for other routers; 0 for any free one.", minimum: 0, maximum: 65_535 }),
  ),
  advertise: Type.Optional(
    address("Where other routers reach this one, if not at its host and port; for all addresses the first own one."),
  ),
  seeds: list(
    text({
      description:
        "`HOST:PORT`: a router, or a name that stands for the addresses of several, as a headless service does. " +
        "`_SERVICE._PROTOCOL.HOST`: every SRV record.",
      maxLength: 512,
      pattern: `^(${addressPattern}|${recordsPattern})$`,
      expected: "HOST:PORT or _SERVICE._PROTOCOL.HOST",
    }),
    {
      description: "Where other routers are found. Names are looked up again all the time.",
      maxItems: maxSeeds,
      flag: "mesh-seed",
    },
  ),
  "seed-servers": nameServers({
    description: "Name servers for the names among the seeds; empty for the system's.",
    flag: "mesh-seed-server",
  }),
  "seeds-file": Type.Optional(
    filePath("YAML or JSON file with a list of `HOST:PORT`, further seeds; followed while the router runs."),
  ),
  "seed-services": list(service(), {
    description: "Services of Kubernetes whose endpoints are the routers, ready or not.",
    maxItems: maxSources,
    flag: "mesh-seed-service",
  }),
  "seed-pods": list(section("Pods of Kubernetes that are the routers.", podPlace("The routers' mesh")), {
    description: "Pods of Kubernetes by their labels: those that run are routers, ready or not.",
    maxItems: maxSources,
  }),
  secret: Type.Optional(
    text({
      description: "What all routers of the cluster know and prove to each other.",
      minLength: 16,
      maxLength: 512,
      isSecret: true,
    }),
  ),
  "accepted-secrets": list(
    text({
      description: "A secret of the cluster.",
      minLength: 16,
      maxLength: 512,
      isSecret: true,
    }),
    {
      description:
        "Secrets that count besides `secret`, while it is changed: those that other routers still have, or have already.",
      maxItems: 3,
      flag: "mesh-accepted-secret",
    },
  ),
  tls: Type.Optional(
    section("Links over TLS, in which both ends present a certificate.", {
      "cert-file": filePath("Certificate chain in PEM form."),
      "key-file": filePath("Private key in PEM form."),
      "ca-file": filePath("Certificates in PEM form, one of which has signed those of the other routers."),
    }),
  ),
  "redis-url": Type.Optional(
    text({
      description: "Redis server to share by: `redis://` or `rediss://`, with user and password in it where needed.",
      maxLength: 1_024,
      pattern: "^rediss?://\\S+$",
      expected: "a URL that begins with redis:// or rediss://",
      isSecret: true,
    }),
  ),
  "join-grace": duration({
    description: "How long a router that starts waits for what others know before it says that it is ready.",
    default: "3s",
    minimum: "0s",
    maximum: "10m",
  }),
});

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

/** What `auto` comes to. */
function meshBackend(mesh: ConfigTree["mesh"]): "off" | "peers" | "redis" {
  if (mesh.backend !== "auto") return mesh.backend;
  if (mesh["redis-url"] !== undefined) return "redis";
  return mesh.port !== undefined || hasSeeds(mesh) ? "peers" : "off";
}

/** Whether it is said where other routers are found. */
function hasSeeds(mesh: ConfigTree["mesh"]): boolean {
  const { seeds, "seeds-file": file, "seed-services": services, "seed-pods": pods } = mesh;
  return file !== undefined || seeds.length + services.length + pods.length > 0;
}

/**
 * Reads a file of seeds: a list of `HOST:PORT`, or a section with the one key `seeds`. YAML or JSON; variables are not
 * filled in.
 *
 * @param path names the file in messages
 * @throws EspalierError `config_invalid` with every problem on a line of its own
 */
export function parseSeedsFile(text: string, path: string): readonly string[] {
  const { value, locate } = parseYaml(text, path);
  const isWrapped = isSection(value) && Object.keys(value).every((key) => key === "seeds");
  const base = isWrapped ? ["seeds"] : [];
  const problems: Problem[] = [];
  const written = isWrapped ? value.seeds : value;
  const sources = { problems, writtenText: new Map(), unfilled: new Set<string>() };
  const seeds = readTree(seedsInFile, written, base, sources) as readonly string[];
  if (problems.length === 0) problems.push(...seeds.flatMap((seed, at) => checkPortOf(seed, [...base, at])));
  if (problems.length > 0) throw problemsError(problems, locate);
  return seeds;
}
