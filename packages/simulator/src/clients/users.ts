import { type Conversation, createChainBuilder, createConversation } from "./conversation.ts";
import { createSender, runSession, type ScriptOf, type SendLimits } from "./session.ts";
import type { Workload } from "./workload.ts";

interface UsersOptions {
  readonly seed: number;
  readonly users: number;
  readonly limits: SendLimits;
}

/** The user of a session of `createUsers` and `createTreeUsers`, from 0. */
export const userOf = (session: number, users: number): number => session % users;

/** Users who each have one conversation after the other until sending ends. Their n-th one is session user + n x users. */
export function createUsers({ seed, users, scriptOf, limits }: UsersOptions & { readonly scriptOf: ScriptOf }): Workload {
  return {
    expectedRequests: limits.requests ?? 0,
    start(driver) {
      const sender = createSender(driver, limits);
      const begin = (session: number): void => {
        const script = scriptOf(session);
        const conversation = createConversation({ seed, session, expectedTokens: script.expectedTokens });
        runSession(sender, { script, conversation }, () => begin(session + users));
      };
      for (let user = 0; user < users; user++) begin(user);
    },
  };
}

/** The text that all trees begin with. */
const instruction = 0;

/** One question, thought through in a tree: each thought is answered several times, and each answer is thought on. */
export interface TreeScript {
  readonly branches: number;
  /** Tokens that all questions begin with. */
  readonly sharedTokens: number;
  /** Tokens that each level appends to the prompt, from the question itself on. */
  readonly promptTokens: readonly number[];
  /** Called once for each node. */
  outputTokens(): number;
}

/** Users who each have one question after the other thought through in a tree. A question is a session. */
export function createTreeUsers(
  options: UsersOptions & { readonly scriptOf: (session: number) => TreeScript },
): Workload {
  const { seed, users, scriptOf, limits } = options;
  return {
    expectedRequests: limits.requests ?? 0,
    start(driver) {
      const sender = createSender(driver, limits);
      const begin = (session: number): void => {
        const script = scriptOf(session);
        let nodes = 0;
        let open = 0;
        /** @param texts names and lengths of the texts before, the last of which is an answer, or none */
        const branch = (level: number, texts: readonly Text[]): void => {
          const prompt = [...texts, textOf(session, nodes++, script.promptTokens[level]!)];
          for (let one = 0; one < script.branches; one++) {
            const outputTokens = script.outputTokens();
            const answer = textOf(session, nodes++, outputTokens);
            open += 1;
            sender.send(thought({ seed, session, turn: level, prompt, answer }), { outputTokens }, () => {
              if (level + 1 < script.promptTokens.length) branch(level + 1, [...prompt, answer]);
              open -= 1;
              if (open === 0) begin(session + users);
            });
          }
        };
        branch(0, [{ name: instruction, tokens: script.sharedTokens }]);
      };
      for (let user = 0; user < users; user++) sender.after(0, () => begin(user));
    },
  };
}

interface Text {
  readonly name: number;
  readonly tokens: number;
}

/** Nodes of a tree, bounded so that names are distinct. */
const maxNodes = 2 ** 16;

const textOf = (session: number, node: number, tokens: number): Text => ({ name: 1 + session * maxNodes + node, tokens });

function thought(options: {
  readonly seed: number;
  readonly session: number;
  readonly turn: number;
  readonly prompt: readonly Text[];
  readonly answer: Text;
}): Pick<Conversation, "ask"> {
  const { seed, session, turn, prompt, answer } = options;
  return {
    ask({ index, outputTokens }) {
      const chain = createChainBuilder({ seed });
      for (const { name, tokens } of prompt) chain.append(name, tokens);
      const promptTokens = chain.tokens;
      chain.append(answer.name, answer.tokens);
      return { index, session, turn, promptTokens, outputTokens, chain: chain.view() };
    },
  };
}
