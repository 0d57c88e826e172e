import { type Objectives, usualObjectives } from "@espalier/simulator";
import { Option } from "commander";
import { readDurationMs, readName } from "./read-flags.ts";

/** The flag for what answers have to keep to count as good. */
export const sloOption = (): Option =>
  new Option(
    "--slo <objectives>",
    "what an answer has to keep to count as goodput: time to first token, time per output token (default: ttft=2s,tpot=50ms)",
  );

const objectiveNames = ["ttft", "tpot"] as const;

/**
 * Reads objectives such as `ttft=2s,tpot=50ms`. One that is not named is the usual one.
 *
 * @throws UsageError
 */
export function readObjectives(text: string): Objectives {
  const found = { ...usualObjectives };
  for (const part of text.split(",")) {
    const [name = "", value = ""] = part.trim().split("=", 2);
    const known = readName(name, "--slo", objectiveNames);
    found[`${known}S`] = readDurationMs(value, `--slo: ${known}`) / 1_000;
  }
  return found;
}
