/** What the first process tells the others, and they it, over the channels between them. */

/** Where a process stands in its group. */
export interface Place {
  /** From 0. */
  readonly index: number;
  /** Where those of the others that serve already are reached by routers. */
  readonly seeds: readonly string[];
  /** What the processes prove to each other where the configuration has them share with nobody else. */
  readonly meshSecret: string;
  /** Whether the others serve already. */
  readonly isServing: boolean;
}

/** Where one process serves. */
export interface MemberAddresses {
  readonly url: string;
  readonly adminUrl: string;
  /** Where other routers reach it; null when they do not. */
  readonly meshAddress: string | null;
}

/** To a process. */
export type GroupOrder =
  | { readonly type: "place"; readonly place: Place }
  /** All processes have been ready. */
  | { readonly type: "serving" }
  | { readonly type: "reload"; readonly trigger: "signal" | "admin" }
  /** The first one drains, `isPatient` with the delay for load balancers; the second one means now. */
  | { readonly type: "stop"; readonly isPatient: boolean };

/** From a process. */
export type MemberReport =
  /** It runs and asks for its place. */
  | { readonly type: "hello" }
  | ({ readonly type: "listening" } & MemberAddresses)
  | { readonly type: "ready" }
  /** An operator asked it to read its configuration again. */
  | { readonly type: "reload" };
