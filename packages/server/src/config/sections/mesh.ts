import { isJsonObject, isLoopback } from "@espalier/core";
import { type Static, Type } from "typebox";
import { type Problem, problemsError } from "../problems.ts";
import { readTree } from "../read-tree.ts";
import type { ConfigTree } from "../schema.ts";
import { choice, duration, filePath, integer, list, section, text } from "../schema-builders.ts";
import { Secret } from "../secret.ts";
import { compiled, type SettingsOf } from "../settings-of.ts";
import { parseYaml } from "../yaml-document.ts";
import {
  checkPods,
  checkPortOf,
  checkServer,
  checkTwice,
  nameOfPods,
  nameServers,
  podPlace,
  recordsPattern,
  service,
  withOnePort,
} from "./network-places.ts";

/** Sources of seeds of each kind. */
const maxSources = 16;
/** Seeds of the configuration. */
const maxSeeds = 256;

/** `HOST:PORT`, with an IPv6 address in brackets. */
const addressPattern = "([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\]):\\d{1,5}";

const address = (description: string) =>
  text({ description, maxLength: 512, pattern: `^${addressPattern}$`, expected: "HOST:PORT" });

/** The content of `seeds-file`. */
const seedsInFile = list(address("A router, or a host name whose addresses are routers."), {
  description: "Seeds: addresses at which other routers are found.",
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

const meshSection = section("Replication of load and cache state between routers.", {
  backend: choice(["auto", "off", "peers", "redis"], {
    description:
      "How routers share state: `peers` connects them to each other, `redis` uses a Redis server, `off` shares nothing. `auto` is `redis` if `mesh.redis-url` is set, `peers` if `mesh.port` or seeds are set, and `off` otherwise.",
    default: "auto",
  }),
  "router-id": Type.Optional(
    name("Unique name of this router, kept across restarts. Default: made from the host name and the mesh port."),
  ),
  region: Type.Optional(
    name(
      "Region of this router, such as the cloud's region name. If every router of the cluster sets it, a router of the engine's region reads the engine's KV events.",
    ),
  ),
  cluster: name("Name of the cluster. A router of another cluster is refused.", "default"),
  events: choice(["owner", "direct"], {
    description:
      "Which router reads the KV events of an engine: with `owner`, one router reads them and sends them to the others; with `direct`, each router reads them itself.",
    default: "owner",
  }),
  host: text({
    description:
      "Address to listen on for other routers. An address that is not loopback requires `mesh.secret` or `mesh.tls`.",
    default: "127.0.0.1",
    maxLength: 253,
    pattern: "^[A-Za-z0-9.:_-]+$",
    expected: "a host name or an IP address",
  }),
  port: Type.Optional(
    integer({
      description: "Port to listen on for other routers. 0 takes any free port.",
      minimum: 0,
      maximum: 65_535,
    }),
  ),
  advertise: Type.Optional(
    address(
      "Address at which other routers reach this one, if it differs from `mesh.host` and `mesh.port`. Default when listening on every address: the machine's first address.",
    ),
  ),
  seeds: list(
    text({
      description:
        "`HOST:PORT` of a router, or of a name whose addresses are routers, such as a headless service. With `_SERVICE._PROTOCOL.HOST`, every SRV record is a router.",
      maxLength: 512,
      pattern: `^(${addressPattern}|${recordsPattern})$`,
      expected: "HOST:PORT or _SERVICE._PROTOCOL.HOST",
    }),
    {
      description: "Seeds: addresses at which other routers are found. Host names are resolved periodically.",
      maxItems: maxSeeds,
      flag: "mesh-seed",
    },
  ),
  "seed-servers": nameServers({
    description: "Name servers for host names among the seeds. With an empty list, the system's are used.",
    flag: "mesh-seed-server",
  }),
  "seeds-file": Type.Optional(
    filePath(
      "YAML or JSON file with a list of further seeds, `HOST:PORT` each. The router watches it and reloads it when it changes.",
    ),
  ),
  "seed-services": list(service(), {
    description: "Kubernetes services whose endpoints are routers, ready or not.",
    maxItems: maxSources,
    flag: "mesh-seed-service",
  }),
  "seed-pods": list(compiled(section("Kubernetes pods that are routers.", podPlace("routers' mesh")), withOnePort), {
    description: "Kubernetes pods, selected by labels, that are routers. Every running pod counts, ready or not.",
    maxItems: maxSources,
  }),
  secret: Type.Optional(
    text({
      description: "Shared secret with which the routers of the cluster authenticate each other.",
      minLength: 16,
      maxLength: 512,
      isSecret: true,
    }),
  ),
  "accepted-secrets": list(
    text({
      description: "A shared secret of the cluster.",
      minLength: 16,
      maxLength: 512,
      isSecret: true,
    }),
    {
      description:
        "Secrets accepted in addition to `mesh.secret` while it is being rotated: the old one or the new one, which other routers may use.",
      maxItems: 3,
      flag: "mesh-accepted-secret",
    },
  ),
  tls: Type.Optional(
    section("Mutual TLS between routers.", {
      "cert-file": filePath("PEM file with the certificate chain of this router's mesh links."),
      "key-file": filePath("PEM file with the private key of `mesh.tls.cert-file`."),
      "ca-file": filePath("PEM file with the certificate authorities that signed the other routers' certificates."),
    }),
  ),
  "redis-url": Type.Optional(
    text({
      description:
        "URL of the Redis server through which routers share state, `redis://` or `rediss://`, with user and password if needed.",
      maxLength: 1_024,
      pattern: "^rediss?://\\S+$",
      expected: "a URL that begins with redis:// or rediss://",
      isSecret: true,
    }),
  ),
  "join-grace": duration({
    description:
      "How long a starting router searches for peers, and for Redis if routers share state through it. It waits at most as long again for their state, then reports ready without it.",
    default: "3s",
    minimum: "0s",
    maximum: "10m",
  }),
});

type MeshTree = Static<typeof meshSection>;

/** How the router shares state with others. */
export interface MeshConfig extends SettingsOf<typeof meshSection> {
  readonly backend: "off" | "peers" | "redis";
  readonly port: number;
  /** `HOST:PORT` each. */
  readonly seeds: readonly string[];
  /** DNS names whose SRV records are routers. */
  readonly seedRecords: readonly string[];
}

/** Names of SRV records begin with `_` and have no port; host names do not. */
const isRecords = (seed: string): boolean => seed.startsWith("_") && !seed.includes(":");

/** `auto` depends on what else is set, seeds are hosts or records, and each secret counts once. */
export const mesh = compiled(meshSection, (settings, tree): MeshConfig => {
  const accepted = new Set(tree["accepted-secrets"]);
  if (tree.secret !== undefined) accepted.delete(tree.secret);
  return {
    ...settings,
    backend: meshBackend(tree),
    port: tree.port ?? 0,
    seeds: tree.seeds.filter((seed) => !isRecords(seed)),
    seedRecords: [...new Set(tree.seeds.filter(isRecords))],
    acceptedSecrets: [...accepted].map((secret) => new Secret(secret)),
  };
});

/** Checks how routers authenticate, and where they are found. */
export function checkMesh({ mesh }: Pick<ConfigTree, "mesh">): Problem[] {
  const { host, port, secret, tls, "redis-url": redisUrl } = mesh;
  const backend = meshBackend(mesh);
  if (mesh.backend === "auto" && redisUrl !== undefined && (port !== undefined || hasSeeds(mesh))) {
    return [{ path: ["mesh", "backend"], message: "must be peers or redis because settings of both are set" }];
  }
  if (backend === "redis" && redisUrl === undefined) {
    return [{ path: ["mesh", "redis-url"], message: "is required because mesh.backend is redis" }];
  }
  if (backend === "peers" && !isLoopback(host) && secret === undefined && tls === undefined) {
    return [{ path: ["mesh", "secret"], message: `or mesh.tls is required because ${host} is not a loopback address` }];
  }
  if (mesh["accepted-secrets"].length > 0 && secret === undefined) {
    return [{ path: ["mesh", "secret"], message: "is required together with mesh.accepted-secrets" }];
  }
  return checkSeeds(mesh);
}

function checkSeeds(mesh: MeshTree): Problem[] {
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

/** Resolves `auto`. */
function meshBackend(mesh: MeshTree): "off" | "peers" | "redis" {
  if (mesh.backend !== "auto") return mesh.backend;
  if (mesh["redis-url"] !== undefined) return "redis";
  return mesh.port !== undefined || hasSeeds(mesh) ? "peers" : "off";
}

/** Whether there are any seeds. */
function hasSeeds(mesh: MeshTree): boolean {
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
  const isWrapped = isJsonObject(value) && Object.keys(value).every((key) => key === "seeds");
  const base = isWrapped ? ["seeds"] : [];
  const problems: Problem[] = [];
  const written = isWrapped ? value.seeds : value;
  const sources = { problems, writtenText: new Map(), unfilled: new Set<string>() };
  const seeds = readTree(seedsInFile, written, base, sources) as readonly string[];
  if (problems.length === 0) problems.push(...seeds.flatMap((seed, at) => checkPortOf(seed, [...base, at])));
  if (problems.length > 0) throw problemsError(problems, locate);
  return seeds;
}
