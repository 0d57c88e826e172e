import type { Finding } from "../model/findings.ts";
import { element, keyedList, type Part, setAttribute, setText } from "./dom.ts";

/** The top of the page: what is wrong and what to do, the worst first; the rest behind it. */
export function createFindings(node: HTMLElement): Part<readonly Finding[]> {
  const first = element("div", { class: "first" });
  const summary = element("summary");
  const list = element("ul");
  const more = element("details", { class: "findings", hidden: true }, summary, list);
  node.append(first, more);
  const showFirst = keyedList<Finding>(
    first,
    ({ rule }) => rule,
    () => createFinding("p"),
  );
  const showOthers = keyedList<Finding>(
    list,
    ({ rule }) => rule,
    () => createFinding("li"),
  );
  return {
    node,
    update([worst, ...others]) {
      if (!worst) return;
      setAttribute(node, "data-level", worst.level);
      setAttribute(node, "data-rule", worst.rule);
      showFirst([worst]);
      more.hidden = others.length === 0;
      setText(summary, `Also: ${others.map((other) => other.sentence.replace(/\.$/, "")).join(" · ")}`);
      showOthers(others);
    },
  };
}

/** What changes is changed alone: a link keeps the focus, and what is read out is not read again. */
function createFinding(name: "p" | "li"): Part<Finding> {
  const sentence = element("strong");
  const next = element("span");
  const links = element("span", { class: "links" });
  const light = element("span", { class: "light", "aria-hidden": "true" });
  const node = element(name, { class: "finding" }, light, sentence, " ", next, links);
  const showLinks = keyedList<Finding["links"][number]>(links, ({ text }) => text, createLink);
  let shownNext = "";
  return {
    node,
    update(finding) {
      setAttribute(node, "data-level", finding.level);
      setText(sentence, finding.sentence);
      if (finding.next !== shownNext) next.replaceChildren(...withCode(finding.next));
      shownNext = finding.next;
      showLinks(finding.links);
    },
  };
}

function createLink({ text }: Finding["links"][number]): Part<Finding["links"][number]> {
  const node = element("a", {}, text);
  return { node, update: ({ href }) => setAttribute(node, "href", href) };
}

/** Text with `commands` in it. */
function withCode(text: string): readonly (Node | string)[] {
  return text.split("`").map((part, at) => (at % 2 === 1 ? element("code", {}, part) : part));
}
