import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Gateway } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/Gateway";
import { GatewayClass } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/GatewayClass";
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { DestinationRule } from "@kubernetes-models/istio/networking.istio.io/v1/DestinationRule";
import { PrometheusRule } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/PrometheusRule";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";
import { Deployment } from "kubernetes-models/apps/v1/Deployment";
import { HorizontalPodAutoscaler } from "kubernetes-models/autoscaling/v2/HorizontalPodAutoscaler";
import { Ingress } from "kubernetes-models/networking.k8s.io/v1/Ingress";
import { NetworkPolicy } from "kubernetes-models/networking.k8s.io/v1/NetworkPolicy";
import { PodDisruptionBudget } from "kubernetes-models/policy/v1/PodDisruptionBudget";
import { Role } from "kubernetes-models/rbac.authorization.k8s.io/v1/Role";
import { RoleBinding } from "kubernetes-models/rbac.authorization.k8s.io/v1/RoleBinding";
import { ConfigMap } from "kubernetes-models/v1/ConfigMap";
import { Namespace } from "kubernetes-models/v1/Namespace";
import { Service } from "kubernetes-models/v1/Service";
import { ServiceAccount } from "kubernetes-models/v1/ServiceAccount";
import { root } from "./files.ts";
import { readByHand } from "./kinds-by-hand.ts";

/** What all objects of Kubernetes have. */
export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
}

interface Validated {
  validate(): void;
}

const models = "kubernetes-models";
const operator = "@kubernetes-models/prometheus-operator";
const gateways = "@kubernetes-models/gateway-api";
const istio = "@kubernetes-models/istio";
/** By version and kind: the library that knows the kind, and its validator, made of the API's own OpenAPI schema. */
const kinds: Readonly<Record<string, { readonly library: string; readonly of: new (object: never) => Validated }>> = {
  "apps/v1/Deployment": { library: models, of: Deployment },
  "autoscaling/v2/HorizontalPodAutoscaler": { library: models, of: HorizontalPodAutoscaler },
  "gateway.networking.k8s.io/v1/Gateway": { library: gateways, of: Gateway },
  "gateway.networking.k8s.io/v1/GatewayClass": { library: gateways, of: GatewayClass },
  "gateway.networking.k8s.io/v1/HTTPRoute": { library: gateways, of: HTTPRoute },
  "monitoring.coreos.com/v1/PrometheusRule": { library: operator, of: PrometheusRule },
  "monitoring.coreos.com/v1/ServiceMonitor": { library: operator, of: ServiceMonitor },
  "networking.istio.io/v1/DestinationRule": { library: istio, of: DestinationRule },
  "networking.k8s.io/v1/Ingress": { library: models, of: Ingress },
  "networking.k8s.io/v1/NetworkPolicy": { library: models, of: NetworkPolicy },
  "policy/v1/PodDisruptionBudget": { library: models, of: PodDisruptionBudget },
  "rbac.authorization.k8s.io/v1/Role": { library: models, of: Role },
  "rbac.authorization.k8s.io/v1/RoleBinding": { library: models, of: RoleBinding },
  "v1/ConfigMap": { library: models, of: ConfigMap },
  "v1/Namespace": { library: models, of: Namespace },
  "v1/Service": { library: models, of: Service },
  "v1/ServiceAccount": { library: models, of: ServiceAccount },
};

const keyOf = ({ apiVersion, kind }: KubernetesObject): string => `${apiVersion}/${kind}`;

/** What an API server would refuse: missing fields, wrong types, values that no enumeration has. */
export function invalidFields(objects: readonly KubernetesObject[]): readonly string[] {
  return objects.flatMap((object) => {
    const written = readByHand(keyOf(object), object);
    if (written) return written.map((problem) => `${keyOf(object)} ${object.metadata?.name}: ${problem}`);
    const kind = kinds[keyOf(object)];
    if (!kind) return [`${keyOf(object)} is not known`];
    try {
      new kind.of(object as never).validate();
      return [];
    } catch (error) {
      return [`${keyOf(object)} ${object.metadata?.name}: ${error}`];
    }
  });
}

/**
 * Fields that the API does not have, which an API server drops without a word: the objects are compiled as literals of
 * the types that come with the validators.
 *
 * @returns the compiler's complaints, one a line
 */
export function unknownFields(objects: readonly KubernetesObject[]): readonly string[] {
  const folder = mkdtempSync(join(root, "node_modules", ".deploy-"));
  const lines = objects.flatMap((object, at) => {
    const kind = kinds[keyOf(object)];
    if (!kind) return [];
    const specifier = `${kind.library}/${keyOf(object)}`;
    return [
      `import type { I${object.kind} as T${at} } from ${JSON.stringify(specifier)};`,
      `export const o${at}: T${at} = ${JSON.stringify(object, null, 1)};`,
    ];
  });
  const file = join(folder, "objects.ts");
  writeFileSync(file, `${lines.join("\n")}\n`);
  const flags = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--types", "", "--pretty", "false"];
  try {
    execFileSync(join(root, "node_modules/.bin/tsc"), [...flags, "--ignoreConfig", file], {
      encoding: "utf8",
      stdio: "pipe",
    });
    return [];
  } catch (error) {
    const { stdout } = error as { readonly stdout: string };
    return stdout.split("\n").filter((line) => line.includes("error TS"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
