import { cannotBeRead, refuses, shows } from "./tables.ts";

const variables = { b: [1] };

shows("the variable loop", [
  [
    "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "1032 2121 3210 ",
  ],
  ["{% for x in 'abc' %}{{ loop.first }}{{ loop.last }} {% endfor %}", "TrueFalse FalseFalse FalseTrue "],
  ["{% for x in [7] %}{{ loop.first and loop.last }}{{ loop.length }}{% endfor %}", "True1"],
  [
    "{% for x in 'abc' %}{{ loop.previtem|default('-') }}{{ x }}{{ loop.nextitem|default('-') }} {% endfor %}",
    "-ab abc bc- ",
  ],
  [
    "{% for x in 'ab' %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "FalseTrue TrueFalse ",
  ],
  ["{% for x in 'ab' %}{% for y in 'cd' %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}", "121 122 "],
  [
    "{% for x in 'ab' %}{% set o = loop %}{% for y in 'cd' %}{{ o.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "11 12 21 22 ",
  ],
  ["{% for x in 'ab' %}{{ loop['index'] }}{% endfor %}", "12"],
  ["{{ loop is defined }}{% for x in 'a' %}{{ loop is defined }}{% endfor %}{{ loop is defined }}", "FalseTrueFalse"],
  ["{% set loop = 5 %}{% for x in 'a' %}{{ loop.index }}{% endfor %}{{ loop }}", "15"],
]);

shows(
  "what is looped over",
  [
    ["{% for x in [1,2] %}{{ x }}{% endfor %}", "12"],
    ["{% for x in 'a🙂' %}[{{ x }}]{% endfor %}", "[a][🙂]"],
    ["{% for k in {'a':1,'b':2} %}{{ k }}{% endfor %}", "ab"],
    ["{% for k, v in {'a':1,'b':2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"],
    ["{% for k, v in {'a':1}|items %}{{ k }}{{ v }}{% endfor %}", "a1"],
    ["{% for k, v in {'b':1,'a':2}|dictsort %}{{ k }}{{ v }}{% endfor %}", "a2b1"],
    ["{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"],
    ["{% for a, b in ['xy', 'zw'] %}{{ b }}{{ a }}{% endfor %}", "yxwz"],
    ["{% for x in missing %}x{% else %}none{% endfor %}", "none"],
    ["{% for x in [] %}x{% else %}none{% endfor %}", "none"],
    ["{% for x in range(3) %}{{ x }}{% endfor %}", "012"],
    ["{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}", "531"],
    ["{% for x in range(3, 3) %}x{% else %}none{% endfor %}", "none"],
    ["{% for x in (1,2) %}{{ x }}{% endfor %}", "12"],
    ["{% for x in [1,2]|map('string') %}{{ x }}{{ loop.last }}{{ loop.length }}{% endfor %}", "1False22True2"],
    ["{% for x in [1,2,3][1:] %}{{ x }}{% endfor %}", "23"],
    ["{% for x in [1,2] + [3] %}{{ x }}{% endfor %}", "123"],
    ["{% for x in ([1] if false else [2]) %}{{ x }}{% endfor %}", "2"],
    ["{% for x in a or b %}{{ x }}{% endfor %}", "1"],
    ["{% for x in [3,1,2]|sort|reverse %}{{ x }}{% endfor %}", "321"],
    ["{% for x in '' %}x{% else %}e{% endfor %}", "e"],
  ],
  variables,
);

shows("with a condition", [
  ["{% for x in [1,2] if x > 5 %}x{% else %}none{% endfor %}", "none"],
  ["{% for x in [1,2,3] if x != 2 %}{{ loop.previtem|default('-') }}{{ x }} {% endfor %}", "-1 13 "],
  ["{% for a, b in [(1,2),(3,3)] if a == b %}{{ a }}{% endfor %}", "3"],
  ["{% for x in [1,2] if true %}{{ x }}{% endfor %}", "12"],
  ["{% set y = 2 %}{% for x in [1,2,3] if x > y %}{{ x }}{% endfor %}", "3"],
  ["{% for x in [1,2,3] if x > 1 and x < 3 %}{{ x }}{% endfor %}", "2"],
  ["{% for x in [1,2,3] if not x == 2 %}{{ x }}{% endfor %}", "13"],
  ["{% for x in [1,2] if x in [2] %}{{ x }}{% endfor %}", "2"],
  ["{% for x in [0,1] if x %}{{ x }}{% endfor %}", "1"],
  ["{% for x in [[1],[2]] if x[0] == 2 %}{{ x }}{% endfor %}", "[2]"],
]);

shows("break and continue", [
  ["{% for x in [1,2,3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "1"],
  ["{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"],
  ["{% for x in [1] %}{% break %}{% else %}else{% endfor %}", "else"],
  ["{% for x in [1] %}{% continue %}{% else %}else{% endfor %}", "else"],
  [
    "{% for x in [1,2] %}{% for y in [1,2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "11 21 ",
  ],
  [
    "{% for x in [1,2] %}{% for y in [1,2] %}{% if y == 1 %}{% continue %}{% endif %}{{ x }}{{ y }} {% endfor %}-{% endfor %}",
    "12 -22 -",
  ],
  ["{% for x in [1,2,3] %}{{ x }}{% if loop.last %}{% break %}{% endif %},{% endfor %}", "1,2,3"],
  [
    "{% for x in [1,2,3] %}{% if x == 1 %}{% continue %}{% else %}{{ x }}{% endif %}{{ loop.index }} {% endfor %}",
    "22 33 ",
  ],
  ["{% for x in [1,2] %}a{% break %}b{% endfor %}c", "ac"],
]);

refuses("what is refused", [
  ["{% for x in 5 %}{% endfor %}", "'int' object is not iterable"],
  ["{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"],
  ["{% for x in true %}{% endfor %}", "'bool' object is not iterable"],
  ["{% for a, b in [1] %}{% endfor %}", "'int' object is not iterable"],
  ["{% for a, b in [(1,2,3)] %}{% endfor %}", "cannot unpack 3 values into 2 variables"],
  ["{% for a, b in ['x'] %}{% endfor %}", "cannot unpack 1 values into 2 variables"],
  ["{% for x in [1] %}{{ loop(x) }}{% endfor %}", "'object' object is not callable"],
  ["{% for x in range('a') %}{% endfor %}", "range() must be an integer, not str"],
  ["{% for x in range() %}{% endfor %}", "range() must be an integer, not Undefined"],
  ["{% for x in range(1,2,0) %}{% endfor %}", "range() arg 3 must not be zero"],
  ["{% for x in range(1.5) %}{% endfor %}", "range() must be an integer, not float"],
  ["{% for x in range(1,2,3,4) %}{% endfor %}", "range expected at most 3 arguments, got 4"],
  ["{{ range(stop=5) }}", "range() must be an integer, not Undefined"],
  ["{% for x in [1] if y.z.w %}{% endfor %}", "an undefined value has no attribute 'z'"],
  ["{% for x in namespace() %}{% endfor %}", "'Namespace' object is not iterable"],
  ["{% for x in range %}{% endfor %}", "'function' object is not iterable"],
  ["{% for x in [1] if loop.first %}{{ x }}{% endfor %}", "an undefined value has no attribute 'first'"],
]);

cannotBeRead("what is refused", [
  "{% for x in [1] recursive %}{% endfor %}",
  "{% for x %}{% endfor %}",
  "{% for in [1] %}{% endfor %}",
  "{% for x in [1] %}",
  "{% endfor %}",
  "{% for x in %}{% endfor %}",
  "{% for 1 in [1] %}{% endfor %}",
  "{% for x.y in [1] %}{% endfor %}",
]);
