import { useData } from "vitepress";
import { defineComponent, h, onMounted, ref, watch } from "vue";

let count = 0;

/** A diagram, drawn once the page is in the browser. Until then, and without scripts, its text is shown. */
export const Mermaid = defineComponent({
  props: { code: { type: String, required: true } },
  setup(props) {
    const svg = ref("");
    const { isDark } = useData();
    const draw = async () => {
      const { default: mermaid } = await import("mermaid");
      mermaid.initialize({ startOnLoad: false, theme: isDark.value ? "dark" : "neutral" });
      svg.value = (await mermaid.render(`diagram-${count++}`, decodeURIComponent(props.code))).svg;
    };
    onMounted(draw);
    watch(isDark, draw);
    return () =>
      svg.value === ""
        ? h("pre", { class: "diagram" }, decodeURIComponent(props.code))
        : h("div", { class: "diagram", innerHTML: svg.value });
  },
});
