/**
 * How deep property tests go: `full` in `npm run test:all`, a tenth of it in `npm test`. What a tenth does not find is found
 * before a change lands all the same; what it does find is found twenty times a day.
 */
const isFull = process.env.TEST_DEPTH === "full";
const quickShare = 0.1;
const fewestRuns = 3;

/** Random runs that a property test makes.
 * @param full in `npm run test:all` */
export function randomRuns(full: number): number {
  return isFull ? full : Math.min(full, Math.max(fewestRuns, Math.round(full * quickShare)));
}

/** Fixed seeds from `first` on, as many as `randomRuns(full)`. */
export function fixedSeeds(full: number, first = 0): readonly number[] {
  return Array.from({ length: randomRuns(full) }, (_, at) => first + at);
}
