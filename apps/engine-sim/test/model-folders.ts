import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { shippedModelFolder } from "@espalier/tokenizer";
import { onTestFinished } from "vitest";

const open = "<|im_start|>";
const close = "<|im_end|>";

/** Chat templates with what families of models do, around the special tokens of the shipped model. */
export const templates: Readonly<Record<string, string>> = {
  plain:
    `{% for m in messages %}${open}{{ m.role }}\n{{ m.content }}${close}\n{% endfor %}` +
    `{% if add_generation_prompt %}${open}assistant\n{% endif %}`,
  "default system turn":
    `{% if messages[0].role != 'system' %}${open}system\nBe brief.${close}\n{% endif %}` +
    `{% for m in messages %}${open}{{ m['role'] + '\\n' + m['content'] + '${close}' }}\n{% endfor %}` +
    `{% if add_generation_prompt %}${open}assistant\n{% endif %}`,
  "trimmed texts":
    `{{ bos_token }}{% for m in messages %}${open}{{ m.role }}${close}\n\n{{ m.content | trim }}<|endoftext|>{% endfor %}` +
    `{% if add_generation_prompt %}${open}assistant${close}\n\n{% endif %}`,
  "turns in brackets":
    "{% for m in messages %}{% if m.role == 'user' %}[Q] {{ m.content }} [/Q]" +
    "{% else %}{{ m.content }}<|endoftext|>{% endif %}{% endfor %}",
  "no special tokens":
    "{% for m in messages %}{{ m.role | title }}: {{ m.content }}\n\n{% endfor %}" +
    "{% if add_generation_prompt %}Assistant:{% endif %}",
  "content as parts":
    `{% for m in messages %}${open}{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}` +
    `{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}${close}\n{% endfor %}` +
    `{% if add_generation_prompt %}${open}assistant\n{% endif %}`,
};

/** A template that puts something into answers when they come back. */
export const thinkingTemplate =
  `{% for m in messages %}${open}{{ m.role }}\n{% if m.role == 'assistant' %}(thought)\n{% endif %}{{ m.content }}${close}\n` +
  `{% endfor %}{% if add_generation_prompt %}${open}assistant\n{% endif %}`;

/** A folder with changes to the shipped model's `tokenizer_config.json` and `tokenizer.json`, for the time of a test. */
export function modelFolder(
  config: Readonly<Record<string, unknown>>,
  tokenizer: Readonly<Record<string, unknown>> = {},
): string {
  const folder = mkdtempSync(join(tmpdir(), "engine-sim-model-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [name, change] of [
    ["tokenizer.json", tokenizer],
    ["tokenizer_config.json", config],
  ] as const) {
    const shipped = JSON.parse(readFileSync(join(shippedModelFolder(), name), "utf8")) as object;
    writeFileSync(join(folder, name), JSON.stringify({ ...shipped, ...change }));
  }
  return folder;
}
