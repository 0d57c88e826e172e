import { kvTransferProtocols } from "@espalier/common";
import { Type } from "typebox";
import { list, map, section } from "./container.ts";
import { choice, duration, filePath, flag, integer, number, text } from "./leaf.ts";
import { zmqEndpoint } from "./prefix.ts";

const urlPath = (description: string, standard: string) =>
  text({
    description,
    default: standard,
    pattern: '^/[!-"$-~]*$',
    expected: "a path that starts with /",
  });

export const engines = list(
  section(
    "One engine. A plain text stands for the URL.",
    {
      url: text({
        description: "`http://host:port` or `https://host:port`, with an optional path prefix.",
        maxLength: 2_048,
        pattern: "^https?://[^\\s/?#@\\\\]+(/[^\\s?#\\\\]*)?$",
        expected: "an http:// or https:// URL without credentials, query or fragment",
      }),
      id: Type.Optional(
        text({
          description: "Unique name; host and port of the URL unless given.",
          maxLength: 128,
          pattern: "^[\\x21-\\x7e]+$",
          expected: "a name of at most 128 visible ASCII characters",
        }),
      ),
      models: list(text({ description: "A model's name.", maxLength: 256 }), {
        description: "Models it serves; empty to ask the engine.",
        maxItems: 1_000,
      }),
      role: choice(["both", "prefill", "decode"], { description: "What it does for a request.", default: "both" }),
      weight: number({
        description: "Relative share of traffic.",
        minimum: 0.001,
        maximum: 1_000_000,
        default: 1,
      }),
      ranks: integer({
        description: "Data-parallel ranks of it that requests are sent to one by one, by `x-data-parallel-rank`.",
        default: 1,
        minimum: 1,
        maximum: 64,
      }),
      "kv-events": Type.Optional(
        section(
          "Where it publishes its KV events. A plain text stands for the endpoint.",
          {
            endpoint: zmqEndpoint("Of rank 0; those of the other ranks are on the ports after it.", {
              wildcard: false,
            }),
            replay: Type.Optional(
              zmqEndpoint("Where missed events can be asked for, of rank 0 as well.", { wildcard: false }),
            ),
            topic: text({ description: "Only events with a topic that starts so.", minLength: 0, default: "" }),
          },
          { shorthand: "endpoint" },
        ),
      ),
      "kv-transfer": Type.Optional(
        section(
          "How it hands KV blocks over, for requests that two engines serve together. A plain text stands for the protocol.",
          {
            protocol: choice(kvTransferProtocols, { description: "The same at both sides.", default: "nixl" }),
            host: Type.Optional(
              text({
                description: "Where other engines reach its side of the transfer; the URL's host unless given.",
                maxLength: 253,
                pattern: "^[A-Za-z0-9.:_-]+$",
                expected: "a host name or an IP address",
              }),
            ),
            port: Type.Optional(
              integer({
                description:
                  "Of its bootstrap server (`sglang`, `mooncake`: 8998 unless given) or of its transfers (`p2p-nccl`: 14579).",
                minimum: 1,
                maximum: 65_535,
              }),
            ),
          },
          { shorthand: "protocol" },
        ),
      ),
      labels: map(text({ description: "A label's value.", minLength: 0, maxLength: 256 }), {
        description: "Free-form labels.",
        maxProperties: 64,
      }),
    },
    { shorthand: "url" },
  ),
  { description: "The engines, each as a URL or a section.", maxItems: 10_000, flag: "engine" },
);

export const enginesFile = filePath(
  "YAML or JSON file with a list like `engines`; watched, and read again when it changes.",
);

export const engineTls = section("TLS to engines whose URL is `https`.", {
  "ca-file": Type.Optional(filePath("Certificates in PEM form to trust in place of the system's.")),
  "cert-file": Type.Optional(filePath("The router's own certificate in PEM form, for engines that ask for one.")),
  "key-file": Type.Optional(filePath("Private key of that certificate in PEM form.")),
  verify: flag({ description: "Check the engines' certificates.", default: true }),
});

export const health = section("How it is found out whether an engine is up.", {
  path: urlPath("Path that is asked; a 2xx answer is a good one.", "/health"),
  interval: duration({ description: "Between two checks.", default: "2s", minimum: "100ms", maximum: "10m" }),
  timeout: duration({ description: "For the answer.", default: "1s", minimum: "10ms", maximum: "1m" }),
  "down-after": integer({
    description: "Failed checks in a row after which an engine is down.",
    default: 3,
    minimum: 1,
    maximum: 100,
  }),
  "up-after": integer({
    description: "Good checks in a row after which it is up again.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "panic-threshold": number({
    description:
      "Share of a model's engines that have to be up; with fewer, those that are down are tried, one request at a time until they answer. 0: never.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const scrape = section("How the engines' own load figures are read.", {
  path: urlPath("Path of the engine's Prometheus metrics.", "/metrics"),
  interval: Type.Optional(
    duration({
      description:
        "Between two reads. 1s unless given; 50ms for engines of models whose policy is `epp_weighted`, which is made for that.",
      minimum: "50ms",
      maximum: "10m",
    }),
  ),
  timeout: duration({ description: "For the answer.", default: "1s", minimum: "10ms", maximum: "1m" }),
});

export const breaker = section("When an engine that fails requests is left alone for a while.", {
  "consecutive-failures": integer({
    description: "Failed requests in a row that open the breaker.",
    default: 5,
    minimum: 1,
    maximum: 1_000,
  }),
  "failure-share": number({
    description: "Share of failed requests in the window that opens it.",
    default: 0.5,
    minimum: 0.01,
    maximum: 1,
  }),
  "window-requests": integer({
    description: "Requests that the window needs before the share counts.",
    default: 20,
    minimum: 1,
    maximum: 100_000,
  }),
  window: duration({ description: "Length of the window.", default: "10s", minimum: "1s", maximum: "10m" }),
  open: duration({
    description: "How long it stays open the first time; twice as long each time after.",
    default: "2s",
    minimum: "100ms",
    maximum: "10m",
  }),
  "max-open": duration({
    description: "How long at most; `open` where that is longer, unless set.",
    default: "30s",
    minimum: "100ms",
    maximum: "1h",
  }),
  "successes-to-close": integer({
    description: "Successful trial requests that close it.",
    default: 2,
    minimum: 1,
    maximum: 100,
  }),
  "max-ejected-share": number({
    description: "Share of a model's engines that may be left alone; while more would be, breakers do not count.",
    default: 0.5,
    minimum: 0,
    maximum: 1,
  }),
});

export const retry = section("When a request is sent to another engine. It never is after a byte of the answer.", {
  "budget-ratio": number({
    description: "Retries per request, over the last ten seconds.",
    default: 0.2,
    minimum: 0,
    maximum: 1,
  }),
  "budget-minimum": integer({
    description: "Retries that are always allowed, over the last ten seconds.",
    default: 50,
    minimum: 0,
    maximum: 1_000,
  }),
  statuses: list(integer({ description: "An HTTP status.", minimum: 500, maximum: 599 }), {
    description: "Answers of an engine that lead to a retry.",
    maxItems: 100,
    default: [502, 503, 504],
  }),
});
