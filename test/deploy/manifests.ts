import { type CompiledConfig, loadConfig } from "@espalier/server";
import { readYaml } from "./files.ts";
import type { KubernetesObject } from "./kubernetes-kinds.ts";

interface Probe {
  readonly httpGet?: { readonly path: string; readonly port: string };
  readonly grpc?: { readonly port: number; readonly service: string };
  readonly periodSeconds: number;
  readonly failureThreshold: number;
}

/** The parts of a container that tests look at. */
export interface Container {
  readonly args?: readonly string[];
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly ports: readonly { readonly name: string; readonly containerPort: number }[];
  readonly resources: {
    readonly requests: { readonly cpu: string; readonly memory: string };
    readonly limits: { readonly memory: string };
  };
  readonly startupProbe: Probe;
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly lifecycle?: { readonly preStop: { readonly sleep: { readonly seconds: number } } };
  readonly securityContext: unknown;
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[];
}

export interface DeploymentObject extends KubernetesObject {
  readonly spec: {
    readonly replicas?: number;
    readonly strategy: { readonly rollingUpdate: unknown };
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: {
        readonly serviceAccountName: string;
        readonly automountServiceAccountToken: boolean;
        readonly terminationGracePeriodSeconds: number;
        readonly securityContext: unknown;
        readonly topologySpreadConstraints: readonly unknown[];
        readonly containers: readonly Container[];
        readonly volumes: readonly { readonly name: string }[];
      };
    };
  };
}

interface Kinds {
  readonly ConfigMap: { readonly data: Readonly<Record<string, string>> };
  readonly Service: {
    readonly spec: {
      readonly clusterIP?: string;
      readonly publishNotReadyAddresses?: boolean;
      readonly selector: Readonly<Record<string, string>>;
      readonly ports: readonly { readonly port: number; readonly targetPort: string; readonly appProtocol?: string }[];
    };
  };
  readonly InferencePool: {
    readonly spec: {
      readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
      readonly targetPorts: readonly { readonly number: number }[];
      readonly endpointPickerRef: {
        readonly kind: string;
        readonly name: string;
        readonly port: { readonly number: number };
        readonly failureMode: string;
      };
    };
  };
  readonly HTTPRoute: {
    readonly spec: {
      readonly parentRefs: readonly { readonly name: string; readonly namespace?: string }[];
      readonly rules: readonly { readonly backendRefs: readonly { readonly kind: string; readonly name: string }[] }[];
    };
  };
  readonly Role: {
    readonly rules: readonly { readonly resources: readonly string[]; readonly verbs: readonly string[] }[];
  };
  readonly RoleBinding: {
    readonly roleRef: { readonly name: string };
    readonly subjects: readonly { readonly name: string }[];
  };
  readonly ServiceMonitor: { readonly spec: { readonly endpoints: readonly { readonly port: string }[] } };
  readonly PodDisruptionBudget: { readonly spec: { readonly maxUnavailable: number } };
  readonly HorizontalPodAutoscaler: { readonly spec: { readonly scaleTargetRef: { readonly name: string } } };
  readonly Ingress: {
    readonly spec: {
      readonly tls?: unknown;
      readonly rules: readonly {
        readonly host?: string;
        readonly http: { readonly paths: readonly { readonly backend: { readonly service: unknown } }[] };
      }[];
    };
  };
  readonly PrometheusRule: {
    readonly spec: {
      readonly groups: readonly {
        readonly rules: readonly { readonly record?: string; readonly alert?: string }[];
      }[];
    };
  };
  readonly NetworkPolicy: {
    readonly spec: {
      readonly ingress: readonly {
        readonly ports: readonly { readonly port: string }[];
        readonly from?: readonly unknown[];
      }[];
    };
  };
}

/** Objects by their kind. */
export const findIn = (objects: readonly KubernetesObject[]) => ({
  find: <Kind extends keyof Kinds>(kind: Kind) =>
    objects.filter((object): object is KubernetesObject & Kinds[Kind] => object.kind === kind),
});

/** Everything that one example deploys. */
export function readManifests(path: string) {
  const objects = readYaml<KubernetesObject>(path);
  const { find } = findIn(objects);
  const deployment = objects.find(({ kind }) => kind === "Deployment") as DeploymentObject;
  const config = find("ConfigMap")[0]!.data["espalier.yaml"]!;
  const container = deployment.spec.template.spec.containers[0]!;
  return {
    objects,
    find,
    deployment,
    container,
    config,
    /** The configuration as a router takes it, with what Secrets could hold in its variables. */
    compile(): CompiledConfig {
      const env = Object.fromEntries(container.env.map(({ name }) => [name, envValue(name)]));
      return loadConfig({ file: { path, text: config }, env });
    },
    watchedNamespaces: namespacesOf(config, deployment.metadata.namespace!),
  };
}

/** Namespaces that a configuration has the API server asked about, in order. */
function namespacesOf(config: string, own: string): readonly string[] {
  const section = /\ndiscovery:\n((?: .*\n)*)/.exec(`\n${config}`)?.[1] ?? "";
  const isAsked = /^ {2}(?:services|pods|inference-pools):/m.test(section);
  const named = [...section.matchAll(/namespace: (\S+)/g)].map(([, namespace]) => namespace!);
  return isAsked ? [...new Set(named.length === 0 ? [own] : named)].sort() : [];
}

/** What a Secret could hold under a variable. */
function envValue(name: string): string {
  return name === "ESPALIER_MESH_REDIS_URL" ? "redis://redis.internal:6379" : "0123456789abcdef0123456789abcdef";
}
