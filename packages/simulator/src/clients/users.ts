import { type Conversation, createChainBuilder, createConversation } from "./conversation.ts";
import { createSender, runSession, type ScriptOf, type SendLimits } from "./session.ts";
import type { Workload, WorkloadDriver } from "./workload.ts";

interface UsersOptions {
  readonly seed: number;
  /** How many users are in each region, in the order of the topology's. */
  readonly users: readonly number[];
  readonly limits: SendLimits;
}

/** The region of a user, whose sessions have that number modulo all users. Users are numbered region by region. */
export function regionOfUser(session: number, users: readonly number[]): number {
  let left = session % sum(users);
  let region = 0;
  while (left >= users[region]!) left -= users[region++]!;
  return region;
}

/** Users who each have one conversation after the other until sending ends, and do not move. */
export function createUsers(options: UsersOptions & { readonly scriptOf: ScriptOf }): Workload {
  const { seed, users, scriptOf, limits } = options;
  return {
    expectedRequests: limits.requests ?? 0,
    start(driver) {
      const sender = createSender(located(driver, users), limits);
      const begin = (session: number): void => {
        const script = scriptOf(session);
        const conversation = createConversation({ seed, session, expectedTokens: script.expectedTokens });
        runSession(sender, { script, conversation }, () => begin(session + sum(users)));
      };
      for (let user = 0; user < sum(users); user++) begin(user);
    },
  };
}

/** One question, thought through in a tree: each thought is answered several times, and each answer is thought on. */
export interface TreeScript {
  readonly branches: number;
  /** Tokens that all questions begin with. */
  readonly sharedTokens: number;
  /** Tokens that each level appends to the prompt, from the question itself on. */
  readonly promptTokens: readonly number[];
  /** Called once for each answer, in order of asking. */
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
      const sender = createSender(located(driver, users), limits);
      const begin = (session: number): void => {
        const script = scriptOf(session);
        let nodes = 0;
        let open = 0;
        const textOf = (tokens: number): Text => ({ name: 1 + session * maxNodes + nodes++, tokens });
        const branch = (level: number, before: readonly Text[]): void => {
          const prompt = [...before, textOf(script.promptTokens[level]!)];
          for (let one = 0; one < script.branches; one++) {
            const outputTokens = script.outputTokens();
            const answer = textOf(outputTokens);
            open += 1;
            sender.send(thought({ seed, session, turn: level, prompt, answer }), { outputTokens }, () => {
              if (level + 1 < script.promptTokens.length) branch(level + 1, [...prompt, answer]);
              open -= 1;
              if (open === 0) begin(session + sum(users));
            });
          }
        };
        branch(0, [{ name: instruction, tokens: script.sharedTokens }]);
      };
      for (let user = 0; user < sum(users); user++) begin(user);
    },
  };
}

/** Adds who sends a request, and from where. */
function located(driver: WorkloadDriver, users: readonly number[]): WorkloadDriver {
  return {
    ...driver,
    send(request, ended) {
      const { session } = request;
      driver.send({ ...request, region: regionOfUser(session, users), tenant: `user-${session % sum(users)}` }, ended);
    },
  };
}

const sum = (users: readonly number[]): number => users.reduce((total, count) => total + count, 0);

interface Text {
  readonly name: number;
  readonly tokens: number;
}

/** Name of the text that all questions begin with. Those of nodes follow. */
const instruction = 0;
/** Texts of a tree, bounded so that names are distinct. */
const maxNodes = 2 ** 16;

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
