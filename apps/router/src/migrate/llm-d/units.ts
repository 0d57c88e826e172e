/** Suffixes of Kubernetes quantities, without the fractions of one. */
const quantityFactors: Readonly<Record<string, number>> = {
  ...{ "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 },
  ...{ Ki: 1_024, Mi: 1_048_576, Gi: 1_073_741_824, Ti: 1_099_511_627_776 },
};

/** @returns the number of a Kubernetes quantity such as `10Gi`, `1k` or 500; undefined for anything else */
export function parseQuantity(written: unknown): number | undefined {
  const [, digits, suffix = ""] = /^(\d+(?:\.\d+)?)([A-Za-z]*)$/.exec(String(written)) ?? [];
  const factor = Object.hasOwn(quantityFactors, suffix) ? quantityFactors[suffix] : undefined;
  return digits === undefined || factor === undefined ? undefined : Number(digits) * factor;
}

const msPer: Readonly<Record<string, number>> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 36e5 };

/** @returns the milliseconds of a Go duration such as `1m30s` or `200ms`; undefined for anything else */
export function parseGoDuration(written: unknown): number | undefined {
  if (typeof written !== "string" || !/^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$|^0$/.test(written)) return undefined;
  const parts = written.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g);
  return [...parts].reduce((sum, [, digits, unit = ""]) => sum + Number(digits) * (msPer[unit] ?? 0), 0);
}
