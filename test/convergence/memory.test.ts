import { describe } from "vitest";
import { createMemoryEnvironment } from "./memory-environment.ts";
import { convergenceSuite } from "./suite.ts";

describe("over links in memory, in virtual time", () => {
  convergenceSuite(async (seed) => createMemoryEnvironment(seed));
});
