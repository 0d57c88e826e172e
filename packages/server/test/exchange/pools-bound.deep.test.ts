import { type AttemptOwner, wireBody } from "@espalier/engines";
import { expect, test } from "vitest";
import { closed, deadUrl, rawEngine } from "./engines.ts";
import { createRig, send } from "./rig.ts";

test("with one engine more than there may be pools, the one opened first is forgotten", async () => {
  const maxPools = 16_384;
  const first = await rawEngine((socket) => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
  const rig = await createRig({ engines: [first.url], options: { engineKeepAliveMs: 60_000 } });
  await send(rig.port);
  const dead = await deadUrl();
  let opened = 1;
  const openAnother = async (): Promise<void> => {
    const url = `${dead}/${opened++}`;
    const failed = await new Promise<string>((resolve) => {
      const owner = { failed: (kind: string) => resolve(kind) } as unknown as AttemptOwner;
      const upstream = { url, headers: [] };
      const request = { upstream, method: "GET", path: "/", headers: [], body: wireBody([]), deadlineMs: Infinity };
      rig.proxy.attempt(owner, { ...request, resends: rig.createRetries() }).start();
    });
    expect(failed).toBe("connect");
  };
  while (opened < maxPools) {
    await Promise.all(Array.from({ length: Math.min(100, maxPools - opened) }, openAnother));
  }
  expect(first.openSockets()).toBe(1);
  await openAnother();
  await closed(first.sockets[0]);
  expect((await send(rig.port)).status).toBe(200);
}, 30_000);
