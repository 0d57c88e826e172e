import { Type } from "typebox";
import { list, section } from "./container.ts";
import { choice, duration, filePath, integer, text } from "./leaf.ts";
import { nameServers, podPlace, recordsPattern, service } from "./places.ts";

const maxSources = 16;
const maxSeeds = 256;

/** `HOST:PORT`, with an IPv6 address in brackets. */
const addressPattern = "([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\]):\\d{1,5}";

const address = (description: string) =>
  text({ description, maxLength: 512, pattern: `^${addressPattern}$`, expected: "HOST:PORT" });

/** What `seeds-file` holds. */
export const seedsInFile = list(address("A router, or a name that stands for the addresses of several."), {
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
