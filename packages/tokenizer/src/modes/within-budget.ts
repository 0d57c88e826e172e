import type { Scheduler } from "@espalier/common";

/**
 * What `work` comes to, or what `meanwhile` gives when that takes longer than the budget. Work that is left behind goes
 * on; how it ends then does not matter.
 *
 * @throws what `work` is rejected with in time
 */
export function withinBudget<T>(
  work: Promise<T>,
  {
    scheduler,
    budgetMs,
    meanwhile,
  }: { readonly scheduler: Scheduler; readonly budgetMs: number; readonly meanwhile: () => T },
): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = scheduler.after(budgetMs, () => resolve(meanwhile()));
    work.then(resolve, reject).finally(cancel);
  });
}

/** How long a request waits for its tokens unless told otherwise, in milliseconds. */
export const defaultBudgetMs = 20;
