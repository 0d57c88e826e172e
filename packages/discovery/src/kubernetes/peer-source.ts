import { formatHost, maxEnginesPerSource } from "../discovered-engine.ts";
import type { PeerSource, SourceObserver } from "../engine-source.ts";
import type { FailureReport } from "../failure-report.ts";
import { createCollectionSource, inNamespace, podsPath, slicesOf, slicesPath } from "./collection-source.ts";
import { familyOf } from "./found-engines.ts";
import type { Json } from "./json.ts";
import type { KubernetesPorts } from "./list-watch.ts";
import { addressesOfPod, type PodAddress } from "./pod-addresses.ts";
import { endpointsOf } from "./slice-endpoints.ts";

export interface PeerServiceSourceOptions {
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  readonly service: string;
  /** Number of the routers' port, or name of a port of the service; undefined for its first. */
  readonly port: number | string | undefined;
}

/**
 * A source that follows the EndpointSlices of the routers' own service: endpoints that are not terminating, ready or not,
 * for a router is not ready before it has met the others.
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

const isStaying = ({ terminating }: Json): boolean => terminating !== true;

function createPeerPublisher(observer: SourceObserver<string>, report: FailureReport) {
  let shown = "";
  return {
    publish(found: readonly (readonly PodAddress[])[]): void {
      const all = found.flat();
      const wanted = familyOf("auto", all);
      const peers = new Set(all.filter(({ family }) => family === wanted).map(({ at }) => formatHost(at)));
      const kept = [...peers].sort().slice(0, maxEnginesPerSource);
      if (kept.length < peers.size) {
        report.fail("peers", `more than ${maxEnginesPerSource} routers; the others are left out`);
      } else report.clear("peers");
      if (kept.join() === shown) return;
      shown = kept.join();
      observer.onList(kept);
    },
  };
}
