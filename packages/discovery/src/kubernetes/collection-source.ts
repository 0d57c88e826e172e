import type { Source, SourceObserver } from "../engine-source.ts";
import { createFailureReport, type FailureReport } from "../failure-report.ts";
import { createListWatch, type KubernetesPorts, type ListWatch } from "./list-watch.ts";
import type { KubernetesObject } from "./watch-event.ts";

/** EndpointSlices of a service, or pods of a selector. Further ones are left out. */
const maxObjects = 10_000;

/** What of a namespace is followed, and what it comes to. */
export interface FollowedCollection<Found, Entry> {
  readonly name: string;
  /** In the plural, for messages. */
  readonly kind: string;
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  readonly path: (namespace: string) => string;
  /** Of labels. */
  readonly selector: string;
  /** What is kept of an object: plain data. */
  readonly read: (object: KubernetesObject) => Found;
  /** Makes what gives the observer its lists, of what is kept of all objects. */
  readonly publishTo: (
    observer: SourceObserver<Entry>,
    report: FailureReport,
  ) => { publish(found: readonly Found[]): void };
}

/** A source that lists a collection and watches it. */
export function createCollectionSource<Found, Entry>(
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

export const slicesPath = (namespace: string): string =>
  `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;

export const podsPath = (namespace: string): string => `/api/v1/namespaces/${namespace}/pods`;

/** Selects the EndpointSlices of a service. */
export const slicesOf = (service: string): string => `kubernetes.io/service-name=${service}`;

export const inNamespace = (namespace: string | undefined, name: string): string =>
  namespace === undefined ? name : `${namespace}/${name}`;
