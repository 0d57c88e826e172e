import { shows } from "./tables.ts";

const variables = { t: true, l: [1, 2], m: [{ role: "user", content: " hi " }] };

shows(
  "line ends after blocks",
  [
    ["a\n{% if t %}\nb\n{% endif %}\nc", "a\nb\nc"],
    ["{% if t %}\n\nb{% endif %}", "\nb"],
    ["{% set a = 1 %}\n{{ a }}\n", "1"],
    ["{{ 1 }}\n{{ 2 }}\n", "1\n2"],
    ["{# note #}\nx", "x"],
    ["{# note #}\n\nx", "\nx"],
    ["{% for x in l %}\n{{ x }}\n{% endfor %}\nend", "1\n2\nend"],
    ["{% for x in l %}{{ x }}\n{% endfor %}", "1\n2\n"],
    ["x{% if t %} \ny{% endif %}", "x \ny"],
    ["{% if t %}\r\nx{% endif %}", "x"],
    ["{% macro m() %}\nx\n{% endmacro %}\n[{{ m() }}]", "[x\n]"],
    ["{% set a %}\nx\n{% endset %}\n[{{ a }}]", "[x\n]"],
    ["{% if t %}\n{% if t %}\n{% if t %}\nx\n{% endif %}\n{% endif %}\n{% endif %}\ny", "x\ny"],
    ["{% filter upper %}\nx\n{% endfilter %}\ny", "X\ny"],
  ],
  variables,
);

shows(
  "blanks before blocks",
  [
    ["  {% if t %}x{% endif %}", "x"],
    ["a  {% if t %}x{% endif %}", "a  x"],
    ["\n  {% if t %}x\n  {% endif %}y", "\nx\ny"],
    ["\t{% set a = 1 %}{{ a }}", "1"],
    ["  {{ 1 }}", "  1"],
    ["  {# note #}x", "x"],
    ["a\n  {# note #}\n  b", "a\n  b"],
    ["{{ 1 }}  {% if t %}x{% endif %}", "1  x"],
    ["{% if t %}  {% if t %}x{% endif %}{% endif %}", "  x"],
    ["{% if t %}\n    {% if t %}\n    x\n    {% endif %}\n{% endif %}", "    x\n"],
    ["\n\n  {% if t %}x{% endif %}", "\n\nx"],
    [" \t {% if t %}x{% endif %}", "x"],
    ["a\n \t{% if t %}x{% endif %}", "a\nx"],
    ["a\u00a0{% if t %}x{% endif %}", "a\u00a0x"],
  ],
  variables,
);

shows(
  "signs at blocks",
  [
    ["a  {%- if t %} x {% endif %}", "a x "],
    ["a {% if t -%}  x{% endif %}", "a x"],
    ["a {% if t -%}\n\n  x\n\n{%- endif %} b", "a x b"],
    ["a\n\n{%- if t -%}\n\nx\n\n{%- endif -%}\n\nb", "axb"],
    ["{%- set a = 1 -%}  {{ a }}", "1"],
    ["a {%- set a = 1 %} {{ a }}", "a 1"],
    ["[ {%- for x in l -%} {{ x }} {%- endfor -%} ]", "[12]"],
    ["[ {%- for x in l %} {{ x }} {%- endfor %} ]", "[ 1 2 ]"],
    ["a\n{%- if t %}\nb\n{%- endif %}\nc", "abc"],
    ["{% if t -%}\n  x\n{%- else -%}\n  y\n{%- endif %}", "x"],
    ["{% if not t -%} x {%- else -%} y {%- endif %}z", "yz"],
    ["a {%- macro m() -%} x {%- endmacro -%} b{{ m() }}", "abx"],
    ["a {%- set b -%} x {%- endset -%} c{{ b }}", "acx"],
    ["a\t\n {%- if t %}x{% endif %}", "ax"],
    ["{%- if t %}x{% endif -%}", "x"],
    [" {%- if t -%} {%- endif -%} ", ""],
  ],
  variables,
);

shows(
  "signs at output and comments",
  [
    ["a {{- 1 }} b", "a1 b"],
    ["a {{ 1 -}} b", "a 1b"],
    ["a {{- 1 -}} b", "a1b"],
    ["a\n\n{{- 1 -}}\n\nb", "a1b"],
    ["{{- ' a ' -}}", " a "],
    ["{{ 1 -}} {{- 2 }}", "12"],
    ["{{ 1 }} {{- 2 }}", "12"],
    ["a {#- note -#} b", "ab"],
    ["a {#- note #} b", "a b"],
    ["a {# note -#} b", "a b"],
    ["a\n{#- note #}\nb", "ab"],
    ["{{ 1 - 1 }}", "0"],
    ["{{ 1 -1 }}", "0"],
    ["{{-1}}", "1"],
    ["{{ -1 }}", "-1"],
    ["{{ '{{' }}", "{{"],
    ["{{ '{%' }}{{ '%}' }}", "{%%}"],
    ["{{ '#}' }}{{ '{#' }}", "#}{#"],
    ["{{ '}}' }}", "}}"],
    ["{# {{ 1 }} {% if %} #}x", "x"],
    ["{# a\nb\nc #}x", "x"],
    ["{#- a #}{#- b -#}x", "x"],
    ["{{ {'a': {'b': 1}}['a']['b'] }}", "1"],
    ["{{ {'a':{'b':1}} }}", "{'a': {'b': 1}}"],
    ["{{ {'a':{'b':1}}}}", "{'a': {'b': 1}}"],
  ],
  variables,
);

shows(
  "ends of the template",
  [
    ["a\n", "a"],
    ["a\n\n", "a\n"],
    ["\n", ""],
    ["\n\n", "\n"],
    ["a\r\n", "a"],
    ["{{ 1 }}\n", "1"],
    ["{% if t %}x{% endif %}\n", "x"],
    ["{% if t %}x{% endif %}\n\n", "x"],
    ["{# note #}\n", ""],
    ["a \n", "a "],
    ["", ""],
    ["a\n ", "a\n "],
    ["\ufeffa", "\ufeffa"],
  ],
  variables,
);

shows(
  "text as it stands",
  [
    ["a { b } c", "a { b } c"],
    ["{ { 1 } }", "{ { 1 } }"],
    ["%} }} #}", "%} }} #}"],
    ["a % b # c", "a % b # c"],
    ["<|im_start|>user\n", "<|im_start|>user"],
    ['{\n"a": 1}', '{\n"a": 1}'],
    ["\\n \\t \\\\", "\\n \\t \\\\"],
    ["'a' \"b\"", "'a' \"b\""],
    ["é日🙂\u200b", "é日🙂\u200b"],
    ["a\tb\u000bc\f", "a\tb\u000bc\f"],
    ["{{ '\\n' }}", "\n"],
    ['{{ "\\n" }}', "\n"],
    ["{{ '\\\\n' }}", "\\n"],
    ["{{ 'a\\'b' }}", "a'b"],
    ['{{ "a\\"b" }}', 'a"b'],
    ["{{ '\\x41\\u00e9' }}", "Aé"],
    ["{{ 'a\nb' }}", "a\nb"],
    ["{{ 'a' 'b' }}", "ab"],
    ["$1 $& $$ {{ 1 }}", "$1 $& $$ 1"],
    ["a{{ '' }}b", "ab"],
    ["line1\\\nline2", "line1\\\nline2"],
  ],
  variables,
);

shows(
  "as chat templates use it",
  [
    [
      "{%- for m in m -%}\n  {{- '<|' ~ m.role ~ '|>' }}\n  {{- m.content -}}\n  {{- '<|end|>\n' }}\n{%- endfor -%}\n{{- '<|assistant|>' }}\n",
      "<|user|> hi <|end|>\n<|assistant|>",
    ],
    [
      "{% for m in m %}\n<|{{ m.role }}|>\n{{ m.content | trim }}<|end|>\n{% endfor %}\n<|assistant|>\n",
      "<|user|>\nhi<|end|>\n<|assistant|>",
    ],
    ["{% for m in m %}{% if m.role == 'user' %}\n{{ m.content }}\n{% endif %}{% endfor %}", " hi \n"],
    [
      "{%- if t %}\n    {{- 'a\n' }}\n{%- else %}\n    {{- 'b' }}\n{%- endif %}\n{%- for x in l %}\n    {{- x }}\n{%- endfor %}",
      "a\n12",
    ],
  ],
  variables,
);
