import { afterAll, describe } from "vitest";
import { createRedisEnvironment } from "./redis-environment.ts";
import { hasRedisServer } from "./redis-server.ts";
import { convergenceSuite, routerNames } from "./suite.ts";

const isInstalled = hasRedisServer();

describe.skipIf(!isInstalled)("through Redis", () => {
  convergenceSuite(() => createRedisEnvironment(routerNames));
});

afterAll(() => {
  if (!isInstalled) process.stderr.write("NOT RUN: convergence through Redis; redis-server is not installed\n");
});
