import type { EngineTraits, Logger } from "@espalier/common";
import type { EngineSource } from "../engine-source.ts";
import type { AddressFamily } from "../family.ts";
import { createCollectionSource, inNamespace, podsPath, slicesOf, slicesPath } from "./collection-source.ts";
import { createEnginePublisher } from "./engine-publisher.ts";
import type { KubernetesPorts } from "./list-watch.ts";
import { readEndpointSlice } from "./read-endpoint-slice.ts";
import { readPod } from "./read-pod.ts";

interface CommonOptions {
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  readonly traits: EngineTraits;
  readonly logger?: Logger;
}

export interface ServiceSourceOptions extends CommonOptions {
  readonly service: string;
  /** Number of the engines' port, or name of a port of the service; undefined for its first. */
  readonly port: number | string | undefined;
  readonly family: AddressFamily;
}

/** A source that follows the EndpointSlices of a service: endpoints that are ready and not terminating. */
export function createServiceSource(ports: KubernetesPorts, options: ServiceSourceOptions): EngineSource {
  const { namespace, service, port, traits, family, logger } = options;
  return createCollectionSource(ports, {
    ...{ name: `service ${inNamespace(namespace, service)}`, kind: "endpoint slices", namespace },
    ...{ path: slicesPath, selector: slicesOf(service) },
    read: (object) => readEndpointSlice(object, port, traits),
    publishTo: (observer, report) => createEnginePublisher(observer, report, family, logger),
  });
}

export interface PodSourceOptions extends CommonOptions {
  /** A label selector: `app=vllm,tier in (a, b)`. */
  readonly selector: string;
  /** Number, or name of a port of a container. */
  readonly port: number | string;
}

/** A source that follows the pods that a label selector selects: those that run, are ready and are not being deleted. */
export function createPodSource(ports: KubernetesPorts, options: PodSourceOptions): EngineSource {
  const { namespace, selector, port, traits, logger } = options;
  return createCollectionSource(ports, {
    ...{ name: `pods ${inNamespace(namespace, selector)}`, kind: "pods", namespace, path: podsPath, selector },
    read: (object) => readPod(object, [port], traits),
    publishTo: (observer, report) => createEnginePublisher(observer, report, "auto", logger),
  });
}
