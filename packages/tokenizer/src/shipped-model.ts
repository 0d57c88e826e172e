import { fileURLToPath } from "node:url";

/**
 * The folder of the small model that this package ships: a byte-level BPE tokenizer of 4,096 tokens with a ChatML
 * template, for simulated engines and for trying things out.
 */
export const shippedModelFolder = (): string =>
  // By the package's name: this module may stand in the bundle of a program.
  fileURLToPath(new URL("../models/espalier-tiny/", import.meta.resolve("@espalier/tokenizer")));
