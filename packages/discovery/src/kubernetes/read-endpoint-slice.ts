import type { EngineTraits } from "@espalier/common";
import { engineAt } from "../discovered-engine.ts";
import { readHints } from "./engine-hints.ts";
import type { FoundEngines } from "./found-engines.ts";
import { type Json, objectOf } from "./json.ts";
import { withPlace } from "./place-labels.ts";
import { endpointsOf } from "./slice-endpoints.ts";
import type { KubernetesObject } from "./watch-event.ts";

/**
 * The engines of an EndpointSlice (discovery.k8s.io/v1) that are ready and not terminating.
 *
 * @param port see `endpointsOf`
 */
export function readEndpointSlice(
  { name, body }: KubernetesObject,
  port: number | string | undefined,
  traits: EngineTraits,
): FoundEngines {
  const hints = readHints(body, traits);
  const engines = endpointsOf(body, port, isReady).map(({ at, family, endpoint }) => {
    const { kind, name: pod, namespace } = objectOf(endpoint.targetRef);
    const place = { pod: kind === "Pod" ? pod : undefined, namespace, node: endpoint.nodeName, zone: endpoint.zone };
    return { family, spec: engineAt(at, withPlace(hints.traits, place)) };
  });
  return { name, engines, problems: hints.problems };
}

/** What is not said counts as ready. Services may publish what is not ready; what is terminating they do not mean. */
const isReady = ({ ready, terminating }: Json): boolean => ready !== false && terminating !== true;
