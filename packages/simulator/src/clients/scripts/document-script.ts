import type { Random } from "@espalier/common";
import { logUniform, ownRandom } from "../draws.ts";
import type { ScriptOf } from "../session-script.ts";
import { createZipf, type Zipf } from "../zipf.ts";

interface Range {
  readonly least: number;
  readonly most: number;
}

export interface DocumentParameters {
  readonly systemTokens: number;
  readonly documents: number;
  /** Document r is asked for with a probability that goes with 1 / r^zipf. */
  readonly zipf: number;
  /** Lengths of documents: log-uniform, the same in every run of a seed. */
  readonly documentTokens: Range;
  /** Different documents in one prompt: uniform. */
  readonly perPrompt: Range;
  readonly questionTokens: Range;
  readonly outputTokens: Range;
}

/** The text before all documents; they are named from 1. */
const systemPrompt = 0;

/** Single questions about documents that stand in the prompt in the order in which they were found. */
export function documentScripts(parameters: DocumentParameters, seed: number): ScriptOf {
  const { systemTokens, documents, documentTokens, perPrompt, questionTokens, outputTokens } = parameters;
  const zipf = createZipf({ count: documents, exponent: parameters.zipf });
  const lengthOf = (document: number): number => Math.round(logUniform(documentTokens, ownRandom(~seed, document)));
  return (request) => {
    const random = ownRandom(seed, request);
    const found = findDocuments(zipf, Math.min(documents, uniform(perPrompt, random)), random, documents);
    const lengths = found.map(lengthOf);
    const question = uniform(questionTokens, random);
    const output = uniform(outputTokens, random);
    return {
      turns: 1,
      expectedTokens: systemTokens + lengths.reduce((sum, length) => sum + length, 0) + question + output,
      pauseMs: () => 0,
      write(_, conversation) {
        conversation.share(systemPrompt, systemTokens);
        for (const [place, document] of found.entries()) conversation.share(1 + document, lengths[place]!);
        conversation.own(question);
        return output;
      },
    };
  };
}

/** A document that is drawn again gives way to the next one of lower rank. */
function findDocuments(zipf: Zipf, count: number, random: Random, documents: number): readonly number[] {
  const found: number[] = [];
  for (let place = 0; place < count; place++) {
    let document = zipf.draw(random);
    while (found.includes(document)) document = (document + 1) % documents;
    found.push(document);
  }
  return found;
}

/** A whole number, both ends included. */
function uniform({ least, most }: Range, random: Random): number {
  return least + random.integer(most - least + 1);
}
