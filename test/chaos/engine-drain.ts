import { expect } from "vitest";
import { call } from "../integration/client.ts";
import type { RouterProcess } from "./router-process.ts";

interface Engine {
  readonly id: string;
  readonly draining: boolean;
}

/** Whether a router has an engine as drained. */
export async function isDraining(router: RouterProcess, id: string): Promise<boolean> {
  const { engines } = await router.ask<{ readonly engines: readonly Engine[] }>("/admin/engines");
  return engines.some((engine) => engine.id === id && engine.draining);
}

/** Drains an engine at one router, as an operator does, or ends that. */
export async function setDraining(router: RouterProcess, id: string, draining: boolean): Promise<void> {
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ draining });
  const answer = await call(`${router.adminUrl}/admin/engines/${id}`, { method: "PATCH", headers, body });
  expect(answer.status).toBe(200);
}
