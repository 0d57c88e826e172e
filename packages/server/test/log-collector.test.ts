import { expect, test } from "vitest";
import { createLogCollector, type LoggedLine, maxLines } from "../src/lifecycle/log-collector.ts";

test("a log collector > warnings and errors > kept with the fields of their loggers, up to a bound", () => {
  const lines: LoggedLine[] = [];
  const logger = createLogCollector(lines).child({ engine: "e" });
  logger.info("not kept");
  logger.warn("kept", { reason: "late" });
  expect(lines).toEqual([{ message: "kept", fields: { engine: "e", reason: "late" } }]);
  for (let at = 1; at <= maxLines; at++) logger.error("more");
  expect(lines).toHaveLength(maxLines);
  logger.warn("dropped, and life goes on");
  expect(lines).toHaveLength(maxLines);
});
