import { refuses, shows } from "./tables.ts";

const variables = { d: { b: 1, a: [1, 2, { c: null }], é: "ü🙂" }, e: { "10": 1, "2": 2 } };

shows(
  "values",
  [
    ["{{ none|tojson }}", "null"],
    ["{{ true|tojson }}", "true"],
    ["{{ 0|tojson }}", "0"],
    ["{{ 1.0|tojson }}", "1.0"],
    ["{{ -0.0|tojson }}", "-0.0"],
    ["{{ 0.1|tojson }}", "0.1"],
    ["{{ 'a'|tojson }}", '"a"'],
    ["{{ ''|tojson }}", '""'],
    ["{{ []|tojson }}", "[]"],
    ["{{ {}|tojson }}", "{}"],
    ["{{ (1,'a')|tojson }}", '[1, "a"]'],
    ["{{ [[],{},[[]]]|tojson }}", "[[], {}, [[]]]"],
    ["{{ {'a':{'b':{}}}|tojson }}", '{"a": {"b": {}}}'],
    ["{{ 'inf'|float|tojson }}", "Infinity"],
    ["{{ 'nan'|float|tojson }}", "NaN"],
    ["{{ ('-inf'|float)|tojson }}", "-Infinity"],
    ["{{ [true,none,1.5]|tojson }}", "[true, null, 1.5]"],
    ["{{ range(3)|list|tojson }}", "[0, 1, 2]"],
    ["{{ 'abc'.split('b')|tojson }}", '["a", "c"]'],
    ["{{ {'a':1}.items()|list|tojson }}", '[["a", 1]]'],
    ["{{ [1,2]|map('string')|list|tojson }}", '["1", "2"]'],
  ],
  variables,
);

shows(
  "text",
  [
    ["{{ '\"\\\\/'|tojson }}", '"\\"\\\\/"'],
    ["{{ '\\b\\f\\n\\r\\t'|tojson }}", '"\\b\\f\\n\\r\\t"'],
    ["{{ '\\x00\\x1f\\x7f\\x80'|tojson }}", '"\\u0000\\u001f\u007f\u0080"'],
    ["{{ 'é日🙂'|tojson }}", '"é日🙂"'],
    ["{{ '\\u2028\\u2029\\ufeff'|tojson }}", '"\u2028\u2029\ufeff"'],
    ["{{ '<script>&\\'</script>'|tojson }}", '"<script>&\'</script>"'],
    ["{{ 'é日🙂\\x7f\\x80'|tojson(ensure_ascii=true) }}", '"\\u00e9\\u65e5\\ud83d\\ude42\\u007f\\u0080"'],
    ["{{ '🙂'|tojson(true) }}", '"\\ud83d\\ude42"'],
    ["{{ {'é':'ü'}|tojson(ensure_ascii=true) }}", '{"\\u00e9": "\\u00fc"}'],
    ["{{ 'a'|tojson|tojson }}", '"\\"a\\""'],
    ["{{ 'a'|tojson|length }}", "3"],
  ],
  variables,
);

shows(
  "keys",
  [
    ["{{ {1:'a'}|tojson }}", '{"1": "a"}'],
    ["{{ {1.5:'a'}|tojson }}", '{"1.5": "a"}'],
    ["{{ {none:'a'}|tojson }}", '{"null": "a"}'],
    ["{{ {'':1}|tojson }}", '{"": 1}'],
    ["{{ {'a b':1,'\"':2}|tojson }}", '{"a b": 1, "\\"": 2}'],
    ["{{ {'b':1,'a':2}|tojson }}", '{"b": 1, "a": 2}'],
    ["{{ {'b':1,'a':2,'b':3}|tojson }}", '{"b": 3, "a": 2}'],
    ["{{ d|tojson }}", '{"b": 1, "a": [1, 2, {"c": null}], "é": "ü🙂"}'],
    ["{{ {2:'b',1:'a'}|tojson(sort_keys=true) }}", '{"1": "a", "2": "b"}'],
    ["{{ {'b':1,'a':{'d':1,'c':2}}|tojson(sort_keys=true) }}", '{"a": {"c": 2, "d": 1}, "b": 1}'],
    ["{{ [{'b':1,'a':2}]|tojson(sort_keys=true) }}", '[{"a": 2, "b": 1}]'],
    ["{{ {'B':1,'a':2,'_':3}|tojson(sort_keys=true) }}", '{"B": 1, "_": 3, "a": 2}'],
    ["{{ {10:1,9:2}|tojson(sort_keys=true) }}", '{"9": 2, "10": 1}'],
    ["{{ {1.5:1,-2:2}|tojson(sort_keys=true) }}", '{"-2": 2, "1.5": 1}'],
  ],
  variables,
);

shows(
  "layout",
  [
    [
      "{{ d|tojson(indent=2) }}",
      '{\n  "b": 1,\n  "a": [\n    1,\n    2,\n    {\n      "c": null\n    }\n  ],\n  "é": "ü🙂"\n}',
    ],
    ["{{ []|tojson(indent=2) }}", "[]"],
    ["{{ {}|tojson(indent=2) }}", "{}"],
    ["{{ [[]]|tojson(indent=2) }}", "[\n  []\n]"],
    ["{{ [1,[2,{'a':3}]]|tojson(indent=1) }}", '[\n 1,\n [\n  2,\n  {\n   "a": 3\n  }\n ]\n]'],
    ["{{ [1,2]|tojson(indent=0) }}", "[\n1,\n2\n]"],
    ["{{ [1,2]|tojson(indent=none) }}", "[1, 2]"],
    ["{{ [1,2]|tojson(indent='\\t') }}", "[\n\t1,\n\t2\n]"],
    ["{{ [1,2]|tojson(indent='') }}", "[\n1,\n2\n]"],
    ["{{ [1,2]|tojson(indent=-1) }}", "[\n1,\n2\n]"],
    ["{{ [1,2]|tojson(indent=true) }}", "[\n 1,\n 2\n]"],
    ["{{ {'a':1,'b':[1,2]}|tojson(separators=(',',':')) }}", '{"a":1,"b":[1,2]}'],
    ["{{ {'a':1,'b':[1,2]}|tojson(separators=[' , ',' : ']) }}", '{"a" : 1 , "b" : [1 , 2]}'],
    ["{{ {'a':1,'b':2}|tojson(indent=2,separators=(', ',' = ')) }}", '{\n  "a" = 1, \n  "b" = 2\n}'],
    ["{{ {'a':[1]}|tojson(indent=2,sort_keys=true,ensure_ascii=true) }}", '{\n  "a": [\n    1\n  ]\n}'],
    ["{{ {'a':1}|tojson(false,1) }}", '{\n "a": 1\n}'],
    ["{{ {'b':1,'a':2}|tojson(false,none,(',',':'),true) }}", '{"a":2,"b":1}'],
    ["{{ [1]|tojson(separators=none) }}", "[1]"],
    ["{{ 'a'|tojson(indent=4) }}", '"a"'],
  ],
  variables,
);

refuses(
  "what has no JSON",
  [
    ["{{ missing|tojson }}", "Object of type Undefined is not JSON serializable"],
    ["{{ [missing]|tojson }}", "Object of type Undefined is not JSON serializable"],
    ["{{ {'a':missing}|tojson }}", "Object of type Undefined is not JSON serializable"],
    ["{{ [1]|map('string')|tojson }}", "Object of type generator is not JSON serializable"],
    ["{{ range|tojson }}", "Object of type function is not JSON serializable"],
    ["{{ namespace()|tojson }}", "Object of type Namespace is not JSON serializable"],
    ["{{ {(1,2):3}|tojson }}", "keys must be str, int, float, bool or None, not tuple"],
    ["{{ {1:1,'a':2}|tojson(sort_keys=true) }}", "'<' not supported between instances of 'str' and 'int'"],
    ["{{ [1]|tojson(indent=1.5) }}", "indent must be an integer, not float"],
    ["{{ [1]|tojson(separators=5) }}", "'int' object is not iterable"],
    ["{{ [1]|tojson(separators=(1,2)) }}", "separator must be str, not int"],
    ["{{ [1]|tojson(nonsense=1) }}", "tojson() got an unexpected keyword argument 'nonsense'"],
    ["{{ [1]|tojson(1,2,3,4,5) }}", "tojson() takes at most 4 arguments (5 given)"],
    ["{{ [1,[1]|map('string')]|tojson }}", "Object of type generator is not JSON serializable"],
  ],
  variables,
);
