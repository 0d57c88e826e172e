/** What a process has used so far. */
export interface ProcessUsage {
  readonly cpuSeconds: number;
  readonly residentBytes: number;
}

/**
 * Reads what a process reports about itself on its metrics page.
 *
 * @throws Error when the page is not available or lacks one of the numbers
 */
export async function readProcessUsage(metricsUrl: string): Promise<ProcessUsage> {
  const response = await fetch(metricsUrl);
  const page = await response.text();
  const numberOf = (name: string): number => {
    const value = new RegExp(`^${name} (\\S+)`, "m").exec(page)?.[1];
    if (value === undefined) throw new Error(`${metricsUrl} has no ${name}`);
    return Number(value);
  };
  return {
    cpuSeconds: numberOf("process_cpu_seconds_total"),
    residentBytes: numberOf("process_resident_memory_bytes"),
  };
}
