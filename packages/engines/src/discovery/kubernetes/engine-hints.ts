import {
  type EngineRole,
  type EngineTraits,
  type KvPullProtocol,
  type KvTransferProtocol,
  kvPullProtocols,
  kvTransferProtocols,
} from "@espalier/core";
import { objectOf, portOf, textOf, textsOf } from "./api-objects.ts";

/** Prefix of annotations and labels that describe an engine. An annotation overrides a label. */
const prefix = "espalier.dev/";
/** The well-known label of nodes, which Kubernetes copies to pods from 1.35 on; used if there is no key of our own. */
const regionLabel = "topology.kubernetes.io/region";
/** Longest region of an annotation or label, in UTF-16 units. */
const maxRegionLength = 128;
/** llm-d's label, used if there is no key of our own. */
const llmdRole = "llm-d.ai/role";
const llmdRoles: Readonly<Record<string, EngineRole>> = {
  prefill: "prefill",
  decode: "decode",
  both: "both",
  "prefill-decode": "both",
};
/** Models of an annotation. An annotation with more is ignored. */
const maxModels = 256;
/** Largest weight of an annotation. */
const maxWeight = 1_000_000;
/** Most data-parallel ranks of an annotation. */
const maxRanks = 64;
/** Highest first rank of an annotation. */
const maxFirstRank = 1_023;

interface HintedTraits {
  readonly traits: EngineTraits;
  /** Keys with unusable values, which are ignored. */
  readonly problems: readonly string[];
}

/**
 * Reads what the annotations and labels of an object say about its engines.
 *
 * @param body the object, as the API gives it
 * @param traits defaults
 */
export function readHints(body: unknown, traits: EngineTraits): HintedTraits {
  const { labels, annotations } = objectOf(objectOf(body).metadata);
  const written = { ...textsOf(labels), ...textsOf(annotations) };
  const problems: string[] = [];
  const read = <T>(key: string, parse: (text: string) => T | undefined): T | undefined => {
    const text = written[prefix + key];
    const value = text === undefined ? undefined : parse(text.trim());
    if (text !== undefined && value === undefined)
      problems.push(`${prefix}${key}: ${JSON.stringify(text.slice(0, 64))}`);
    return value;
  };
  const hinted: EngineTraits = {
    labels: traits.labels,
    scheme: read("scheme", oneOf(["http", "https"])) ?? traits.scheme,
    models: read("models", modelNames) ?? traits.models,
    role: read("role", oneOf(["both", "prefill", "decode"])) ?? llmdRoles[written[llmdRole] ?? ""] ?? traits.role,
    weight: read("weight", (text) => between(Number(text), 0.001, maxWeight)) ?? traits.weight,
    region: read("region", regionName) ?? regionName(written[regionLabel] ?? "") ?? traits.region,
    ranks: read("ranks", (text) => wholeBetween(Number(text), 1, maxRanks)) ?? traits.ranks,
    firstRank: read("first-rank", (text) => wholeBetween(Number(text), 0, maxFirstRank)) ?? traits.firstRank,
    kvEventsPort: read("kv-events-port", portOf) ?? traits.kvEventsPort,
    kvReplayPort: read("kv-replay-port", portOf) ?? traits.kvReplayPort,
    kvTopic: read("kv-topic", (text) => text) ?? traits.kvTopic,
    kvTransfer: read("kv-transfer", oneOf<KvTransferProtocol>(kvTransferProtocols)) ?? traits.kvTransfer,
    kvTransferPort: read("kv-transfer-port", portOf) ?? traits.kvTransferPort,
    kvPull: read("kv-pull", oneOf<KvPullProtocol>(kvPullProtocols)) ?? traits.kvPull,
    kvPullPort: read("kv-pull-port", portOf) ?? traits.kvPullPort,
  };
  return { traits: hinted, problems };
}

const oneOf =
  <Name extends string>(names: readonly Name[]) =>
  (text: string): Name | undefined =>
    names.find((name) => name === text);

function modelNames(text: string): readonly string[] | undefined {
  const names = text
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "");
  const isUsable = names.length > 0 && names.length <= maxModels && names.every((name) => name.length <= 256);
  return isUsable ? names : undefined;
}

const regionName = (text: string): string | undefined =>
  text !== "" && text.length <= maxRegionLength ? text : undefined;

const between = (value: number, least: number, most: number): number | undefined =>
  value >= least && value <= most ? value : undefined;

const wholeBetween = (value: number, least: number, most: number): number | undefined =>
  Number.isInteger(value) ? between(value, least, most) : undefined;

/** Where an engine runs. */
interface Location {
  readonly pod: unknown;
  readonly namespace: unknown;
  readonly node: unknown;
  readonly zone: unknown;
}

/**
 * Adds the known parts of a location to the labels, under OpenTelemetry's names. Labels of the configuration win. A zone
 * is the region of engines that have no other.
 */
export function withLocation(traits: EngineTraits, { pod, namespace, node, zone }: Location): EngineTraits {
  const known = Object.entries({
    "k8s.pod.name": textOf(pod),
    "k8s.namespace.name": textOf(namespace),
    "k8s.node.name": textOf(node),
    "cloud.availability_zone": textOf(zone),
  }).filter((entry): entry is [string, string] => entry[1] !== undefined);
  const region = traits.region ?? regionName(textOf(zone) ?? "");
  return { ...traits, region, labels: { ...Object.fromEntries(known), ...traits.labels } };
}
