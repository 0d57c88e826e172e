import type { EngineTraits, Logger } from "@espalier/common";
import type { EngineSource } from "../engine-source.ts";
import { createFailureReport } from "../failure-report.ts";
import type { AddressFamily } from "../family.ts";
import { createEnginePublisher } from "./engine-publisher.ts";
import { createListWatch, type KubernetesPorts, type ListWatch } from "./list-watch.ts";
import { readEndpointSlice } from "./read-endpoint-slice.ts";
import { readPod } from "./read-pod.ts";

/** EndpointSlices of a service, or pods of a selector. Further ones are left out. */
const maxObjects = 10_000;

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
  const { service, port, traits, family } = options;
  return createSource(ports, options, {
    name: `service ${inNamespace(options.namespace, service)}`,
    kind: "endpoint slices",
    path: (namespace) => `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`,
    selector: `kubernetes.io/service-name=${service}`,
    family,
    read: (object) => readEndpointSlice(object, port, traits),
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
  const { selector, port, traits } = options;
  return createSource(ports, options, {
    name: `pods ${inNamespace(options.namespace, selector)}`,
    kind: "pods",
    path: podsPath,
    selector,
    family: "auto",
    read: (object) => readPod(object, [port], traits),
  });
}

export const podsPath = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;

export const inNamespace = (namespace: string | undefined, name: string): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

interface Followed extends Pick<Parameters<typeof createListWatch>[1], "kind"> {
  readonly name: string;
  readonly path: (namespace: string) => string;
  readonly selector: string;
  readonly family: AddressFamily;
  readonly read: (object: Parameters<typeof readPod>[0]) => ReturnType<typeof readPod>;
}

function createSource(
  ports: KubernetesPorts,
  { namespace, logger }: CommonOptions,
  { name, kind, path, selector, family, read }: Followed,
): EngineSource {
  let followed: ListWatch | undefined;
  return {
    name,
    async start(observer) {
      const report = createFailureReport(name, observer);
      const publisher = createEnginePublisher(observer, report, family, logger);
      followed = createListWatch(ports, {
        ...{ kind, namespace, maxObjects, mustExist: false, read, report },
        paths: (own) => [path(own)],
        parameters: { labelSelector: selector },
        onValues: publisher.publish,
      });
      observer.onSpecs([]);
      await followed.start();
    },
    async stop() {
      followed?.stop();
    },
  };
}
