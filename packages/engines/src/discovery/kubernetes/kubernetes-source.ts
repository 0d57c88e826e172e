import type { EngineTraits, JsonObject, Logger } from "@espalier/core";
import { type AddressFamily, formatHost, maxEnginesPerSource } from "../discovered-engine.ts";
import {
  createFailureReport,
  type EngineSource,
  type FailureReport,
  type PeerSource,
  type Source,
  type SourceObserver,
} from "../engine-source.ts";
import type { KubernetesObject } from "./api-objects.ts";
import { endpointsOf, readEndpointSlice } from "./endpoint-slice.ts";
import { createEnginePublisher, familyOf } from "./engine-publisher.ts";
import { createListWatch, type KubernetesPorts, type ListWatch } from "./list-watch.ts";
import { addressesOfPod, type PodAddress, readPod } from "./pod.ts";

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

/** EndpointSlices of a service, or pods of a selector. Further ones are left out. */
const maxObjects = 10_000;

/** A collection of objects to follow, and how to publish it. */
interface FollowedCollection<Found, Entry> {
  readonly name: string;
  /** In the plural, for messages. */
  readonly kind: string;
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  readonly path: (namespace: string) => string;
  /** Label selector. */
  readonly selector: string;
  /** Extracts the stored part of an object, as plain data. */
  readonly read: (object: KubernetesObject) => Found;
  /** Creates the publisher, which turns the values of all objects into lists for the observer. */
  readonly publishTo: (
    observer: SourceObserver<Entry>,
    report: FailureReport,
  ) => { publish(found: readonly Found[]): void };
}

/** A source that lists a collection and watches it. */
function createCollectionSource<Found, Entry>(
  ports: KubernetesPorts,
  { name, kind, namespace, path, selector, read, publishTo }: FollowedCollection<Found, Entry>,
): Source<Entry> {
  let followed: ListWatch | undefined;
  return {
    name,
    async start(observer) {
      const report = createFailureReport(name, observer);
      const publisher = publishTo(observer, report);
      followed = createListWatch(ports, {
        ...{ kind, namespace, maxObjects, mustExist: false, read, report },
        paths: (own) => [path(own)],
        parameters: { labelSelector: selector },
        onValues: (found) => publisher.publish(found),
      });
      observer.onList([]);
      await followed.start();
    },
    async stop() {
      followed?.stop();
    },
  };
}

const slicesPath = (namespace: string): string => `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

export const podsPath = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;

/** Selects the EndpointSlices of a service. */
const slicesOf = (service: string): string => `kubernetes.io/service-name=${service}`;

export const inNamespace = (namespace: string | undefined, name: string): string =>
  namespace === undefined ? name : `${namespace}/${name}`;

export interface PeerServiceSourceOptions {
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  readonly service: string;
  /** Number of the routers' port, or name of a port of the service; undefined for its first. */
  readonly port: number | string | undefined;
}

/**
 * A source that follows the EndpointSlices of the routers' own service: endpoints that are not terminating. They need
 * not be ready, because a router reports ready only after it has synced with others.
 */
export function createPeerServiceSource(ports: KubernetesPorts, options: PeerServiceSourceOptions): PeerSource {
  const { namespace, service, port } = options;
  return createCollectionSource(ports, {
    ...{ name: `service ${inNamespace(namespace, service)}`, kind: "endpoint slices", namespace },
    ...{ path: slicesPath, selector: slicesOf(service) },
    read: ({ body }) => endpointsOf(body, port, isStaying).map(({ at, family }) => ({ at, family })),
    publishTo: createPeerPublisher,
  });
}

export interface PeerPodSourceOptions {
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  /** A label selector: `app=espalier,tier in (a, b)`. */
  readonly selector: string;
  /** Number, or name of a port of a container. */
  readonly port: number | string;
}

/** A source that follows the routers' pods: those that run and are not being deleted, ready or not. */
export function createPeerPodSource(ports: KubernetesPorts, options: PeerPodSourceOptions): PeerSource {
  const { namespace, selector, port } = options;
  return createCollectionSource(ports, {
    ...{ name: `pods ${inNamespace(namespace, selector)}`, kind: "pods", namespace, path: podsPath, selector },
    read: ({ body }) => addressesOfPod(body, [port]),
    publishTo: createPeerPublisher,
  });
}

const isStaying = ({ terminating }: JsonObject): boolean => terminating !== true;

function createPeerPublisher(observer: SourceObserver<string>, report: FailureReport) {
  let shown = "";
  return {
    publish(found: readonly (readonly PodAddress[])[]): void {
      const all = found.flat();
      const wanted = familyOf("auto", all);
      const peers = new Set(all.filter(({ family }) => family === wanted).map(({ at }) => formatHost(at)));
      const kept = [...peers].sort().slice(0, maxEnginesPerSource);
      if (kept.length < peers.size) {
        report.fail("peers", `more than ${maxEnginesPerSource} routers; the rest is ignored`);
      } else report.clear("peers");
      if (kept.join() === shown) return;
      shown = kept.join();
      observer.onList(kept);
    },
  };
}
