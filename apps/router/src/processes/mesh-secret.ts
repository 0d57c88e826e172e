import { randomBytes } from "node:crypto";

const secretBytes = 32;

/** What the processes of a group prove to each other; known to nobody else, and gone with them. */
export function createMeshSecret(): string {
  return randomBytes(secretBytes).toString("hex");
}
