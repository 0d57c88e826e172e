import { expect, test } from "vitest";
import { detectContentFormat } from "../../src/chat/chat-dialect.ts";
import { parseTemplate } from "../../src/template/parse.ts";
import { readTemplate } from "./golden.ts";

const formatOf = (source: string) => detectContentFormat(parseTemplate(source));

const loop = (over: string): string =>
  `{% for message in messages %}{% for part in ${over} %}{{ part.text }}{% endfor %}{% endfor %}`;

test.each([
  ["chatml", "string"],
  ["qwen25-tools", "string"],
  ["llama31-tools", "string"],
  ["mistral-tools", "string"],
  ["gemma", "openai"],
  ["vision", "openai"],
])("the template %s takes %s", (name, format) => {
  expect(formatOf(readTemplate(name))).toBe(format);
});

test.each([
  [loop("message['content']"), "openai"],
  [loop("message.content"), "openai"],
  [loop("message.content | list"), "openai"],
  [loop("message.content[1:]"), "openai"],
  [loop("message.content if message.content is iterable"), "openai"],
  [loop("message['parts']"), "string"],
  [loop("message"), "string"],
  [loop("other.content"), "string"],
  [loop("message[content]"), "string"],
  [loop("message.content[0]"), "string"],
  ["{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"],
  [
    "{% set a = messages %}{% set b = a | list %}{% for m in b %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "openai",
  ],
  ["{% set b = a %}{% set a = messages %}{% for m in b %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"],
  [
    "{% set a = messages %}{% set messages = a %}{% for m in a %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "openai",
  ],
  ["{% for m in messages if m.role == 'user' %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"],
  [
    "{% macro show(m) %}{% for c in m.content %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m) }}{% endfor %}",
    "openai",
  ],
  [
    "{% macro show(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ show(m.content) }}{% endfor %}",
    "string",
  ],
  ["{% for m in messages[0] %}{% for c in m.content %}{% endfor %}{% endfor %}", "string"],
  ["{% set x, y = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "string"],
  ["{% set x, y = messages[1:] %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "string"],
  [
    "{% for a, b in messages %}{% endfor %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}",
    "string",
  ],
  ["{% for m in messages %}{% set c = m.content %}{% for x in c %}{% endfor %}{% endfor %}", "string"],
  ["no loops", "string"],
])("%s takes %s", (source, format) => {
  expect(formatOf(source)).toBe(format);
});
