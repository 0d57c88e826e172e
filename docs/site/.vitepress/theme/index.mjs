// The usual theme, system fonts in place of those it brings, and diagrams.
import theme from "vitepress/theme-without-fonts";
import { Mermaid } from "./mermaid.mjs";
import "./style.css";

export default {
  extends: theme,
  enhanceApp({ app }) {
    app.component("Mermaid", Mermaid);
  },
};
