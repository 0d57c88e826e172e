import { waitFor } from "@espalier/testing";

interface Mesh {
  readonly load: readonly { readonly inFlight: number }[];
}

/**
 * Waits until routers know of each other that they have nothing in flight, as they do long before a person has typed again. Until
 * then a short prompt may go elsewhere than where it is cached.
 */
export async function untilIdle(adminUrls: readonly string[]): Promise<void> {
  const meshOf = async (url: string): Promise<Mesh> => (await (await fetch(`${url}/admin/mesh`)).json()) as Mesh;
  await waitFor(
    async () =>
      (await Promise.all(adminUrls.map(meshOf))).every(({ load }) => load.every(({ inFlight }) => inFlight === 0)),
    { what: "routers that know of each other that they are idle", deadlineMs: 15_000 },
  );
}
