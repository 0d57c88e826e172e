/** The router's queue as its user configures it; absent for the defaults. */
export interface AdmissionSettings {
  /** Deadline of first tokens. */
  readonly targetMs: number;
  /** Prompt tokens that may wait at an engine; the router's default when undefined. */
  readonly maxPendingTokens: number | undefined;
}

/** The configuration file with these settings, in YAML. */
export function admissionConfig({ targetMs, maxPendingTokens }: AdmissionSettings): string {
  return `admission:
  classes:
    - name: default
      target: ${targetMs}ms
${maxPendingTokens === undefined ? "" : `      max-pending-tokens: ${maxPendingTokens}\n`}`;
}
