import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { answerRequest } from "../src/mesh-node/answer-request.ts";
import type { MeshNode } from "../src/mesh-node/mesh-node.ts";
import type { MeshNodeCommand } from "../src/mesh-node/mesh-node-messages.ts";
import { type MeshNodeProcess, startMeshNodeProcess } from "../src/mesh-node/mesh-node-process.ts";

const running: MeshNodeProcess[] = [];

afterEach(async () => {
  await Promise.all(running.splice(0).map((node) => node.stop()));
});

const options = {
  routerId: "a",
  seeds: ["127.0.0.1:9"],
  targets: ["engine/0"],
  blocksPerTarget: 128,
  ratePerS: 0,
  probesPerS: 0,
  gaugesPerS: 0,
  seed: 1,
};

/** Starts a program of a few lines in place of the node's. */
async function start(program: string): Promise<MeshNodeProcess> {
  const folderOfProgram = mkdtempSync(join(tmpdir(), "mesh-node-"));
  const path = join(folderOfProgram, "program.mjs");
  writeFileSync(path, program);
  try {
    const node = await startMeshNodeProcess(options, path);
    running.push(node);
    return node;
  } finally {
    rmSync(folderOfProgram, { recursive: true, force: true });
  }
}

const listening = `process.send({ type: "listening", address: "127.0.0.1:" + JSON.parse(process.argv[2]).seeds.length });`;

describe("a node's process", () => {
  test("gets its options, and its answers go to who asked, in whatever order they come", async () => {
    const node = await start(`
      const held = [];
      process.on("message", ({ id, type }) => {
        held.unshift({ id, type: "answer", answer: { blocks: type.length } });
        if (held.length === 3) for (const reply of held.splice(0)) process.send(reply);
      });
      ${listening}`);
    expect(node.routerId).toBe("a");
    expect(node.address).toBe("127.0.0.1:1");
    const answers = await Promise.all([node.ask("fill"), node.ask("digest"), node.ask("reset")]);
    expect(answers).toEqual([{ blocks: 4 }, { blocks: 6 }, { blocks: 5 }]);
  });

  test("tells what a node could not do", async () => {
    const node = await start(`
      process.on("message", ({ id }) => process.send({ id, type: "failed", message: "no" }));
      ${listening}`);
    await expect(node.ask("stats")).rejects.toThrow("a: no");
  });

  test("leaves nobody waiting when it ends", async () => {
    const node = await start(`process.on("message", () => process.exit(3)); ${listening}`);
    await expect(node.ask("ready")).rejects.toThrow("a is gone");
    await expect(node.ask("ready")).rejects.toThrow("a is gone");
  });

  test("says why it could not be started", async () => {
    await expect(start(`console.error("no port"); process.exit(1);`)).rejects.toThrow(/node a exited.*\n.*no port/);
  });

  test("ends when it is stopped", async () => {
    const node = await start(`process.once("disconnect", () => process.exit()); ${listening}`);
    await node.stop();
    expect(node.process.exitCode).toBe(0);
  });
});

/** A node of which only one command does anything. */
function nodeWith(command: MeshNodeCommand, does: () => Promise<unknown>): Pick<MeshNode, "commands"> {
  return { commands: { [command]: does } as unknown as MeshNode["commands"] };
}

describe("a request", () => {
  test("is answered under its number", async () => {
    const node = nodeWith("fill", async () => ({ blocks: 7 }));
    expect(await answerRequest(node, { id: 5, type: "fill" })).toEqual({
      id: 5,
      type: "answer",
      answer: { blocks: 7 },
    });
  });

  test.each([
    [new Error("broken"), "broken"],
    ["odd", "odd"],
  ])("that fails with %s is answered, too", async (thrown, message) => {
    const node = nodeWith("stats", () => Promise.reject(thrown));
    expect(await answerRequest(node, { id: 6, type: "stats" })).toEqual({ id: 6, type: "failed", message });
  });

  test("for what there is not is refused, be it a method of every object", async () => {
    const node = nodeWith("fill", async () => ({}));
    for (const type of ["nonsense", "toString", "constructor"]) {
      expect(await answerRequest(node, { id: 7, type: type as MeshNodeCommand })).toEqual({
        id: 7,
        type: "failed",
        message: `unknown command ${JSON.stringify(type)}`,
      });
    }
  });
});
