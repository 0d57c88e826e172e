import { isIP } from "node:net";
import { isLoopback } from "@espalier/core";
import { Type } from "typebox";
import type { Problem } from "../problems.ts";
import type { ConfigTree } from "../schema.ts";
import { duration, integer, list, section, text } from "../schema-builders.ts";
import { sha256Of } from "../secret.ts";
import { compiled } from "../settings-of.ts";
import { host, tls } from "./listeners.ts";

const privateNetworks = [
  "127.0.0.0/8",
  "::1",
  "localhost",
  "10.0.0.0/8",
  "172.16.0.0/12",
  "192.168.0.0/16",
  "fc00::/7",
];

const rolloutsSection = section(
  "Listener for RL frameworks: the clients' API, and what frameworks ask of their router and engines.",
  {
    host: host(
      "Address to listen on for RL frameworks. An address that is not loopback requires `rollouts.key` or `rollouts.trusted`.",
    ),
    port: Type.Optional(
      integer({
        description: "Port to listen on for RL frameworks. 0 takes any free port. Without it, the listener is off.",
        minimum: 0,
        maximum: 65_535,
      }),
    ),
    key: Type.Optional(
      text({
        description:
          "Key that every request to this listener must carry, in place of `api-keys`. Without one, control calls must name a loopback address as their host.",
        minLength: 8,
        maxLength: 512,
        isSecret: true,
      }),
    ),
    trusted: list(
      text({
        description: "An address or a network such as `10.0.0.0/8`.",
        maxLength: 64,
        pattern: "^[0-9A-Fa-f.:]+(/\\d{1,3})?$",
        expected: "an address or a network",
      }),
      {
        description:
          "Networks whose clients need no key, if they reach this listener by its address and not by a host name. They control every engine.",
        maxItems: 64,
        default: [],
      },
    ),
    tls: tls("rollouts"),
    allow: list(
      text({
        description: "An address, a network such as `10.0.0.0/8`, a host name, or `*.` and the end of host names.",
        maxLength: 253,
        pattern: "^(\\*\\.)?[A-Za-z0-9.:_-]+(/\\d{1,3})?$",
        expected: "an address, a network, a host name or *.DOMAIN",
      }),
      {
        description: "Hosts of engines that frameworks may add.",
        maxItems: 256,
        default: privateNetworks,
      },
    ),
    timeout: duration({
      description: "How long an engine may take for a control call, such as an update of its weights.",
      default: "20m",
      minimum: "1s",
      maximum: "24h",
    }),
    hold: duration({
      description:
        "How long requests wait while no engine of their model takes any, for instance during an update of weights. Needs `admission.mode: on`; applies to all listeners while this one is on.",
      default: "10m",
      minimum: "0s",
      maximum: "24h",
    }),
  },
);

/** Undefined without a port. The key is kept as its hash only. */
export const rollouts = compiled(rolloutsSection, ({ port, key, ...settings }) =>
  port === undefined
    ? undefined
    : { ...settings, port, keySha256: key === undefined ? undefined : sha256Of(key.reveal()) },
);

export function checkRollouts({ rollouts: { host: listening, port, key, allow, trusted } }: ConfigTree): Problem[] {
  const problems = Object.entries({ allow, trusted }).flatMap(([name, list]) =>
    list.flatMap((written, at): Problem[] => {
      const [address = "", bits] = written.split("/");
      // Of hosts that are allowed, some have names.
      if (bits === undefined && (name === "allow" || isIP(address) > 0)) return [];
      const most = { 4: 32, 6: 128 }[isIP(address)];
      if (most !== undefined && bits !== undefined && Number(bits) <= most) return [];
      return [{ path: ["rollouts", name, at], message: `${JSON.stringify(written)} is not a network` }];
    }),
  );
  if (port !== undefined && key === undefined && trusted.length === 0 && !isLoopback(listening)) {
    problems.push({
      path: ["rollouts", "key"],
      message: `is required because ${listening} is not a loopback address`,
    });
  }
  return problems;
}
