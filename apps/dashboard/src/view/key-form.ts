/// <reference lib="dom" />
import { element, setText } from "./dom.ts";

const storageKey = "espalier-admin-key";

/** The admin key, as long as the tab is open. */
export const keptKey = {
  get: (): string | undefined => sessionStorage.getItem(storageKey) ?? undefined,
  set: (key: string): void => sessionStorage.setItem(storageKey, key),
};

/** Asks for the admin key, once for all routers. */
export function createKeyForm(onKey: () => void) {
  const input = element("input", {
    ...{ type: "password", id: "key", autocomplete: "current-password", required: true, spellcheck: "false" },
  });
  const wrong = element("p", { class: "wrong", role: "alert" });
  const form = element(
    "form",
    { method: "dialog" },
    element("h2", {}, "Admin key"),
    element(
      "p",
      { class: "soft" },
      "This router requires its admin key (admin.key). The key is stored in this tab only.",
    ),
    // Password managers keep keys by a name.
    element("input", { type: "text", autocomplete: "username", value: "admin", hidden: true }),
    element("label", { for: "key" }, "Key"),
    input,
    wrong,
    element("button", { type: "submit", class: "primary" }, "Open the dashboard"),
  );
  const dialog = element("dialog", { class: "key", "aria-label": "Admin key" }, form);
  document.body.append(dialog);
  // Nothing can be seen without it.
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    keptKey.set(input.value);
    input.value = "";
    dialog.close();
    onKey();
  });
  return {
    /** Shows the form, unless it is there. */
    ask(): void {
      if (dialog.open) return;
      setText(wrong, keptKey.get() === undefined ? "" : "Wrong key.");
      dialog.showModal();
    },
  };
}
