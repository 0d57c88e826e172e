/** Which LoRA adapters had requests at some moment. */
export interface LoraSample {
  /** Names with commas between, as vLLM's label has them. */
  readonly running: string;
  readonly waiting: string;
  /** Unix seconds. */
  readonly seenS: number;
}

/** The series of `vllm:lora_requests_info`: one for each combination that was seen, with the time it was seen last. */
export interface LoraSeries {
  note(sample: LoraSample): void;
  /** Oldest first. */
  samples(): readonly LoraSample[];
}

/** Combinations that are kept; the one that was not seen for longest gives way. A real engine keeps all. */
const maxLoraSamples = 32;

export function createLoraSeries(): LoraSeries {
  const series = new Map<string, LoraSample>();
  return {
    note(sample) {
      const key = `${sample.running}\n${sample.waiting}`;
      series.delete(key);
      series.set(key, sample);
      if (series.size > maxLoraSamples) series.delete(series.keys().next().value as string);
    },
    samples: () => [...series.values()],
  };
}
