import { type Sample, unescapeLabel } from "./metrics-sample.ts";
import { maxModelNameLength } from "./served-models.ts";

/** The metric of vLLM that names the LoRA adapters in use (`v1/metrics/loggers.py`). Its value is the time in Unix seconds. */
export const adapterMetric = "vllm:lora_requests_info";

/** What an engine says of the LoRA adapters of the requests that it holds. */
export interface AdapterReading {
  /** Adapters that requests may run for at once. */
  readonly slots: number;
  /** Those that running requests are for. */
  readonly running: readonly string[];
  /** Those that waiting requests are for. */
  readonly waiting: readonly string[];
}

/** Names that are read of one list; further ones are left out. */
export const maxAdapterNames = 256;

/** More slots than this are taken for a mistake. */
const maxSlots = 65_536;

/** Of all series that a page has, one for each combination of adapters that there ever was, the newest tells what is. */
export interface AdapterSamples {
  /** @returns false when the sample cannot be used */
  add(sample: Sample): boolean;
  /** Undefined without a usable sample: vLLM has none before its first request for an adapter. */
  newest(): AdapterReading | undefined;
}

export function createAdapterSamples(): AdapterSamples {
  let newest: Sample | undefined;
  return {
    add(sample) {
      const slots = Number(sample.labels.get("max_lora"));
      if (!(Number.isInteger(slots) && slots >= 1 && slots <= maxSlots) || !(sample.value >= 0)) return false;
      if (!newest || sample.value >= newest.value) newest = sample;
      return true;
    },
    newest: () =>
      newest && {
        slots: Number(newest.labels.get("max_lora")),
        running: namesOf(newest.labels.get("running_lora_adapters")),
        waiting: namesOf(newest.labels.get("waiting_lora_adapters")),
      },
  };
}

/** Names with commas between; a name that has one itself cannot be told from two. */
function namesOf(label = ""): readonly string[] {
  const names = unescapeLabel(label)
    .split(",", maxAdapterNames + 1)
    .map((name) => name.trim());
  const usable = names.filter((name) => name !== "" && name.length <= maxModelNameLength);
  return [...new Set(usable)].slice(0, maxAdapterNames);
}
