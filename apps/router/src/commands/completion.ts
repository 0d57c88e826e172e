import { Argument, Command } from "commander";
import { completionScript, type Shell, shells } from "../output/completion-script.ts";
import { writeResult } from "../output/write.ts";
import { addCommand } from "./command-list.ts";
import { loadEveryCommand } from "./command-loaders.ts";

export function registerCompletion(program: Command): void {
  addCommand(program, "completion")
    .description(
      "Prints a script that completes commands and flags: `source <(espalier completion bash)`, the same for zsh, and " +
        "`espalier completion fish > ~/.config/fish/completions/espalier.fish`.",
    )
    .addArgument(new Argument("<shell>", "which shell").choices(shells))
    .action(async (shell: Shell) => {
      const whole = new Command("espalier");
      for (const register of await loadEveryCommand()) register(whole);
      writeResult(completionScript(whole, shell));
    });
}
