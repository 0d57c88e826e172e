import { Type } from "typebox";
import { section } from "./container.ts";
import { number, text } from "./leaf.ts";

export const tracing = section("Traces of requests, sent to an OpenTelemetry collector over OTLP/HTTP.", {
  endpoint: Type.Optional(
    text({
      description:
        "Base URL of the collector, to which `/v1/traces` is added: `http://127.0.0.1:4318`. Without one nothing is traced. Where nothing else gives it, `OTEL_EXPORTER_OTLP_ENDPOINT` does.",
      maxLength: 2_048,
      pattern: "^https?://[^\\s/?#@]+(/[^\\s?#]*)?$",
      expected: "an http or https URL without user, query or fragment",
    }),
  ),
  headers: Type.Optional(
    text({
      description:
        "Headers for the collector, as `name=value` pairs with commas between them, values percent-encoded; such as a key. Where nothing else gives them, `OTEL_EXPORTER_OTLP_HEADERS` does.",
      maxLength: 8_192,
      isSecret: true,
    }),
  ),
  "service-name": text({
    description: "What traces call this service. Where nothing else gives it, `OTEL_SERVICE_NAME` does.",
    default: "espalier-router",
    maxLength: 255,
  }),
  sample: number({
    description:
      "Share of the requests that are traced where the caller has not decided. A caller's `traceparent` that says sampled is followed, and one that says not sampled as well.",
    minimum: 0,
    maximum: 1,
    default: 0.01,
  }),
});
