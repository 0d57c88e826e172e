import cluster from "node:cluster";
import { randomBytes } from "node:crypto";
import type { GroupProcess, MemberReport, ProcessObserver } from "./process-group.ts";

/**
 * Starts this program again, with the same arguments, as a process that shares listening ports with this one. This
 * process accepts connections and hands each to a process that has taken its previous one. A process whose event loop
 * hangs therefore gets none.
 */
export function launchClusterProcess(observer: ProcessObserver): GroupProcess {
  cluster.schedulingPolicy = cluster.SCHED_RR;
  // This process has ensured that everything is built.
  const worker = cluster.fork({ ESPALIER_SKIP_BUILD: "1" });
  worker.on("message", (message: unknown) => {
    if (isReport(message)) observer.said(message);
  });
  worker.once("exit", (code: number | null, signal: string | null) => observer.ended(signal ? null : code, signal));
  // An error of the channel ends the process; its exit event reports that.
  worker.on("error", () => worker.process.kill("SIGKILL"));
  return {
    pid: worker.process.pid,
    send(order) {
      if (worker.isConnected()) worker.send(order);
    },
    kill() {
      worker.process.kill("SIGKILL");
    },
  };
}

const reportTypes: readonly unknown[] = ["hello", "listening", "ready", "reload"];

function isReport(message: unknown): message is MemberReport {
  return typeof message === "object" && message !== null && "type" in message && reportTypes.includes(message.type);
}

const secretBytes = 32;

/** A secret that only the processes of a group know, while they run. */
export function createMeshSecret(): string {
  return randomBytes(secretBytes).toString("hex");
}
