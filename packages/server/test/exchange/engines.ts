import { createHttpEngines } from "@espalier/testing";
import { onTestFinished } from "vitest";

export const { listen, httpEngine, namedEngine, rawEngine, deadUrl, closed } = createHttpEngines(onTestFinished);
