import { readdirSync } from "node:fs";
import { silentLogger, systemClock, systemScheduler } from "@espalier/core";
import { createKvEventPublisher } from "@espalier/engine-model/kv-events";
import { waitFor } from "@espalier/testing";
import { expect, test } from "vitest";
import { createWorkSlices } from "../../src/events/work-slices.ts";
import { createZmqTransport, subscriberFiles } from "../../src/events/zmq-transport.ts";

const openFiles = (): number => readdirSync("/proc/self/fd").length;

/*
 * A feed has three of ZeroMQ's sockets, and libzmq allows 1,023 in a context unless told otherwise: the 342nd feed could
 * not be opened.
 */
test.runIf(process.platform === "linux")(
  "400 event sockets in one process: all connect, as many files are open as are counted, one past the bound is refused",
  async () => {
    const publisher = createKvEventPublisher({
      ...{ topic: "kv-events", dialect: "vllm-0.32", clock: systemClock, logger: silentLogger },
    });
    await publisher.start();
    const transport = createZmqTransport(
      createWorkSlices({ clock: systemClock, scheduler: systemScheduler }),
      () => 400,
    );
    const before = openFiles();
    let up = 0;
    const observer = {
      onUp: () => {
        up += 1;
      },
      ...{ onMessage() {}, onBacklog() {}, onDown() {}, onFailed() {} },
    };
    const open = () => transport.openSubscriber({ endpoint: publisher.endpoint, mode: "connect", topic: "", observer });
    const sockets = Array.from({ length: 400 }, open);
    await waitFor(() => up === 400, { what: "all connections", deadlineMs: 20_000 });
    expect(transport.openFiles).toBe(400 * subscriberFiles);
    // The publisher's ends of the connections are in this process too.
    expect(openFiles() - before - 400).toBeLessThanOrEqual(transport.openFiles);
    expect(openFiles() - before - 400).toBeGreaterThan(0.95 * transport.openFiles);

    expect(open).toThrow("open files allow 400 event sockets");
    sockets.pop()!.close();
    sockets.push(open());
    await waitFor(() => up === 401, { what: "the next connection", deadlineMs: 20_000 });
    for (const socket of sockets) socket.close();
    expect(transport.openFiles).toBe(0);
    await publisher.stop();
  },
);
