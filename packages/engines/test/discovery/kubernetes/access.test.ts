import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { createServiceSource, type KubernetesAccess } from "../../../src/discovery/index.ts";
import { plainTraits } from "../helpers.ts";
import { createKubernetesRig, serviceAccount, slice, sliceCollection } from "./rig.ts";

/** Files are read in real time, so that a test waits for what it expects while virtual time goes on. */
function createRig(access: Partial<KubernetesAccess>, namespace: string | undefined = "ai") {
  const rig = createKubernetesRig(
    (ports) =>
      createServiceSource(ports, {
        ...{ namespace, service: "vllm", port: undefined, family: "auto", traits: plainTraits },
      }),
    access,
  );
  rig.api.put(sliceCollection, slice("a", ["10.0.0.1"]));
  return {
    ...rig,
    until: (what: string, probe: () => boolean) =>
      waitFor(
        async () => {
          await rig.settle(100);
          return probe();
        },
        { what },
      ),
    latest: () => rig.recorder.lists.at(-1),
    tokens: () => new Set(rig.api.requests.map(({ authorization }) => authorization)),
  };
}

test("the token of the service account goes with every request, and its namespace is the one that is followed", async () => {
  const account = await serviceAccount({ token: "first\n", namespace: "ai\n" });
  const { api, start, latest, tokens, until } = createRig({ tokenFile: account.path("token") }, undefined);
  api.token = "first";
  await start(0);
  expect(latest()).toBe("10.0.0.1:8000");
  await until("watch", () => api.watches.size === 1);
  expect(tokens()).toEqual(new Set(["Bearer first"]));
});

test("a token that is replaced is taken up with the next request, a 401 or not", async () => {
  const account = await serviceAccount({ token: "first" });
  const { api, start, until, latest, tokens, recorder } = createRig({ tokenFile: account.path("token") });
  api.token = "first";
  await start(0);
  await until("watch", () => api.watches.size === 1);
  api.token = "second";
  for (const watch of api.watches) watch.end();
  api.put(sliceCollection, slice("a", ["10.0.0.2"]));
  await until("failure", () => recorder.errors.length > 0);
  expect(recorder.errors[0]?.message).toContain("status 401, the token is not accepted");
  expect(latest()).toBe("10.0.0.1:8000");
  await account.write("token", "second");
  await until("new list", () => latest() === "10.0.0.2:8000");
  await until("recovery", () => recorder.recoveries === 1);
  expect(tokens()).toEqual(new Set(["Bearer first", "Bearer second"]));
  expect(recorder.errors.map(({ message, stack }) => message + stack).join()).not.toMatch(/"?(first|second)\b/);
});

test("certificates that are replaced are taken up with the next request, on connections of their own", async () => {
  const account = await serviceAccount({ ca: "ONE" });
  const { api, start, until, connects, latest } = createRig({ caFile: account.path("ca") });
  await start(0);
  await until("watch", () => api.watches.size === 1);
  expect(connects).toEqual(["ONE"]);
  await account.write("ca", "TWO");
  api.put(sliceCollection, slice("a", ["10.0.0.2"]));
  for (const watch of api.watches) watch.end();
  await until("new watch", () => connects.length === 2 && api.watches.size === 1);
  expect(connects).toEqual(["ONE", "TWO"]);
  expect(latest()).toBe("10.0.0.2:8000");
});

test.each([
  ["absent", undefined, "cannot be read: ENOENT"],
  ["empty", " \n", "is empty"],
  ["longer than 64 KiB", "t".repeat(65_537), "is larger than 65536 bytes"],
])("a token file that is %s is a failure until it is there", async (_, text, message) => {
  const account = await serviceAccount(text === undefined ? {} : { token: text });
  const { api, start, until, latest, recorder } = createRig({ tokenFile: account.path("token") });
  api.token = "t".repeat(65_536);
  await start();
  await until("failure", () => recorder.errors.some((error) => error.message.includes(message)));
  expect(api.requests).toEqual([]);
  await account.write("token", api.token);
  await until("list", () => latest() === "10.0.0.1:8000");
  expect(recorder.recoveries).toBe(1);
});

test("certificates of more than 1 MiB are refused", async () => {
  const account = await serviceAccount({ ca: "c".repeat(1_048_577) });
  const { start, until, recorder } = createRig({ caFile: account.path("ca") });
  await start();
  await until("failure", () => recorder.errors.some(({ message }) => message.includes("is larger than 1048576 bytes")));
});

test("without a namespace and a service account there is nothing to follow", async () => {
  const rig = createKubernetesRig((ports) =>
    createServiceSource(ports, {
      ...{ namespace: undefined, service: "vllm", port: undefined, family: "auto", traits: plainTraits },
    }),
  );
  await rig.start();
  expect(rig.messages()[0]).toContain("no namespace and no service account");
});
