import { defaultObjectives, type Objectives } from "@espalier/policies";
import { Option } from "commander";
import { readDurationMs, readName } from "./read-flags.ts";

/** The flag for what answers have to keep to count as good. */
export const sloOption = (meaning: string): Option =>
  new Option(
    "--slo <objectives>",
    `${meaning}: time to first token, time per output token (default: ttft=2s,tpot=50ms)`,
  );

const objectiveNames = ["ttft", "tpot"] as const;

/**
 * Reads objectives such as `ttft=2s,tpot=none`. One that is not named is the default's.
 *
 * @throws UsageError
 */
export function readObjectives(text: string): Objectives {
  const found = { ...defaultObjectives };
  for (const part of text.split(",")) {
    const [name = "", value = ""] = part.trim().split("=", 2);
    const known = readName(name, "--slo", objectiveNames);
    found[`${known}Ms`] = value === "none" ? Number.POSITIVE_INFINITY : readDurationMs(value, `--slo: ${known}`);
  }
  return found;
}
