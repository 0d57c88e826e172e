import { describe } from "vitest";
import { createSocketEnvironment } from "./socket-environment.ts";
import { convergenceSuite } from "./suite.ts";

describe("over sockets of this machine", () => {
  convergenceSuite(async () => createSocketEnvironment());
});
