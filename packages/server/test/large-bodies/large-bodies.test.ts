import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type Endpoint, endpoints } from "@espalier/api";
import { createRecordingLogger, createVirtualTime } from "@espalier/testing";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createLargeBodies, type LargeBodies } from "../../src/large-bodies/large-bodies.ts";

let folder: string;
const running: LargeBodies[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "espalier-large-bodies-"));
});
afterEach(async () => {
  for (const bodies of running.splice(0)) await bodies.stop();
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The thread does as the body says. */
async function rig() {
  const path = join(folder, "thread.mjs");
  await writeFile(
    path,
    `import { parentPort } from "node:worker_threads";
    let count = 0;
    parentPort.on("message", ({ id, bytes, job }) => {
      count += 1;
      const word = Buffer.from(bytes).toString();
      if (word === "exit") process.exit(4);
      if (word === "hang") return;
      if (word === "refuse") parentPort.postMessage({ id, kind: "refused", code: "invalid_type", message: "no", param: "n" });
      else if (word === "shared") parentPort.postMessage({ id, kind: "model", model: String(bytes.buffer instanceof SharedArrayBuffer) });
      else parentPort.postMessage({ id, kind: "model", model: word + count });
    });`,
  );
  const time = createVirtualTime();
  const logger = createRecordingLogger();
  const bodies = createLargeBodies({ scheduler: time.scheduler, logger, program: pathToFileURL(path) });
  running.push(bodies);
  const asJson = { contentType: "application/json", trustsTransferFields: false };
  const model = (word: string): Promise<string | undefined> => bodies.readForwarded(Buffer.from(word), asJson);
  return { bodies, time, logger, model };
}

test("bodies are read one after the other, in shared memory", async () => {
  const { model } = await rig();
  expect(await Promise.all(["a", "b", "c"].map(model))).toEqual(["a1", "b2", "c3"]);
  expect(await model("shared")).toBe("true");
});

test("a refusal is an error with its code and field, and the next body is read", async () => {
  const { bodies, model } = await rig();
  const refused = bodies.read(endpoints[0] as Endpoint, Buffer.from("refuse"), {
    maxDepth: 4,
    trustsTransferFields: false,
  });
  await expect(refused).rejects.toMatchObject({ code: "invalid_type", message: "no", param: "n" });
  expect(await model("a")).toBe("a2");
});

test("a body that ends the thread fails alone: the next one starts it again", async () => {
  const { model, logger } = await rig();
  const [broken, next] = [model("exit"), model("a")];
  await expect(broken).rejects.toThrow("the body thread ended: exit code 4");
  expect(await next).toBe("a1");
  expect(logger.lines).toMatchObject([{ level: "warn", fields: { reason: "exit code 4" } }]);
});

test("a body has 30 s, and not a millisecond more; those behind it are read then", async () => {
  const { model, time } = await rig();
  let settled = false;
  const stuck = model("hang").finally(() => {
    settled = true;
  });
  const [failed, next] = [expect(stuck).rejects.toThrow("the body thread ended"), model("a")];
  await time.advanceAsync(29_999);
  expect(settled).toBe(false);
  time.advance(1);
  await failed;
  expect(await next).toBe("a1");
  expect(time.pendingCount).toBe(0);
});
