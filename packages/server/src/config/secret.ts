import { createHash } from "node:crypto";
import { inspect } from "node:util";

/** Replaces a secret wherever it could be read. */
export const mask = "***";

/** Text that is never printed by accident: `toString`, JSON and inspection give `***`. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  /** The text itself. Call it where the secret is sent, and do not keep the result. */
  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return mask;
  }

  toJSON(): string {
    return mask;
  }

  [inspect.custom](): string {
    return mask;
  }
}

export function sha256Of(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}
