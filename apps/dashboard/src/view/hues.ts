/** Colours by which engines and routers are told apart; the style sheet has one for each number. */
const hueCount = 10;

/** Gives each name the next number, and the same one for ever: engines must not change their colour. */
export function createHues(): (name: string) => string {
  const numbers = new Map<string, number>();
  return (name) => {
    const known = numbers.get(name) ?? numbers.size;
    numbers.set(name, known);
    return `hue-${known % hueCount}`;
  };
}
