import { untilNothingMissing, type WaitPorts } from "./until.ts";

/** What a router must know before it is measured. */
export interface Known {
  /** Number of other routers linked with it. */
  readonly members: number;
  /** Engines whose KV events it reads completely, directly or through another router. */
  readonly feeds: number;
}

interface MeshPage {
  readonly members?: readonly { readonly state: string; readonly isLinked: boolean }[];
}

interface FeedsPage {
  readonly feeds: readonly { readonly state: string }[];
}

const timeoutMs = 15_000;

/**
 * Waits until a router has this many links and live feeds.
 *
 * @throws Error saying what is missing after 15 s
 */
export async function untilKnown(adminUrl: string, { members, feeds }: Known, ports: WaitPorts): Promise<void> {
  const missing = async (): Promise<string | undefined> => {
    const page = await ask<MeshPage>(`${adminUrl}/admin/mesh`);
    const linked = page.members?.filter(({ state, isLinked }) => state === "alive" && isLinked).length ?? 0;
    if (linked < members) return `the router at ${adminUrl} is linked with ${linked} of ${members} others`;
    const live = (await ask<FeedsPage>(`${adminUrl}/admin/feeds`)).feeds.filter(({ state }) => state === "live").length;
    return live < feeds ? `the router at ${adminUrl} knows of ${live} of ${feeds} live feeds` : undefined;
  };
  await untilNothingMissing(missing, timeoutMs, ports);
}

async function ask<Page>(url: string): Promise<Page> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return (await response.json()) as Page;
}
