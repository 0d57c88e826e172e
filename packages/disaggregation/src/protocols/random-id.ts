import type { Random } from "@espalier/common";

const wordBound = 2 ** 32;

/** 128 random bits as 32 hexadecimal digits. */
export function randomId(random: Random): string {
  const word = (): string => random.integer(wordBound).toString(16).padStart(8, "0");
  return word() + word() + word() + word();
}
