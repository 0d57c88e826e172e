import { cannotBeRead, refuses, shows } from "./tables.ts";

const variables = { v: "given" };

shows("arguments", [
  [
    "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m(1, b=6) }}",
    "12135416",
  ],
  ["{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(none) }}", "FalseTrue"],
  ["{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(1) }}", "1"],
  ["{% macro m(a=b, b=1) %}{{ a is defined }}{% endmacro %}{{ m() }}", "False"],
  ["{% macro m(a=x) %}{{ a }}{% endmacro %}{% set x = 9 %}{{ m() }}", "9"],
  [
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}{{ m(*[5], **{'b': 6}) }}",
    "123456",
  ],
  ["{% macro m(a=[1], b={'x': 1}) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}", "[1]{'x': 1}"],
  ["{% macro m(a, b='-') %}{{ a ~ b }}{% endmacro %}{{ m('x') }}{{ m('x', none) }}", "x-xNone"],
]);

cannotBeRead("arguments", ["{% macro m(*a) %}{% endmacro %}"]);

shows(
  "scope",
  [
    ["{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 2 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "121"],
    ["{% macro m() %}{{ x }}{% endmacro %}{% set x = 3 %}{{ m() }}", "3"],
    ["{% macro m() %}{{ x is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}", "False"],
    ["{% for i in [1,2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}", "12False"],
    ["{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}", "x"],
    ["{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}", "b"],
    ["{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"],
    ["{% macro o() %}{% macro i() %}in{% endmacro %}{{ i() }}{% endmacro %}{{ o() }}{{ i is defined }}", "inFalse"],
    ["{% macro m(x) %}{% for x in [x, 9] %}{{ x }}{% endfor %}{{ x }}{% endmacro %}{{ m(1) }}", "191"],
    ["{% macro m() %}{% set a = 1 %}{% endmacro %}{{ m() }}{{ a is defined }}", "False"],
    ["{% macro m(x) %}{{ x }}{% endmacro %}{% set k = m %}{{ k(1) }}", "1"],
    ["{% macro m(g) %}{{ g('x') }}{% endmacro %}{% macro n(v) %}<{{ v }}>{% endmacro %}{{ m(n) }}", "<x>"],
    ["{% macro m() %}{{ v }}{% endmacro %}{{ m() }}", "given"],
    ["{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}", "False"],
    ["{% macro m(x) %}{% set x = x ~ '!' %}{{ x }}{% endmacro %}{{ m('a') }}", "a!"],
    ["{% macro m() %}1{% endmacro %}{% macro m() %}2{% endmacro %}{{ m() }}", "2"],
  ],
  variables,
);

shows("results", [
  ["{% macro m() %}ab{% endmacro %}{{ m()|upper }}{{ m()|length }}{{ m() ~ 'c' }}", "AB2abc"],
  ["{% macro m() %}  x  {% endmacro %}[{{ m()|trim }}]", "[x]"],
  ["{% macro m() %}{% endmacro %}{{ m() == '' }}{{ 'y' if m() else 'n' }}", "Truen"],
  ["{% macro m(v) %}{{ v }}{% endmacro %}{{ m(5)|int + 1 }}", "6"],
  ["{% macro m() %}{{ [1] }}{% endmacro %}{{ m() }}", "[1]"],
]);

shows("cyclers, joiners and globals", [
  [
    "{{ range(3)|list }}{{ range(1, 4)|list }}{{ range(4, 1, -1)|list }}{{ range(-2)|list }}",
    "[0, 1, 2][1, 2, 3][4, 3, 2][]",
  ],
  ["{% set range = 5 %}{{ range }}", "5"],
  ["{% set f = dict %}{{ f(a=1) }}", "{'a': 1}"],
]);

refuses("what is refused", [
  ["{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes not more than 1 argument(s)"],
  ["{% macro m(a) %}{% endmacro %}{{ m(z=1) }}", "macro 'm' takes no keyword argument 'z'"],
  ["{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "macro 'm' takes no keyword argument 'a'"],
  ["{% macro m(a) %}{{ a.b.c }}{% endmacro %}{{ m({}) }}", "an undefined value has no attribute 'c'"],
  ["{{ m() }}{% macro m() %}{% endmacro %}", "'m' is undefined"],
  ["{{ raise_exception() }}", "raise_exception() needs a message"],
  ["{{ raise_exception('a', 'b') }}", "raise_exception() takes at most 1 arguments (2 given)"],
  ["{{ dict(1, 2) }}", "dict expected at most 1 argument, got 2"],
  ["{{ missing_macro(1) }}", "'missing_macro' is undefined"],
  ["{% macro m() %}{% endmacro %}{{ m(*5) }}", "'int' object is not iterable"],
  ["{% macro m() %}{% endmacro %}{{ m(**[1]) }}", "argument after ** must be a mapping, not list"],
  ["{% macro m(a) %}{% endmacro %}{{ m(a=1, **{'a': 2}) }}", "got multiple values for keyword argument 'a'"],
  ["{{ strftime_now() }}", "format must be str, not Undefined"],
  ["{{ strftime_now(5) }}", "format must be str, not int"],
]);

cannotBeRead("what is refused", ["{% macro %}{% endmacro %}", "{% macro m() %}"]);
