import { Ajv, type ValidateFunction } from "ajv";

const name = { type: "string", pattern: "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", maxLength: 253 };
const port = { type: "integer", minimum: 1, maximum: 65_535 };
const numbered = section({ number: port }, ["number"]);

function section(properties: object, required: readonly string[] = []) {
  return { type: "object", additionalProperties: false, properties, required };
}

const object = (spec: object) =>
  section({ apiVersion: { type: "string" }, kind: { type: "string" }, metadata: { type: "object" }, spec }, ["spec"]);

/** InferencePool of inference.networking.k8s.io/v1, as the Gateway API Inference Extension 1.5 has it. */
const inferencePool = object(
  section(
    {
      appProtocol: { enum: ["http", "kubernetes.io/h2c"] },
      selector: section(
        {
          matchLabels: {
            ...{ type: "object", minProperties: 1, maxProperties: 64 },
            additionalProperties: { type: "string", maxLength: 63 },
          },
        },
        ["matchLabels"],
      ),
      targetPorts: { type: "array", minItems: 1, maxItems: 8, uniqueItems: true, items: numbered },
      endpointPickerRef: section(
        {
          ...{ group: { type: "string" }, kind: { type: "string", minLength: 1 }, name, port: numbered },
          failureMode: { enum: ["FailOpen", "FailClose"] },
        },
        // A Service needs a port, and the pickers of our manifests are Services.
        ["name", "port"],
      ),
    },
    ["selector", "targetPorts"],
  ),
);

/** The part of Envoy Gateway's ClientTrafficPolicy (gateway.envoyproxy.io/v1alpha1) that our manifests use. */
const clientTrafficPolicy = object(
  section(
    {
      targetRefs: {
        ...{ type: "array", minItems: 1 },
        items: section({ group: { type: "string" }, kind: { enum: ["Gateway"] }, name }, ["group", "kind", "name"]),
      },
      headers: section({
        earlyRequestHeaders: section({
          remove: {
            type: "array",
            minItems: 1,
            maxItems: 64,
            uniqueItems: true,
            items: { type: "string", minLength: 1 },
          },
        }),
      }),
    },
    ["targetRefs"],
  ),
);

const count = { type: "integer", minimum: 0 };
const texts = { type: "object", additionalProperties: { type: "string" } };

/** The part of KEDA's ScaledObject (keda.sh/v1alpha1) that our manifests use. */
const scaledObject = object(
  section(
    {
      scaleTargetRef: section({ apiVersion: { type: "string" }, kind: { type: "string" }, name }, ["name"]),
      ...{ pollingInterval: count, cooldownPeriod: count, minReplicaCount: count, maxReplicaCount: count },
      advanced: section({
        horizontalPodAutoscalerConfig: section({
          behavior: section({
            scaleDown: section({
              stabilizationWindowSeconds: { type: "integer", minimum: 0, maximum: 3_600 },
              policies: {
                type: "array",
                items: section(
                  { type: { enum: ["Pods", "Percent"] }, value: count, periodSeconds: { ...count, maximum: 1_800 } },
                  ["type", "value", "periodSeconds"],
                ),
              },
            }),
          }),
        }),
      }),
      triggers: {
        ...{ type: "array", minItems: 1 },
        items: section({ type: { enum: ["external", "external-push", "metrics-api"] }, metadata: texts }, [
          "type",
          "metadata",
        ]),
      },
    },
    ["scaleTargetRef", "triggers"],
  ),
);

/** The part of KServe's LLMInferenceService (serving.kserve.io/v1alpha2) that our manifests use; the template is a pod's spec. */
const llmInferenceService = object(
  section(
    {
      model: section({ name: { type: "string" }, uri: { type: "string" } }, ["uri"]),
      replicas: count,
      router: section({
        ...{ gateway: section({}), route: section({}) },
        scheduler: section({ replicas: count, template: { type: "object" } }),
      }),
    },
    ["model"],
  ),
);

/** The part of llm-d's chart llm-d-router-gateway that our values use, as its values.yaml and templates have it. */
const llmdValues = section({
  router: section({
    modelServers: section({ matchLabels: { ...texts, minProperties: 1 } }, ["matchLabels"]),
    inferencePool: section({ failureMode: { enum: ["FailOpen", "FailClose"] } }),
    epp: section(
      {
        replicas: count,
        image: section(
          {
            ...{ registry: { type: "string" }, repository: { type: "string" }, tag: { type: "string" } },
            pullPolicy: { enum: ["Always", "IfNotPresent", "Never"] },
          },
          ["registry", "repository", "tag"],
        ),
        ...{ flags: { type: "object" }, pluginsConfigFile: { type: "string" }, pluginsCustomConfig: texts },
        ...{ env: { type: "array" }, extraContainerPorts: { type: "array" } },
        resources: section(
          {
            requests: section({ cpu: { type: "string" }, memory: { type: "string" } }, ["cpu", "memory"]),
            limits: texts,
          },
          ["requests"],
        ),
      },
      ["image", "resources"],
    ),
  }),
});

const ajv = new Ajv({ strict: true, allErrors: true });
/** Kinds that no library of validators knows, as their definitions have them. A field that is not here counts as invalid. */
const kinds: Readonly<Record<string, ValidateFunction>> = {
  "gateway.envoyproxy.io/v1alpha1/ClientTrafficPolicy": ajv.compile(clientTrafficPolicy),
  "inference.networking.k8s.io/v1/InferencePool": ajv.compile(inferencePool),
  "keda.sh/v1alpha1/ScaledObject": ajv.compile(scaledObject),
  "llm-d-router-gateway/values": ajv.compile(llmdValues),
  "serving.kserve.io/v1alpha2/LLMInferenceService": ajv.compile(llmInferenceService),
};

/** @returns what is wrong with an object; undefined for a kind that is not among these */
export function readByHand(kind: string, value: unknown): readonly string[] | undefined {
  const accepts = kinds[kind];
  if (!accepts) return undefined;
  accepts(value);
  return (accepts.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message}`);
}
