import { refuses, shows } from "./tables.ts";

shows("percent, with text", [
  ["{{ '%s' % 'a' }}", "a"],
  ["{{ '%s|%s' % ('a', 1) }}", "a|1"],
  ["{{ '%s' % 1.0 }}", "1.0"],
  ["{{ '%s' % none }}", "None"],
  ["{{ '%s' % true }}", "True"],
  ["{{ '%s' % [[1, 'a']] }}", "[[1, 'a']]"],
  ["{{ '%s' % {'a': 1} }}", "{'a': 1}"],
  ["{{ '%r' % 'a' }}", "'a'"],
  ["{{ '%r' % \"it's\" }}", '"it\'s"'],
  ["{{ '%5s|' % 'ab' }}", "   ab|"],
  ["{{ '%-5s|' % 'ab' }}", "ab   |"],
  ["{{ '%05s|' % 'ab' }}", "   ab|"],
  ["{{ '100%%' % [] }}", "100%"],
  ["{{ '%(a)s %(b)s %(a)s' % {'a': 1, 'b': 2} }}", "1 2 1"],
  ["{{ '%(a)s' % {'a': 1, 'c': 2} }}", "1"],
  ["{{ '%(a b)5d|' % {'a b': 7} }}", "    7|"],
  ["{{ '%(k)s %%' % {'k': 'v'} }}", "v %"],
  ["{{ '%3s|' % '🙂' }}", "  🙂|"],
  ["{{ '%s' % (('a', 'b')|list) }}", "['a', 'b']"],
  ["{{ '%s' % missing }}", ""],
]);

shows("percent, with numbers", [
  ["{{ '%d' % 5 }}", "5"],
  ["{{ '%d' % true }}", "1"],
  ["{{ '%5d|' % 42 }}", "   42|"],
  ["{{ '%-5d|' % 42 }}", "42   |"],
  ["{{ '%05d' % 42 }}", "00042"],
  ["{{ '%05d' % -42 }}", "-0042"],
  ["{{ '%-05d|' % 42 }}", "42   |"],
  ["{{ '%d%%' % 50 }}", "50%"],
]);

refuses("percent, refused", [
  ["{{ '%s %s' % 'a' }}", "not enough arguments for format string"],
  ["{{ '%s' % ('a', 'b') }}", "not all arguments converted during string formatting"],
  ["{{ 'a' % 1 }}", "not all arguments converted during string formatting"],
  ["{{ '%(a)s' % {'b': 1} }}", "the mapping has no key 'a'"],
  ["{{ '%(a)s' % 'x' }}", "format requires a mapping"],
  ["{{ '%(a)s' % ('x', 'y') }}", "format requires a mapping"],
  ["{{ '%' % 1 }}", "incomplete format"],
  ["{{ 'abc%' % 1 }}", "incomplete format"],
  ["{{ '%s %' % 'a' }}", "incomplete format"],
]);

shows("format, fields", [
  ["{{ '{}'.format(1) }}", "1"],
  ["{{ '{} {}'.format('a', 'b') }}", "a b"],
  ["{{ '{1} {0}'.format('a', 'b') }}", "b a"],
  ["{{ '{a} {b}'.format(a=1, b='x') }}", "1 x"],
  ["{{ '{0} {a}'.format('z', a=1) }}", "z 1"],
  ["{{ '{{}}'.format(1) }}", "{}"],
  ["{{ '{{{}}}'.format(1) }}", "{1}"],
  ["{{ '{!s}'.format(1.0) }}", "1.0"],
  ["{{ '{}'.format(none) }}", "None"],
  ["{{ '{}'.format([1]) }}", "[1]"],
  ["{{ '{}'.format(true) }}", "True"],
  ["{{ '{}'.format({'a': 1}) }}", "{'a': 1}"],
  ["{{ 'none'.format(1, 2) }}", "none"],
  ["{{ '{0}{0}'.format('ab') }}", "abab"],
  ["{{ '{}'.format(missing) }}", ""],
  ["{{ '{a}{a}'.format(**{'a': 1}) }}", "11"],
  ["{{ '{}-{}'.format(*['x', 'y']) }}", "x-y"],
]);

shows("format, specifications", [
  ["{{ '{:d}'.format(7) }}", "7"],
  ["{{ '{}'.format(1.0) }}", "1.0"],
  ["{{ '{:d}'.format(true) }}", "1"],
]);

refuses("format, refused", [
  ["{{ '{}'.format() }}", "no value for the field ''"],
  ["{{ '{} {}'.format('a') }}", "no value for the field ''"],
  ["{{ '{a}'.format(b=1) }}", "no value for the field 'a'"],
  ["{{ '{'.format(1) }}", "single brace in format string"],
  ["{{ '}'.format(1) }}", "single brace in format string"],
  ["{{ '{'.format() }}", "single brace in format string"],
  ["{{ '{0} {}'.format('a', 'b') }}", "automatic and manual field numbering are mixed"],
  ["{{ '{} {0}'.format('a', 'b') }}", "automatic and manual field numbering are mixed"],
  ["{{ '{2}'.format(1, 2) }}", "no value for the field '2'"],
  ["{{ '{:>5'.format(1) }}", "single brace in format string"],
]);
