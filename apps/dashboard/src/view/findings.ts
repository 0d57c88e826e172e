import type { Finding } from "../model/findings.ts";
import { element, type Part, setAttribute } from "./dom.ts";

/** The top of the page: what is wrong and what to do, the worst first; the rest behind it. */
export function createFindings(node: HTMLElement): Part<readonly Finding[]> {
  const first = element("p", { class: "finding" });
  const summary = element("summary");
  const list = element("ul");
  const more = element("details", { class: "findings", hidden: true }, summary, list);
  node.append(first, more);
  let shown = "";
  return {
    node,
    update([worst, ...others]) {
      const text = JSON.stringify([worst, others]);
      if (!worst || text === shown) return;
      shown = text;
      setAttribute(node, "data-level", worst.level);
      setAttribute(node, "data-rule", worst.rule);
      first.replaceChildren(...sentence(worst));
      more.hidden = others.length === 0;
      summary.replaceChildren(`Also: ${others.map((other) => other.sentence.replace(/\.$/, "")).join(" · ")}`);
      list.replaceChildren(...others.map((other) => element("li", { "data-level": other.level }, ...sentence(other))));
    },
  };
}

function sentence({ sentence: text, next }: Finding): readonly (Node | string)[] {
  const light = element("span", { class: "light", "aria-hidden": "true" });
  return [light, element("strong", {}, text), ...(next === "" ? [] : [" ", element("span", {}, ...withCode(next))])];
}

/** Text with `commands` in it. */
function withCode(text: string): readonly (Node | string)[] {
  return text.split("`").map((part, at) => (at % 2 === 1 ? element("code", {}, part) : part));
}
