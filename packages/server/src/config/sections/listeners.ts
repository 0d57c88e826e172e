import { Type } from "typebox";
import {
  choice,
  count,
  duration,
  filePath,
  flag,
  integer,
  list,
  number,
  section,
  size,
  text,
} from "../schema-builders.ts";
import { sha256Of } from "../secret.ts";
import { compiled } from "../settings-of.ts";

/** Processes of one `espalier serve`. */
const maxProcesses = 64;

export const host = (description: string) =>
  text({
    description,
    default: "127.0.0.1",
    maxLength: 253,
    pattern: "^[A-Za-z0-9.:_-]+$",
    expected: "a host name or an IP address",
  });

const port = (description: string, standard: number) =>
  integer({ description, minimum: 0, maximum: 65_535, default: standard });

export const tls = (listener: "client" | "admin" | "endpoint picker" | "scaler" | "rollouts") =>
  Type.Optional(
    section(`TLS on the ${listener} listener.`, {
      "cert-file": filePath(`PEM file with the certificate chain of the ${listener} listener, which then serves TLS.`),
      "key-file": filePath(`PEM file with the private key of the ${listener} listener.`),
      "ca-file": Type.Optional(
        filePath(
          `PEM file with certificate authorities. The ${listener} listener then requires a client certificate that one of them signed.`,
        ),
      ),
    }),
  );

export const processes = count({
  description:
    "Number of router processes that share the clients' port. Each one is a router of its own: admin and mesh ports count up from the configured ones, and the processes share state as routers on different machines do. `auto` starts one per core.",
  default: 1,
  minimum: 1,
  maximum: maxProcesses,
});

export const warmUp = duration({
  description:
    "Longest time the router spends warming up its own code before it reports ready. It sends requests to engines inside the process, which no metric, index or other router sees; the first client requests are then faster. `0s` turns the warm-up off.",
  default: "0s",
  minimum: "0s",
  maximum: "60s",
});

export const listen = section("Listener for clients, with the OpenAI- and Anthropic-compatible API.", {
  host: host("Address to listen on for clients. `0.0.0.0` or `::` listens on every address."),
  port: port("Port to listen on for clients. 0 takes any free port.", 8080),
  tls: tls("client"),
});

const adminSection = section("Listener for operators, with the admin API, the metrics and the dashboard.", {
  host: host("Address to listen on for operators. An address that is not loopback requires `admin.key`."),
  port: port("Port to listen on for operators. 0 takes any free port.", 9090),
  advertise: Type.Optional(
    text({
      description:
        "URL at which browsers reach the admin listener, if it differs from `admin.host` and `admin.port`, for example behind a proxy or a forwarded port. The dashboards of other routers link to it. Its port counts up with `processes`.",
      maxLength: 256,
      pattern: "^https?://([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\])(:\\d{1,5})?$",
      expected: "an http:// or https:// URL without path",
    }),
  ),
  key: Type.Optional(
    text({
      description:
        "Key that every admin request must carry. Without one, requests must name a loopback address as their host.",
      minLength: 8,
      maxLength: 512,
      isSecret: true,
    }),
  ),
  tls: tls("admin"),
  dashboard: flag({ description: "Serve the dashboard on the admin listener, at `/dashboard/`.", default: true }),
  grafana: Type.Optional(
    text({
      description: "URL of Grafana, linked from the dashboard for more than its 15 minutes.",
      maxLength: 512,
      pattern: "^https?://[^\\s\"'<>]+$",
      expected: "an http:// or https:// URL",
    }),
  ),
});

/** The admin key is kept as its hash only, and the address as its origin, which browsers send. */
export const admin = compiled(adminSection, ({ key, advertise, ...settings }) => ({
  ...settings,
  /** Origin by which browsers reach it: scheme, host and port. */
  advertise: advertise === undefined ? undefined : new URL(advertise).origin,
  /** SHA-256 of the admin key: 32 bytes. Undefined leaves the admin listener open, on a loopback address only. */
  keySha256: key === undefined ? undefined : sha256Of(key.reveal()),
}));

const endpointPickerSection = section("Endpoint picker for Envoy gateways (ext_proc).", {
  host: host("Address to listen on for gateways. `0.0.0.0` or `::` listens on every address."),
  port: Type.Optional(
    integer({
      description:
        "Port of the endpoint picker, which speaks Envoy's `ext_proc` over gRPC; 9002 by convention. 0 takes any free port. Without it, the endpoint picker is off.",
      minimum: 0,
      maximum: 65_535,
    }),
  ),
  "health-port": port(
    "Port for gRPC health checks of the endpoint picker, without TLS. 0 takes any free port. With `processes`, each process takes the next one.",
    9003,
  ),
  tls: tls("endpoint picker"),
  "answer-within": duration({
    description:
      "Longest time until a gateway gets its engine, queueing included. After that, the client gets an error. Envoy has no such limit when it streams bodies to the picker.",
    default: "30s",
    minimum: "10ms",
    maximum: "1h",
  }),
  "release-after": duration({
    description:
      "How long a request counts as running if the gateway does not stream the answer to the picker. The engine's metrics may end it earlier.",
    default: "60s",
    minimum: "100ms",
    maximum: "24h",
  }),
  fallbacks: integer({
    description:
      "Number of fallback engines after the chosen one, best first. Only for gateways that retry on another address: some read one address only, and answer 503 if there are two.",
    default: 0,
    minimum: 0,
    maximum: 8,
  }),
  scores: flag({
    description: "Whether to send the gateway the score of every engine, in `x-gateway-destination-endpoint-scores`.",
    default: false,
  }),
});

/** Undefined without a port. */
export const endpointPicker = compiled(endpointPickerSection, ({ port, ...settings }) =>
  port === undefined ? undefined : { ...settings, port },
);

export const scale = section(
  "Autoscaling signals: the number of engines that the load needs, in `/admin/scale`, metrics, and KEDA.",
  {
    utilization: number({
      description: "Target utilization of an engine's time. The rest absorbs load variation.",
      default: 0.7,
      minimum: 0.05,
      maximum: 1,
    }),
    "catch-up": duration({
      description: "Target queueing time of requests without a deadline. A shorter time needs more engines.",
      default: "30s",
      minimum: "1s",
      maximum: "1h",
    }),
    idle: duration({
      description: "Time without any request after which a model needs no engine.",
      default: "60s",
      minimum: "1s",
      maximum: "24h",
    }),
    host: host("Address of the external scaler. `0.0.0.0` or `::` listens on every address."),
    port: Type.Optional(
      integer({
        description:
          "Port of the external scaler for KEDA (gRPC, without authentication; it exposes engine counts only). 0 takes any free port. Without it, the scaler is off.",
        minimum: 0,
        maximum: 65_535,
      }),
    ),
    tls: tls("scaler"),
  },
);

const apiKey = section("An API key that clients may use, given as either `key` or `key-sha256`.", {
  name: text({ description: "Name of the key in logs and metrics.", maxLength: 64 }),
  key: Type.Optional(
    text({
      description: "The key in plain text. It is hashed at startup and not kept.",
      minLength: 8,
      maxLength: 512,
      isSecret: true,
    }),
  ),
  "key-sha256": Type.Optional(
    text({
      description: "SHA-256 of the key, in hexadecimal, instead of the key itself.",
      minLength: 64,
      maxLength: 64,
      pattern: "^[0-9a-fA-F]{64}$",
      expected: "64 hexadecimal digits",
      isSecret: true,
    }),
  ),
});

/** A key is kept as its hash only. */
const hashedKey = compiled(apiKey, ({ name, key, keySha256 }) => ({
  name,
  /** SHA-256 of the key: 32 bytes. */
  sha256: keySha256 ? Buffer.from(keySha256.reveal(), "hex") : sha256Of(key?.reveal() ?? ""),
}));

export const apiKeys = list(hashedKey, {
  description: "API keys that clients may use. With an empty list, the router accepts every client.",
  maxItems: 10_000,
});

export const cors = section("CORS: web pages that may call the API from a browser.", {
  origins: list(
    text({
      description: "An origin such as `https://chat.example.com`, or `*` for every origin.",
      maxLength: 512,
      pattern: "^(?:\\*|[a-z][a-z0-9+.-]*://[^\\s/?#,*A-Z]+)$",
      expected: "an origin in lower case, such as https://chat.example.com, or *",
    }),
    {
      description:
        "Origins whose scripts may read answers of the API. With an empty list, the router sends no CORS headers and answers `OPTIONS` with 405.",
      maxItems: 1_000,
    },
  ),
});

export const timeouts = section("How long the router waits for clients and engines.", {
  connect: duration({
    description: "How long to wait for a connection to an engine.",
    default: "2s",
    minimum: "10ms",
    maximum: "60s",
  }),
  "first-byte": duration({
    description:
      "How long to wait for the first content of an engine's answer; comments do not count. Long prompts and queues need minutes.",
    default: "10m",
    minimum: "100ms",
    maximum: "24h",
  }),
  answer: Type.Optional(
    duration({
      description:
        "Longest time from a request's arrival to the end of its answer, queueing included. Unlimited without it.",
      minimum: "100ms",
      maximum: "24h",
    }),
  ),
  idle: duration({
    description: "Longest pause between two chunks of an engine's answer.",
    default: "5m",
    minimum: "100ms",
    maximum: "24h",
  }),
  "client-write": duration({
    description:
      "How long to wait for a client that does not read its answer. After that the router closes the connection.",
    default: "5m",
    minimum: "100ms",
    maximum: "24h",
  }),
  "realtime-idle": duration({
    description:
      "How long a connection to `/v1/realtime` may be silent in both directions. After that the router closes it with 1001.",
    default: "10m",
    minimum: "100ms",
    maximum: "24h",
  }),
  "engine-keep-alive": duration({
    description: "How long an idle connection to an engine stays open. Engines on uvicorn close theirs after 5 s.",
    default: "4s",
    minimum: "0s",
    maximum: "1h",
  }),
  "request-receive": duration({
    description: "How long a client may take to send a whole request, headers and body.",
    default: "30s",
    minimum: "100ms",
    maximum: "1h",
  }),
  "keep-alive": duration({
    description:
      "How long an idle client connection stays open for the next request. Keep it above the idle timeout of the load balancer in front.",
    default: "75s",
    minimum: "1s",
    maximum: "1h",
  }),
});

export const limits = section("Limits of requests, connections and resources.", {
  "max-body-bytes": size({
    description: "Largest request body. A larger one is answered with 413.",
    default: "32MiB",
    minimum: "1KiB",
    maximum: "1GiB",
  }),
  "max-header-bytes": size({
    description: "Largest total size of a request's path and headers. A larger one is refused.",
    default: "32KiB",
    minimum: "1KiB",
    maximum: "1MiB",
  }),
  "max-nesting": integer({
    description: "Deepest nesting of objects and lists in a request body. A deeper one is answered with 400.",
    default: 64,
    minimum: 4,
    maximum: 1_000,
  }),
  "max-concurrent-requests": integer({
    description: "Maximum requests in flight. Further requests are answered with 429.",
    default: 4_096,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-body-bytes-in-flight": size({
    description: "Total size of the request bodies in flight. Further requests are answered with 429.",
    default: "1GiB",
    minimum: "1KiB",
    maximum: "64GiB",
  }),
  "max-connections": integer({
    description: "Maximum client connections. Further connections are answered with 503 and closed.",
    default: 16_384,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-connections-per-engine": integer({
    description: "Maximum connections to one engine.",
    default: 1_024,
    minimum: 1,
    maximum: 65_535,
  }),
  "max-queued-per-engine": integer({
    description:
      "Maximum requests that wait for a free connection to one engine. Further requests go to another engine.",
    default: 1_024,
    minimum: 0,
    maximum: 1_000_000,
  }),
  "max-event-loop-delay": duration({
    description: "Maximum event-loop delay. Above it for half a second, the router rejects new requests.",
    default: "1s",
    minimum: "10ms",
    maximum: "1m",
  }),
  "max-heap-share": number({
    description: "Share of the JavaScript heap in use above which new requests are refused.",
    default: 0.9,
    minimum: 0.1,
    maximum: 1,
  }),
  "max-mesh-buffer": size({
    description: "Total bytes buffered for other routers above which new requests are refused.",
    default: "64MiB",
    minimum: "1MiB",
    maximum: "1GiB",
  }),
});

export const drain = section("Graceful shutdown on SIGTERM. A second signal stops the router at once.", {
  delay: duration({
    description: "How long the router still accepts requests after it reports not ready, for load balancers to react.",
    default: "5s",
    minimum: "0s",
    maximum: "10m",
  }),
  grace: duration({
    description: "How long answers in progress may continue after `drain.delay` has passed.",
    default: "180s",
    minimum: "0s",
    maximum: "24h",
  }),
});

export const log = section("Logging to standard error.", {
  level: choice(["debug", "info", "warn", "error"], {
    description: "Lowest level that is logged.",
    default: "info",
  }),
  format: choice(["auto", "json", "pretty"], {
    description:
      "Form of log lines: `json` for machines, `pretty` for people, `auto` for `pretty` where standard error is a terminal and `json` elsewhere.",
    default: "auto",
  }),
});
