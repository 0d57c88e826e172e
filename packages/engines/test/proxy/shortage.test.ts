import type * as Net from "node:net";
import { expect, test, vi } from "vitest";
import { attemptRig } from "./attempt-rig.ts";
import { namedEngine } from "./engines.ts";

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
  "%s is no engine's failure, and afterwards all goes on",
  async (code) => {
    const engine = await namedEngine("a");
    const { proxy, attempt } = await attemptRig();
    const check = { url: `${engine.url}/health`, timeoutMs: 1_000, maxBytes: 100 };
    shortage.code = code;
    expect(await attempt(engine.url)).toBe("refused out_of_descriptors");
    await expect(proxy.httpClient(check)).rejects.toMatchObject({ code: "out_of_descriptors" });
    shortage.code = "";
    expect(await attempt(engine.url)).toBe('answered 200 {"engine":"a"}');
    expect((await proxy.httpClient(check)).status).toBe(200);
  },
);
