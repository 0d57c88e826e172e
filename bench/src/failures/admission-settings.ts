/** The router's queue as its user sets it; absent for its defaults. */
export interface AdmissionSettings {
  /** When a request that waits in the router has to go on. */
  readonly targetMs: number;
  /** Prompt tokens that wait at an engine. */
  readonly maxPendingTokens: number;
}

/** The configuration file with them, in YAML. */
export function admissionConfig({ targetMs, maxPendingTokens }: AdmissionSettings): string {
  return `admission:
  classes:
    - name: default
      target: ${targetMs}ms
      max-pending-tokens: ${maxPendingTokens}
`;
}
