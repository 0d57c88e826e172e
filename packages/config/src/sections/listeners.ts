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

/** Processes of one `espalier serve`. */
const maxProcesses = 64;

const host = (description: string) =>
  text({
    description,
    default: "127.0.0.1",
    maxLength: 253,
    pattern: "^[A-Za-z0-9.:_-]+$",
    expected: "a host name or an IP address",
  });

const port = (description: string, standard: number) =>
  integer({ description, minimum: 0, maximum: 65_535, default: standard });

const tls = () =>
  Type.Optional(
    section("Serve HTTPS instead of HTTP.", {
      "cert-file": filePath("Certificate chain in PEM form."),
      "key-file": filePath("Private key in PEM form."),
      "ca-file": Type.Optional(
        filePath("Certificates in PEM form; when given, clients must present a certificate that one of them signed."),
      ),
    }),
  );

export const processes = count({
  description:
    "Processes that share the clients' port, each a router of its own: its admin and mesh ports count up from those " +
    "given, and they share as routers on different machines do. `auto` for one per core.",
  default: 1,
  minimum: 1,
  maximum: maxProcesses,
});

export const warmUp = duration({
  description:
    "Longest time that the router exercises its own code before it says that it is ready: requests of its own, to engines " +
    "inside the process, which no metric, index or other router sees. The first requests of clients then cost less. `0s` " +
    "for none of it.",
  default: "0s",
  minimum: "0s",
  maximum: "60s",
});

export const listen = section("Where clients are served.", {
  host: host("Address to listen on; `0.0.0.0` or `::` for all."),
  port: port("Port to listen on; 0 for any free one.", 8080),
  tls: tls(),
});

export const admin = section("Where operators are served: the admin API and the metrics.", {
  host: host("Address to listen on. One that is not a loopback address is refused without `admin.key`."),
  port: port("Port to listen on; 0 for any free one.", 9090),
  advertise: Type.Optional(
    text({
      description:
        "URL by which browsers reach it, where that is not its host and port: behind a proxy, or a forwarded port. The " +
        "dashboards of the other routers go on there. Its port counts up with `processes`.",
      maxLength: 256,
      pattern: "^https?://([A-Za-z0-9._-]+|\\[[0-9a-fA-F:]+\\])(:\\d{1,5})?$",
      expected: "an http:// or https:// URL without path",
    }),
  ),
  key: Type.Optional(
    text({ description: "Key that admin requests must carry.", minLength: 8, maxLength: 512, isSecret: true }),
  ),
  tls: tls(),
  dashboard: flag({ description: "Serve the dashboard at `/dashboard/`.", default: true }),
});

export const apiKeys = list(
  section("One key that clients may use. Give either `key` or `key-sha256`.", {
    name: text({ description: "What the key is called in logs and metrics.", maxLength: 64 }),
    key: Type.Optional(text({ description: "The key itself.", minLength: 8, maxLength: 512, isSecret: true })),
    "key-sha256": Type.Optional(
      text({
        description: "SHA-256 of the key, in hexadecimal.",
        minLength: 64,
        maxLength: 64,
        pattern: "^[0-9a-fA-F]{64}$",
        expected: "64 hexadecimal digits",
        isSecret: true,
      }),
    ),
  }),
  { description: "Keys that clients may use. Empty leaves the router open.", maxItems: 10_000 },
);

export const cors = section("Pages in browsers that may call the API.", {
  origins: list(
    text({
      description: "An origin, such as `https://chat.example.com`, or `*` for all.",
      maxLength: 512,
      pattern: "^(?:\\*|[a-z][a-z0-9+.-]*://[^\\s/?#,*A-Z]+)$",
      expected: "an origin in lower case, such as https://chat.example.com, or *",
    }),
    {
      description:
        "Origins of pages whose scripts may read answers (CORS). Empty leaves browsers to refuse, and `OPTIONS` is answered with 405.",
      maxItems: 1_000,
    },
  ),
});

export const timeouts = section("How long is waited for clients and engines.", {
  connect: duration({
    description: "For a connection to an engine.",
    default: "2s",
    minimum: "10ms",
    maximum: "60s",
  }),
  "first-byte": duration({
    description: "For the first byte of an engine's answer. Long prompts and queues need minutes.",
    default: "10m",
    minimum: "100ms",
    maximum: "24h",
  }),
  answer: Type.Optional(
    duration({
      description: "From a request's arrival until its answer is complete, time in queues included. None unless given.",
      minimum: "100ms",
      maximum: "24h",
    }),
  ),
  idle: duration({
    description: "Between two pieces of an engine's answer.",
    default: "5m",
    minimum: "100ms",
    maximum: "24h",
  }),
  "client-write": duration({
    description: "For a client that does not read; after it, it counts as gone.",
    default: "5m",
    minimum: "100ms",
    maximum: "24h",
  }),
  "engine-keep-alive": duration({
    description: "How long an unused connection to an engine stays open. Engines on uvicorn close theirs after 5 s.",
    default: "4s",
    minimum: "0s",
    maximum: "1h",
  }),
  "request-receive": duration({
    description: "For a client to send a whole request, headers and body.",
    default: "30s",
    minimum: "100ms",
    maximum: "1h",
  }),
  "keep-alive": duration({
    description: "For the next request on a client's idle connection. Keep it above the load balancer's own.",
    default: "75s",
    minimum: "1s",
    maximum: "1h",
  }),
});

export const limits = section("Bounds on what the router takes on.", {
  "max-body-bytes": size({
    description: "Largest request body.",
    default: "32MiB",
    minimum: "1KiB",
    maximum: "1GiB",
  }),
  "max-header-bytes": size({
    description: "Largest sum of a request's path and headers.",
    default: "32KiB",
    minimum: "1KiB",
    maximum: "1MiB",
  }),
  "max-nesting": integer({
    description: "Deepest nesting of objects and lists in a request body.",
    default: 64,
    minimum: 4,
    maximum: 1_000,
  }),
  "max-concurrent-requests": integer({
    description: "Requests in flight; further ones are answered with 429.",
    default: 4_096,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-body-bytes-in-flight": size({
    description: "Request bodies in flight, all together; further ones are answered with 429.",
    default: "1GiB",
    minimum: "1KiB",
    maximum: "64GiB",
  }),
  "max-connections": integer({
    description: "Connections of clients; further ones are answered with 503 and closed.",
    default: 16_384,
    minimum: 1,
    maximum: 1_000_000,
  }),
  "max-connections-per-engine": integer({
    description: "Connections to one engine.",
    default: 1_024,
    minimum: 1,
    maximum: 65_535,
  }),
  "max-queued-per-engine": integer({
    description: "Requests that wait for a connection to one engine; further ones go to the next engine.",
    default: 1_024,
    minimum: 0,
    maximum: 1_000_000,
  }),
  "max-event-loop-delay": duration({
    description:
      "How late the router may come to its work, for half a second on end; beyond it new requests are refused.",
    default: "1s",
    minimum: "10ms",
    maximum: "1m",
  }),
  "max-heap-share": number({
    description: "Share of the JavaScript heap in use beyond which new requests are refused.",
    default: 0.9,
    minimum: 0.1,
    maximum: 1,
  }),
  "max-mesh-buffer": size({
    description: "Bytes that wait to be sent to other routers, all together, beyond which new requests are refused.",
    default: "64MiB",
    minimum: "1MiB",
    maximum: "1GiB",
  }),
});

export const drain = section("How the router stops on SIGTERM. A second signal stops it at once.", {
  delay: duration({
    description: "How long new requests are still taken after readiness went false, so that load balancers notice.",
    default: "5s",
    minimum: "0s",
    maximum: "10m",
  }),
  grace: duration({
    description: "How long open answers may go on after that.",
    default: "180s",
    minimum: "0s",
    maximum: "24h",
  }),
});

export const log = section("Log lines on standard error.", {
  level: choice(["debug", "info", "warn", "error"], {
    description: "The least level that is written.",
    default: "info",
  }),
  format: choice(["json", "pretty"], {
    description: "`json` for machines, `pretty` for a terminal.",
    default: "json",
  }),
});
