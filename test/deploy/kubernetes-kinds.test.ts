import { expect, test } from "vitest";
import { invalidFields, unknownFields } from "./kubernetes-kinds.ts";

const service = (spec: unknown) => ({ apiVersion: "v1", kind: "Service", metadata: { name: "a" }, spec });

test("what an API server takes has neither invalid nor unknown fields", () => {
  const good = [service({ ports: [{ name: "http", port: 80, targetPort: "http" }] })];
  expect([invalidFields(good), unknownFields(good)]).toEqual([[], []]);
});

test("wrong types, values and missing fields are invalid, and a kind that is not known is", () => {
  expect(invalidFields([service({ ports: [{ port: "80" }] })])).toEqual([
    expect.stringContaining("spec/ports/0/port must be integer"),
  ]);
  expect(invalidFields([service({ ports: [{}] })])).toEqual([
    expect.stringContaining("must have required property port"),
  ]);
  expect(invalidFields([{ apiVersion: "v2", kind: "Service", metadata: { name: "a" } }])).toEqual([
    "v2/Service is not known",
  ]);
});

test("a field that the API does not have is unknown, however deep it is", () => {
  const complaints = unknownFields([service({ ports: [{ port: 80, tragetPort: "http" }] })]);
  expect(complaints).toEqual([expect.stringContaining(`'"tragetPort"' does not exist in type 'IServicePort'`)]);
});

const pool = (spec: object) => ({
  apiVersion: "inference.networking.k8s.io/v1",
  kind: "InferencePool",
  metadata: { name: "a" },
  spec: { selector: { matchLabels: { app: "vllm" } }, targetPorts: [{ number: 8_000 }], ...spec },
});

test("an InferencePool, which no library knows, has its own fields, and no others", () => {
  const endpointPickerRef = { kind: "Service", name: "picker", port: { number: 9_002 }, failureMode: "FailClose" };
  expect(invalidFields([pool({}), pool({ endpointPickerRef, appProtocol: "http" })])).toEqual([]);
  const ports = Array.from({ length: 9 }, (_, at) => ({ number: 8_000 + at }));
  const wrong = [
    [{ targetPorts: ports }, "/spec/targetPorts must NOT have more than 8 items"],
    [{ targetPorts: [ports[0], ports[0]] }, "/spec/targetPorts must NOT have duplicate items"],
    [{ selector: {} }, "/spec/selector must have required property 'matchLabels'"],
    [{ appProtocol: "http2" }, "/spec/appProtocol must be equal to one of the allowed values"],
    [{ endpointPickerRef: { name: "picker" } }, "/spec/endpointPickerRef must have required property 'port'"],
    [{ extensionRef: endpointPickerRef }, "/spec must NOT have additional properties"],
  ] as const;
  for (const [spec, problem] of wrong) expect(invalidFields([pool(spec)])).toEqual([expect.stringContaining(problem)]);
});
