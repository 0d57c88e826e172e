/** How a candidate stands to the LoRA adapter of the request in hand, as the column `adapterState` has it. */
export const adapterState = {
  /** It would have to give up another adapter first, or wait until it can. */
  none: 0,
  /** Requests for it wait there for a slot. */
  waiting: 1,
  /** It has an empty slot. */
  room: 2,
  /** It has it loaded. */
  active: 3,
} as const;
