import { type Static, Type } from "typebox";
import { flag, section } from "./schema-builders.ts";
import { admission } from "./sections/admission.ts";
import { discovery } from "./sections/discovery.ts";
import { breaker, engines, enginesFile, engineTls, health, resume, retry, scrape } from "./sections/engines.ts";
import {
  admin,
  apiKeys,
  cors,
  drain,
  endpointPicker,
  limits,
  listen,
  log,
  processes,
  scale,
  timeouts,
  warmUp,
} from "./sections/listeners.ts";
import { mesh } from "./sections/mesh.ts";
import { overflow } from "./sections/overflow.ts";
import { kvEvents, kvPools, prefix, tokenize, tokenizers } from "./sections/prefix-cache.ts";
import { rollouts } from "./sections/rollouts.ts";
import { disaggregation, forwardPaths, models, plugins, policy, pools, sessionKey } from "./sections/routing.ts";
import { slo } from "./sections/slo.ts";
import { tracing } from "./sections/tracing.ts";

/**
 * The schema of the configuration. Types, checks, defaults, the JSON Schema, flags, environment variables and
 * `docs/CONFIGURATION.md` are derived from it.
 */
export const configSchema = section("Configuration of Espalier.", {
  listen,
  processes,
  "warm-up": warmUp,
  admin,
  "endpoint-picker": endpointPicker,
  scale,
  rollouts,
  "api-keys": apiKeys,
  cors,
  engines,
  "engines-file": Type.Optional(enginesFile),
  discovery,
  "engine-tls": engineTls,
  plugins,
  policy,
  slo,
  "session-key": sessionKey,
  pools,
  admission,
  overflow,
  disaggregation,
  models,
  tokenizers,
  tokenize,
  prefix,
  "kv-events": kvEvents,
  "kv-pools": kvPools,
  mesh,
  "forward-paths": forwardPaths,
  "inject-usage": flag({
    description:
      "Ask engines for the token usage of every stream. If the client did not ask for it, the router removes it from the answer.",
    default: true,
  }),
  "trust-transfer-fields": flag({
    description:
      "Accept the fields with which a client says where engines fetch KV blocks and which rank serves them (`kv_transfer_params`, `bootstrap_host`, `x-data-parallel-rank` and the like). Turn it on only if every client is itself a router: engines connect to any address the fields name.",
    default: false,
  }),
  health,
  scrape,
  breaker,
  retry,
  resume,
  timeouts,
  limits,
  drain,
  log,
  tracing,
});

/** A configuration with every default filled in, keyed as in the file: durations in milliseconds, sizes in bytes. */
export type ConfigTree = Static<typeof configSchema>;
