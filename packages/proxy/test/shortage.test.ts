import type * as Net from "node:net";
import { expect, test, vi } from "vitest";
import { namedEngine } from "./engines.ts";
import { createRig, send } from "./rig.ts";

/*
 * A process that could open no further connection took its engines for unreachable, one after the other. Its own want
 * looked like a refused connection.
 */
const shortage = vi.hoisted(() => ({ code: "" }));
vi.mock("node:net", async (original) => {
  const net = await original<typeof Net>();
  const connect = (options: Net.NetConnectOpts): Net.Socket => {
    if (shortage.code === "") return net.connect(options);
    const { code } = shortage;
    return new net.Socket().destroy(Object.assign(new Error(`connect ${code}`), { code, syscall: "connect" }));
  };
  return { ...net, connect };
});

test.each(["EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EADDRNOTAVAIL"])(
  "%s is no engine's failure: no other one is asked, and afterwards all goes on",
  async (code) => {
    const engines = [await namedEngine("a"), await namedEngine("b")];
    const rig = await createRig({ engines: engines.map(({ url }) => url) });
    const check = { url: `${engines[0]!.url}/health`, timeoutMs: 1_000, maxBytes: 100 };
    shortage.code = code;
    const answer = await send(rig.port);
    expect([answer.status, answer.headers["retry-after"]]).toEqual([503, "1"]);
    expect(JSON.parse(answer.body.toString()).error.code).toBe("out_of_descriptors");
    expect([rig.events, rig.failures]).toEqual([["start a 0"], []]);
    await expect(rig.proxy.httpClient(check)).rejects.toMatchObject({ code: "out_of_descriptors" });
    shortage.code = "";
    expect((await send(rig.port)).body.toString()).toBe('{"engine":"a"}');
    expect((await rig.proxy.httpClient(check)).status).toBe(200);
  },
);
