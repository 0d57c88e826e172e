import { hasRedisServer } from "@espalier/testing";
import { describe } from "vitest";
import { createRedisEnvironment } from "./redis-environment.ts";
import { convergenceSuite, routerNames } from "./suite.ts";

describe.skipIf(!hasRedisServer("convergence through Redis"))("through Redis", () => {
  convergenceSuite(() => createRedisEnvironment(routerNames));
});
