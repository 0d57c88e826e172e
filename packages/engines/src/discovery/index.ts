/**
 * Service discovery: sources of engines (a fixed list, a watched file, DNS, Kubernetes) and their union; and sources of other
 * routers.
 */

export {
  createDnsSource,
  createHostLookup,
  createPeerDnsSource,
  type DnsResolver,
  type DnsSourceOptions,
  lookUpTtl,
} from "./dns-source.ts";
export {
  createListSource,
  type EngineSource,
  type PeerSource,
  type Source,
  type SourceObserver,
} from "./engine-source.ts";
export { createFileSource, type FileSourceOptions } from "./file-source.ts";
export { createInferenceTables, type InferenceObject, type InferenceTables } from "./inference-tables.ts";
export { createInferenceObjectSource, type InferenceObjectSourceOptions } from "./kubernetes/inference-objects.ts";
export { createInferencePoolSource } from "./kubernetes/inference-pool-source.ts";
export {
  createKubernetesClient,
  type KubernetesAccess,
  type KubernetesClient,
  type KubernetesTransport,
} from "./kubernetes/kubernetes-client.ts";
export {
  createPeerPodSource,
  createPeerServiceSource,
  createPodSource,
  createServiceSource,
  type PodSourceOptions,
  type ServiceSourceOptions,
} from "./kubernetes/kubernetes-source.ts";
export type { KubernetesPorts } from "./kubernetes/list-watch.ts";
export { watchFile } from "./local-file.ts";
export { type MergeObserver, mergeSources } from "./merge-sources.ts";
