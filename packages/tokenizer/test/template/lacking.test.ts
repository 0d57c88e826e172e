import { expect, test } from "vitest";
import { outcomeOf } from "./tables.ts";

/** What Jinja2 has and no chat template needs. */
test.each([
  ["{{ 'a b'|wordcount }}", "the filter 'wordcount'"],
  ["{{ [1]|map('abs')|list }}", "the filter 'abs'"],
  ["{{ 3 is odd }}", "the test 'odd'"],
  ["{{ 3 is divisibleby 2 }}", "the test 'divisibleby'"],
  ["{{ [3]|select('even')|list }}", "the test 'even'"],
  ["{{ 'a'.zfill(3) }}", "the method str.zfill()"],
  ["{{ 'abc'.startswith('b', 1) }}", "bounds of startswith() and endswith()"],
  ["{{ [1].index(1) }}", "the method list.index()"],
  ["{{ (1, 1).count(1) }}", "the method list.count()"],
  ["{{ joiner() }}", "the function joiner()"],
  ["{{ 2 ** 3 }}", "the operator **"],
  ["{{ 1 < 2 < 3 }}", "chained comparisons"],
  ["{% if a == b not in c %}{% endif %}", "chained comparisons"],
  ["{{ '%.1f' % 2.5 }}", "the format '%.'"],
  ["{{ '%d' % 2.5 }}", "format 'd' of a non-integer"],
  ["{{ '{:>5}'.format('a') }}", "the format '{:>5}'"],
  ["{{ ('a'|safe)[0] }}", "items of safe text"],
  ["{{ ('a'|safe)[1:] }}", "slices of safe text"],
  ["{{ ('a'|safe).upper() }}", "methods of safe text"],
  ["{{ ('a'|safe) * 2 }}", "the operator * over safe text"],
  ["{{ 'a'|safe|last }}", "the filter 'last' over safe text"],
  ["{{ 'a'|safe|reverse }}", "the filter 'reverse' over safe text"],
  ["{{ '%s'|safe|format('<') }}", "the filter 'format' over safe text"],
  ["{{ strftime_now('%j') }}", "%j of strftime_now"],
  ["{% for x in 'a' %}{{ loop.cycle(1, 2) }}{% endfor %}", "the attribute loop.cycle"],
  ["{% macro m() %}{{ varargs }}{% endmacro %}", "the variable 'varargs' of macros"],
  ["{% set kwargs = 1 %}{% macro m() %}{{ kwargs }}{% endmacro %}", "the variable 'kwargs' of macros"],
  ["{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "call blocks"],
])("%s is refused by name", (source, what) => {
  expect(outcomeOf(source)).toEqual({ reason: "lacking", message: `the renderer does not support ${what}` });
});

test.each([
  "{{ (1 < 2) == true }}",
  "{{ 1 < 2 and 2 < 3 or 3 < 2 }}",
  "{{ 1 < 2 if 3 < 4 else 5 < 6 }}",
  "{{ [1 < 2, 2 in [2], {'a': 1 == 1}['a'] == true, 'and' == 'or'] }}",
  "{% for x in [1] if x == 1 %}{{ x == 1 }}{{ x != 2 }}{% endfor %}",
  "{% set x = 1 == 1 %}{{ namespace(a=1 == 2, b=2 == 2).b }}",
])("comparisons beside one another are no chain: %s", (source) => {
  expect(outcomeOf(source)).toHaveProperty("text");
});

test("a branch that is never taken may name what is lacking, as in Jinja2", () => {
  expect(outcomeOf("{{ (1|nonsense) if missing else 'a' }}")).toEqual({ text: "a" });
});

test("a name that Python's text does not have is undefined, as for a message's part that is a text", () => {
  expect(outcomeOf("{{ 'a'.type is defined }}{{ 'a'['text'] is defined }}")).toEqual({ text: "FalseFalse" });
});
