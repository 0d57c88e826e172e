import { valueError } from "./template-error.ts";
import type { Keywords, Value } from "./values.ts";

/**
 * The values of named parameters from positional and keyword arguments; absent ones are undefined.
 *
 * @throws TemplateError for one too many, one given twice, or a name that the function does not have
 */
export function bind(
  name: string,
  parameters: readonly string[],
  args: readonly Value[],
  keywords: Keywords,
): readonly Value[] {
  if (args.length > parameters.length) {
    throw valueError(`${name}() takes at most ${parameters.length} arguments (${args.length} given)`);
  }
  if (keywords.size === 0) return args;
  const values = [...args];
  for (const [keyword, value] of keywords) {
    const index = parameters.indexOf(keyword);
    if (index < 0) throw valueError(`${name}() got an unexpected keyword argument '${keyword}'`);
    if (index < args.length) throw valueError(`${name}() got multiple values for argument '${keyword}'`);
    values[index] = value;
  }
  return values;
}
