import { isIP } from "node:net";
import type { EngineTraits } from "@espalier/common";
import { engineAt, maxEnginesPerSource } from "../discovered-engine.ts";
import { readHints } from "./engine-hints.ts";
import type { FoundEngine, FoundEngines } from "./found-engines.ts";
import { listOf, objectOf, portOf, textOf } from "./json.ts";
import { withPlace } from "./place-labels.ts";
import type { KubernetesObject } from "./watch-event.ts";

/**
 * The engines of an EndpointSlice (discovery.k8s.io/v1) that are ready and not terminating.
 *
 * @param port a number, a name of one of the slice's ports, or undefined for the first of them
 */
export function readEndpointSlice(
  { name, body }: KubernetesObject,
  port: number | string | undefined,
  traits: EngineTraits,
): FoundEngines {
  const slice = objectOf(body);
  const hints = readHints(body, traits);
  const found = typeof port === "number" ? port : portOfSlice(slice.ports, port);
  const engines: FoundEngine[] = [];
  for (const entry of listOf(slice.endpoints).slice(0, maxEnginesPerSource)) {
    const endpoint = objectOf(entry);
    // Of several addresses consumers are to take the first.
    const address = textOf(listOf(endpoint.addresses)[0]) ?? "";
    const family = isIP(address);
    if (found === undefined || (family !== 4 && family !== 6) || !isReady(endpoint.conditions)) continue;
    const { kind, name: pod, namespace } = objectOf(endpoint.targetRef);
    const place = { pod: kind === "Pod" ? pod : undefined, namespace, node: endpoint.nodeName, zone: endpoint.zone };
    engines.push({ family, spec: engineAt({ address, port: found }, withPlace(hints.traits, place)) });
  }
  return { name, engines, problems: hints.problems };
}

/** What is not said counts as ready. Services may publish what is not ready; what is terminating they do not mean. */
function isReady(conditions: unknown): boolean {
  const { ready, terminating } = objectOf(conditions);
  return ready !== false && terminating !== true;
}

function portOfSlice(ports: unknown, name: string | undefined): number | undefined {
  const all = listOf(ports).map(objectOf);
  return portOf((name === undefined ? all[0] : all.find((port) => port.name === name))?.port);
}
