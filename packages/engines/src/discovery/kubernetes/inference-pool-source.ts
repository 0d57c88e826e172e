import { type EngineTraits, type Logger, silentLogger } from "@espalier/core";
import { createFailureReport, type EngineSource, type FailureReport, type SourceObserver } from "../engine-source.ts";
import { type KubernetesObject, listOf, objectOf, portOf, textOf, textsOf } from "./api-objects.ts";
import { createEnginePublisher, type EnginePublisher } from "./engine-publisher.ts";
import { inNamespace, podsPath } from "./kubernetes-source.ts";
import { createListWatch, type KubernetesPorts, type ListWatch } from "./list-watch.ts";
import { readPod } from "./pod.ts";

const groupVersions = ["inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2"];
/** Pods of one InferencePool; further ones are left out. */
const maxPods = 10_000;

export interface InferencePoolSourceOptions {
  /** Undefined for the service account's own. */
  readonly namespace: string | undefined;
  /** Name of the InferencePool. */
  readonly pool: string;
  readonly traits: EngineTraits;
  readonly logger?: Logger;
}

/**
 * A source that follows an InferencePool of the Gateway API Inference Extension and the pods that it selects: as v1, or as
 * v1alpha2 if v1 has no pool of the name. Each of its target ports is an engine. While the pool does not exist, its last
 * state stays in use.
 */
export function createInferencePoolSource(ports: KubernetesPorts, options: InferencePoolSourceOptions): EngineSource {
  return new InferencePoolSource(ports, options);
}

class InferencePoolSource implements EngineSource {
  readonly name: string;
  readonly #ports: KubernetesPorts;
  readonly #options: InferencePoolSourceOptions;
  #pool: ListWatch | undefined;
  #pods: ListWatch | undefined;
  #firstPods: Promise<void> | undefined;
  #protocol = "http";

  constructor(ports: KubernetesPorts, options: InferencePoolSourceOptions) {
    this.name = `inference pool ${inNamespace(options.namespace, options.pool)}`;
    this.#ports = ports;
    this.#options = options;
  }

  async start(observer: SourceObserver): Promise<void> {
    const { namespace, pool, logger } = this.#options;
    const report = createFailureReport(this.name, observer);
    const publisher = createEnginePublisher(observer, report, "auto", logger);
    observer.onList([]);
    this.#pool = createListWatch(this.#ports, {
      ...{ kind: "inference pools", namespace, maxObjects: 1, mustExist: true, read: readInferencePool, report },
      paths: (own) => groupVersions.map((group) => `/apis/${group}/namespaces/${own}/inferencepools`),
      parameters: { fieldSelector: `metadata.name=${pool}` },
      onValues: ([found]) => {
        this.#noteProtocol(found!.appProtocol);
        this.#follow(found!, publisher, report);
      },
    });
    await this.#pool.start();
    await this.#firstPods;
  }

  async stop(): Promise<void> {
    this.#pool?.stop();
    this.#pods?.stop();
  }

  /** The router has one protocol for its engines, so it can only say that the pool names another one. */
  #noteProtocol(appProtocol: string): void {
    if (appProtocol === this.#protocol) return;
    this.#protocol = appProtocol;
    const { logger = silentLogger } = this.#options;
    const message = "inference pool requests another protocol than HTTP/1.1; using HTTP/1.1";
    if (appProtocol !== "http") logger.warn(message, { source: this.name, appProtocol });
  }

  /** The list stays unchanged until the pods of the new state of the pool are known. */
  #follow({ labels, ports }: InferencePool, publisher: EnginePublisher, report: FailureReport): void {
    this.#pods?.stop();
    const selector = Object.entries(labels)
      .map(([key, value]) => `${key}=${value}`)
      .join(",");
    if (selector === "" || ports.length === 0) {
      report.fail("pool", "no selector or no port; last list stays in use");
      return;
    }
    report.clear("pool");
    const { namespace, traits } = this.#options;
    this.#pods = createListWatch(this.#ports, {
      ...{ kind: "pods", namespace, maxObjects: maxPods, mustExist: false, report },
      paths: (own) => [podsPath(own)],
      parameters: { labelSelector: selector },
      read: (object) => readPod(object, ports, traits),
      onValues: publisher.publish,
    });
    this.#firstPods = this.#pods.start();
  }
}

/** An InferencePool has at most 8; more are left out. */
const maxPorts = 8;

/** The pods and ports that an InferencePool selects. */
interface InferencePool {
  /** Labels of its pods. Without labels, it selects no pod. */
  readonly labels: Readonly<Record<string, string>>;
  /** Each is an engine of its own. */
  readonly ports: readonly number[];
  /** `http` for HTTP/1.1, the default, or `kubernetes.io/h2c` for HTTP/2 in clear text. */
  readonly appProtocol: string;
}

/**
 * Reads `spec.selector.matchLabels`, `spec.targetPorts` and `spec.appProtocol` of inference.networking.k8s.io/v1, or `spec.selector` and
 * `spec.targetPortNumber` of inference.networking.x-k8s.io/v1alpha2.
 */
export function readInferencePool({ body }: KubernetesObject): InferencePool {
  const { selector, targetPorts, targetPortNumber, appProtocol } = objectOf(objectOf(body).spec);
  const { matchLabels } = objectOf(selector);
  const labels = textsOf(matchLabels === undefined ? selector : matchLabels);
  const numbers =
    targetPorts === undefined ? [targetPortNumber] : listOf(targetPorts).map((port) => objectOf(port).number);
  const ports = numbers.map(portOf).filter((port) => port !== undefined);
  return { labels, ports: [...new Set(ports)].slice(0, maxPorts), appProtocol: textOf(appProtocol) ?? "http" };
}
