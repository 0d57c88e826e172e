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
