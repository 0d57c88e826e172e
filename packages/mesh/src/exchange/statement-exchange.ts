import type { FoldStatement, ReplicaPorts } from "@espalier/replication";
import type { Link } from "../link/link.ts";
import { encodeDocumentMessage, type StatementsMessage } from "./document-frames.ts";
import type { ExchangeParts } from "./exchange-parts.ts";

/** Statements in one frame, few enough that it does not hold up the frames behind it. */
const statementsPerFrame = 256;

export interface StatementExchangeDeps extends Pick<ExchangeParts, "clock" | "limits" | "meter"> {
  readonly replica: Pick<ReplicaPorts, "statements" | "compareStatement">;
}

interface Sent {
  readonly statement: FoldStatement;
  readonly atMs: number;
}

/**
 * Sends statements about settled targets to peers, which compare them with their own state: the last defence against
 * replicas that differ without knowing it. Unchanged statements are repeated once a minute only.
 */
export class StatementExchange {
  readonly #deps: StatementExchangeDeps;
  readonly #links = new Set<Link>();
  /** Links that have had no statement yet. */
  readonly #newLinks = new Set<Link>();
  #sent = new Map<string, Sent>();

  constructor(deps: StatementExchangeDeps) {
    this.#deps = deps;
  }

  linkUp(link: Link): void {
    this.#links.add(link);
    this.#newLinks.add(link);
  }

  linkDown(link: Link): void {
    this.#links.delete(link);
    this.#newLinks.delete(link);
  }

  /** Sends what is due. Called once per period. */
  tell(): void {
    if (this.#links.size === 0) return;
    const { clock, limits, replica } = this.#deps;
    const nowMs = clock.nowMs();
    const all = replica.statements().slice(0, limits.maxStatements);
    const due: FoldStatement[] = [];
    const sent = new Map<string, Sent>();
    for (const statement of all) {
      const before = this.#sent.get(statement.target);
      const isRepeat = before !== undefined && isSame(before.statement, statement);
      const isDue = !isRepeat || nowMs - before.atMs >= limits.statementRepeatMs;
      if (isDue) due.push(statement);
      sent.set(statement.target, isDue ? { statement, atMs: nowMs } : before);
    }
    this.#sent = sent;
    for (const link of this.#links) this.#send(link, this.#newLinks.has(link) ? all : due);
    this.#newLinks.clear();
  }

  receive(link: Link, { statements }: StatementsMessage): void {
    for (const statement of statements) {
      this.#deps.replica.compareStatement(statement, link.peer.origin);
    }
    this.#deps.meter.compared("received", statements.length);
  }

  #send(link: Link, statements: readonly FoldStatement[]): void {
    const { meter } = this.#deps;
    for (let at = 0; at < statements.length; at += statementsPerFrame) {
      const some = statements.slice(at, at + statementsPerFrame);
      const frame = encodeDocumentMessage({ kind: "statements", statements: some });
      if (!link.send("documents", frame)) {
        meter.dropped("statement");
        return;
      }
      meter.sent("statement", frame.length);
      meter.compared("sent", some.length);
    }
  }
}

function isSame(a: FoldStatement, b: FoldStatement): boolean {
  return (
    a.epoch === b.epoch &&
    a.sequence === b.sequence &&
    a.isComplete === b.isComplete &&
    a.blocks === b.blocks &&
    a.digest[0] === b.digest[0] &&
    a.digest[1] === b.digest[1]
  );
}
