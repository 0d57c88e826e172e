import { cannotBeRead, refuses, shows } from "./tables.ts";

const variables = { x: 1 };

const variables2 = { d: {}, x: 5 };

shows("assignments", [
  ["{% set a = 1 %}{{ a }}", "1"],
  ["{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"],
  ["{% set a, b = b, a %}{{ a is defined }}", "False"],
  ["{% set a = 1 %}{% set b = 2 %}{% set a, b = b, a %}{{ a }}{{ b }}", "21"],
  ["{% set (a, (b, c)) = (1, (2, 3)) %}{{ a }}{{ b }}{{ c }}", "123"],
  ["{% set a, b = 'xy' %}{{ a }}{{ b }}", "xy"],
  ["{% set a, b = {'x': 1, 'y': 2} %}{{ a }}{{ b }}", "xy"],
  ["{% set a = a %}{{ a is defined }}", "False"],
  ["{% set a = 1 %}{% set a = a + 1 %}{{ a }}", "2"],
  ["{% set a %}text{% endset %}{{ a }}", "text"],
  ["{% set a %}{% endset %}[{{ a }}]{{ a is string }}", "[]True"],
  ["{% set a | upper | replace('X', 'y') %}x{{ 1 }}{% endset %}{{ a }}", "y1"],
  ["{% set a | trim %}  x {% endset %}[{{ a }}]", "[x]"],
  ["{% set a | join('-') %}xyz{% endset %}{{ a }}", "x-y-z"],
  ["{% set a = 1 if false %}{{ a is defined }}", "False"],
  ["{% set a = [1, 2] %}{% set b = a %}{{ b }}", "[1, 2]"],
  ["{% set true1 = true %}{{ true1 }}", "True"],
  ["{% set a = 1, 2 %}{{ a }}", "(1, 2)"],
]);

cannotBeRead("assignments", ["{% set a = x = 1 %}"]);

shows(
  "conditions have no scope",
  [
    ["{% if true %}{% set a = 1 %}{% endif %}{{ a }}", "1"],
    ["{% if false %}{% set a = 1 %}{% endif %}{{ a is defined }}", "False"],
    ["{% set a = 0 %}{% if true %}{% set a = 1 %}{% endif %}{{ a }}", "1"],
    ["{% set a = 0 %}{% if false %}{% elif true %}{% set a = 2 %}{% else %}{% set a = 3 %}{% endif %}{{ a }}", "2"],
    ["{% if a is defined %}x{% else %}{% set a = 1 %}{% endif %}{{ a }}", "1"],
    ["{% if 0 %}a{% elif '' %}b{% elif [] %}c{% else %}d{% endif %}", "d"],
    ["{% if 1 %}{% if 0 %}a{% else %}b{% endif %}{% endif %}", "b"],
    ["{% if missing %}a{% else %}b{% endif %}", "b"],
    ["{% if x %}{% set y = 1 %}{% else %}{% set y = 2 %}{% endif %}{{ y }}", "1"],
  ],
  variables,
);

shows("loops have one", [
  ["{% set a = 0 %}{% for i in [1,2] %}{% set a = i %}{{ a }}{% endfor %}{{ a }}", "120"],
  ["{% for i in [1,2] %}{% set b = i %}{% endfor %}{{ b is defined }}", "False"],
  ["{% for i in [1,2] %}{{ c is defined }}{% set c = 1 %}{% endfor %}", "FalseFalse"],
  ["{% for i in [1] %}{% endfor %}{{ i is defined }}", "False"],
  ["{% set i = 'o' %}{% for i in [1] %}{{ i }}{% endfor %}{{ i }}", "1o"],
  ["{% set a = 0 %}{% for i in [1,2] %}{{ a }}{% set a = a + i %}{% endfor %}{{ a }}", "000"],
  ["{% for i in [1,2] %}{% for i in [3] %}{{ i }}{% endfor %}{{ i }}{% endfor %}", "3132"],
  ["{% for i in [1] %}{% if true %}{% set a = 1 %}{% endif %}{{ a }}{% endfor %}{{ a is defined }}", "1False"],
  ["{% for i in [1,2] %}{% set ns = namespace(v=i) %}{{ ns.v }}{% endfor %}{{ ns is defined }}", "12False"],
  ["{% set i = [1,2] %}{% for i in i %}{{ i }}{% endfor %}{{ i }}", "12[1, 2]"],
  ["{% for i in [] %}{% else %}{% set a = 1 %}{{ a }}{% endfor %}{{ a is defined }}", "1False"],
  ["{% set a = 5 %}{% for i in [] %}{% else %}{{ a }}{% set a = 1 %}{% endfor %}{{ a }}", "55"],
  [
    "{% for i in [1] %}{% set j = i %}{% for k in [2] %}{{ j }}{{ k }}{% set j = 9 %}{{ j }}{% endfor %}{{ j }}{% endfor %}",
    "1291",
  ],
]);

shows("set, filter and call blocks have one", [
  ["{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}", "1False"],
  ["{% filter upper %}{% set b = 'x' %}{{ b }}{% endfilter %}{{ b is defined }}", "XFalse"],
  ["{% set b = 'o' %}{% filter upper %}{{ b }}{% set b = 'i' %}{{ b }}{% endfilter %}{{ b }}", "OIo"],
  ["{% set a = 1 %}{% set t %}{{ a }}{% set a = 2 %}{{ a }}{% endset %}{{ t }}{{ a }}", "121"],
  ["{% set a %}{% for i in [1,2] %}{{ i }},{% endfor %}{% endset %}{{ a|length }}", "4"],
]);

shows("namespaces cross them", [
  ["{% set ns = namespace(n=0) %}{% for i in [1,2,3] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"],
  ["{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}", "1False"],
  ["{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}", "121"],
  ["{% set ns = namespace(l=[]) %}{% for i in [1,2] %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}", "[1, 2]"],
  ["{% set ns = namespace(a=1) %}{% set t = ns %}{% set t.a = 2 %}{{ ns.a }}", "2"],
  ["{% set ns = namespace(a=1) %}{% macro m() %}{% set ns.a = 2 %}{% endmacro %}{{ m() }}{{ ns.a }}", "2"],
  ["{% set ns = namespace(a=1) %}{% set ns.a, b = 3, 4 %}{{ ns.a }}{{ b }}", "34"],
  ["{% set ns = namespace(a=1) %}{% if true %}{% set ns.a = 2 %}{% endif %}{{ ns.a }}", "2"],
  ["{% set ns = namespace(items=1, get=2) %}{{ ns.items }}{{ ns.get }}", "12"],
  ["{% set ns = namespace() %}{% set ns.x %}text{% endset %}{{ ns.x }}", "text"],
  ["{% set ns = namespace(a=1) %}{{ 'yes' if ns else 'no' }}", "yes"],
  ["{% set a = namespace(x=1) %}{% set b = namespace(x=1) %}{{ a == b }}{{ a == a }}", "FalseTrue"],
]);

refuses(
  "assignments that are refused",
  [
    ["{% set a, b = [1] %}", "cannot unpack 1 values into 2 variables"],
    ["{% set a, b = [1,2,3] %}", "cannot unpack 3 values into 2 variables"],
    ["{% set a, b = 5 %}", "'int' object is not iterable"],
    ["{% set a, b = none %}", "'NoneType' object is not iterable"],
    ["{% set a, b = missing %}", "cannot unpack 0 values into 2 variables"],
    ["{% set d.x = 1 %}", "cannot assign attribute on non-namespace object 'dict'"],
    ["{% set x.y = 1 %}", "cannot assign attribute on non-namespace object 'int'"],
    ["{% set a.b = 1 %}", "cannot assign attribute on non-namespace object 'Undefined'"],
    ["{{ namespace(1) }}", "'int' object is not iterable"],
    ["{{ namespace({'a':1},{'b':2}) }}", "dict expected at most 1 argument, got 2"],
  ],
  variables2,
);

cannotBeRead("assignments that are refused", [
  "{% set 1 = 2 %}",
  "{% set a %}x",
  "{% set %}",
  "{% set a = %}",
  "{% set a + b = 1 %}",
  "{% set 'a' = 1 %}",
]);
