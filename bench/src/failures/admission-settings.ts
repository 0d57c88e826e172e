/** The router's queue as its user sets it; absent for its defaults. */
export interface AdmissionSettings {
  /** When first tokens are due. */
  readonly targetMs: number;
  /** Prompt tokens that wait at an engine; the router's default when undefined. */
  readonly maxPendingTokens: number | undefined;
}

/** The configuration file with them, in YAML. */
export function admissionConfig({ targetMs, maxPendingTokens }: AdmissionSettings): string {
  return `admission:
  classes:
    - name: default
      target: ${targetMs}ms
${maxPendingTokens === undefined ? "" : `      max-pending-tokens: ${maxPendingTokens}\n`}`;
}
