import { EspalierError, type Random } from "@espalier/common";
import { hashString } from "@espalier/policies";

export interface WeightedModel {
  readonly model: string;
  /** Relative share; above 0. */
  readonly weight: number;
}

/** Names that clients may use and the models they stand for. */
export interface ModelRouterOptions {
  readonly aliases: Readonly<Record<string, string>>;
  readonly splits: Readonly<Record<string, readonly WeightedModel[]>>;
}

/** Turns the model that a client names into the model that engines serve. */
export interface ModelRouter {
  /**
   * @param sessionKey keeps a session on one side of a split; without one the side is drawn by weight
   * @returns the served model's name; the given one when it is neither an alias nor a split
   */
  resolve(model: string, sessionKey: string | undefined): string;
  /** Aliases and splits, for the list of models. */
  readonly names: readonly string[];
  /** Every model that a name can stand for. */
  targetsOf(name: string): readonly string[];
}

const maxAliasHops = 8;

export function createModelRouter(options: ModelRouterOptions, random: Random): ModelRouter {
  const aliases = new Map(Object.entries(options.aliases));
  const splits = new Map(Object.entries(options.splits));

  const pick = (sides: readonly WeightedModel[], sessionKey: string | undefined): string => {
    const total = sides.reduce((sum, side) => sum + side.weight, 0);
    let point = (sessionKey === undefined ? random.float() : hashString(sessionKey, 0) / 0x1_0000_0000) * total;
    for (const side of sides) {
      point -= side.weight;
      if (point < 0) return side.model;
    }
    return sides.at(-1)?.model ?? "";
  };

  return {
    names: [...aliases.keys(), ...splits.keys()],
    targetsOf(name) {
      let leads = name;
      for (let hop = 0; hop < maxAliasHops; hop++) leads = aliases.get(leads) ?? leads;
      return splits.get(leads)?.map((side) => side.model) ?? (leads === name ? [] : [leads]);
    },
    resolve(model, sessionKey) {
      let name = model;
      for (let hop = 0; hop < maxAliasHops; hop++) {
        const split = splits.get(name);
        const next = split ? pick(split, sessionKey) : aliases.get(name);
        if (next === undefined || next === name) return name;
        name = next;
      }
      throw new EspalierError("model_not_found", `The model name leads through more than ${maxAliasHops} aliases.`, {
        param: "model",
      });
    },
  };
}
