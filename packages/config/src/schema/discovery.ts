import { kvTransferProtocols } from "@espalier/common";
import { Type } from "typebox";
import { list, map, section } from "./container.ts";
import { choice, duration, filePath, integer, number, text } from "./leaf.ts";
import { nameServers, podPlace, port, recordsPattern, service } from "./places.ts";

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
