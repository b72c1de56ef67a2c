"""What the template goldens are made of: variables, snippets, conversations, templates.

All of it is our own. The templates under FAMILIES follow the prompt formats of well-known model
families; they are written for these tests and are no copies of the files those models ship.
"""

STANDARD = {
    "a": 1,
    "b": 2,
    "neg": -7,
    "f": 1.5,
    "fneg": -2.5,
    "third": 0.3333333333333333,
    "big": 9007199254740993,
    "huge": 1e300,
    "tiny": 1.5e-7,
    "s": "Hello World",
    "u": "Größe ÀÉ 日本 😀",
    "e": "",
    "sp": "  padded \t\n",
    "n": None,
    "t": True,
    "fl": False,
    "l": [3, 1, 2],
    "ls": ["b", "A", "c", "a"],
    "el": [],
    "ed": {},
    "mixed": [1, "two", 3.0, None, True, [4, 5], {"k": "v"}],
    "d": {"x": 1, "y": "two", "z": [1, 2]},
    "keys": {"items": 1, "b": 2, "A": 3, "get": 4},
    "m": [
        {"name": "ann", "age": 30, "city": "Bern", "tags": ["x"]},
        {"name": "Bob", "age": 25, "city": "Aarau", "tags": []},
        {"name": "cid", "age": 35, "city": "bern", "tags": ["x", "y"]},
        {"name": "dot", "age": 25, "city": "Aarau"},
    ],
    "tree": [
        {"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]},
        {"v": 5, "kids": []},
    ],
    "html": "<a href=\"x\">&'</a>",
    "text": "line1\nline2\n\n  line4\n",
    "quote": "it's \"q\"",
    "csv": "a,b,,c",
    "ctl": "tab\tnl\nbell\u0007del\u007fnbsp\u00a0zw\u200b\\",
    "paragraph": "The quick brown-fox jumps over the lazy dog; well-known self-evident truth -- yes.",
}


def _expressions():
    plain = """
1 + 2 * 3
(1 + 2) * 3
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7 / 2
6 / 3
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
1 / 0
1 // 0
1 % 0
1.0 / 0
9223372036854775806 + 1
9223372036854775807
1_000_000
0x1F
0o17
0b101
1e3
1.5e-3
1E5
1e999
-1e999
1e-999
'1e999' | float
'-1e-999' | float
'1.e5' | float
'.5e1' | float
'1e' | float
'0x10' | float
'5_' | float
(html | e) | list
(html | e) | last is escaped
(html | e) | first is escaped
-0.5 | round(0, 'ceil')
0.1 + 0.2
1e16
1e15
123456789012345680.0
1e22
0.0001
0.00001
-0.0
third
huge
tiny
huge * huge
1.0
100.0
big
a + b
a - b
neg
-a
+a
-neg
- neg | abs
not a
not a == b
a == 1 and b == 2
a or b
e or 'fallback'
n or e or 0
a and b
e and b
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1]
1 ~ 2 + 3
'x' 'y' "z"
'a' + 'b'
'a' * 3
3 * 'ab'
'a' * -1
[1] + [2]
[1, 2] * 2
(1,) + (2, 3)
[1] + (2,)
'a' + 1
1 + 'a'
[] - []
1 < 2 < 3
1 < 3 < 2
1 < 2 == true
3 > 2 >= 2 != 1
1 == 1.0
true == 1
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
[1, 2] == [1, 2]
(1, 2) == [1, 2]
{'a': 1} == {'a': 1.0}
none == none
none < 1
nope == nope2
nope == none
nope < 1
nope + 1
1 + nope
'a' in 'abc'
'' in 'abc'
'd' not in 'abc'
1 in l
4 in l
'x' in d
'q' not in d
1 in 'a'
1 in 5
1 in nope
[1] in d
'a' in ['b'] or 'c'
1 if true else 2
1 if false else 2
1 if false
(1 if false) is defined
1 if true else 2 if false else 3
'yes' if a == 1 and not fl else 'no'
()
(1,)
(1, 2)
1, 2
[1, 2, ]
{'a': 1, 'b': [1, {'c': none}], }
{1: 'x', 'k': 2, none: 3, (1, 2): 4, 1.5: 5}
{1: 'a', true: 'b', 1.0: 'c'}
{[1]: 2}
mixed
d
quote
[quote]
["it's"]
['"']
['both \\' and "']
[ctl]
[u]
['\\x00\\x1f\\u200b\\u00e9\\U0001F600\\n\\t\\r\\\\']
'\\101\\x41\\u0041\\U00000041\\d'
'\\xZZ'
'\\ud800'
'line\\
continued'
s[0]
s[-1]
s[100]
s[1:4]
s[::-1]
s[::2]
s[-3:]
s[:-3]
s[5:1]
s[5:1:-1]
s[::0]
s['x']
u[0]
u[2]
u[-1]
u[3:8]
u[::-1]
u | length
l[0]
l[-1]
l[3]
l[1:]
l[::-1]
l['0']
l[1.0]
l[true]
l.0
l[0:2][1]
d.x
d['x']
d['nope']
d.nope
d.nope.more
d['nope']['more']
nope
nope.x
nope['x']
nope[1:]
n.x
n['x']
n[1:]
d[1:]
d[[1]]
a.real
f.imag
s.nope
s.upper
keys.items()
keys['items']
keys.get
keys['get']
d.items
d.items()
d.keys()
d.values()
d.get('x')
d.get('q')
d.get('q', 5)
d.get()
d.copy()
d.pop('x')
d.update({})
d.clear
d.setdefault('x', 1)
l.append(1)
l.append
l.index(1)
l.index(9)
l.count(1)
l.copy()
l.sort()
l.__class__
s.__class__.mro()
''.__class__
d.__len__
range(5)
range(1, 10, 3) | list
range(5, 0, -2) | list
range(0)| list
range(3)[1]
range(10)[2:8:2]
range(10)[::-1] | list
range(3) == range(0, 3)
3 in range(5)
range(100001)
range(100000) | length
range('a')
range(1, 2, 0)
range(1.5)
range()
dict(a=1, b=2)
dict([('a', 1), ['b', 2]])
dict({'a': 1}, b=2)
dict(1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace(a=1)['a']
namespace({'x': 5}).x
namespace
range
lipsum()
nope()
a()
s()
'%s' % 'x'
'%s and %s' % ('x', 1)
'%d%%' % 50
'%5d|%-5d|%05d|%+d' % (1, 2, 3, 4)
'%x %X %o %#x' % (255, 255, 8, 255)
'%.2f %8.3f %-8.1f|' % (1.005, 2.5, 3)
'%e %E %g %G' % (12345.678, 0.00012, 1e20, 1e-7)
'%r %s' % ('a', 'a')
'%(a)s-%(b)d' % {'a': 1, 'b': 2}
'%(a)s' % {'b': 1}
'%s' % (1, 2)
'%s %s' % 1
'%d' % 'x'
'%d' % 3.99
'%d' % -3.99
'%c%c' % ('a', 66)
'%5s|%-5s|%.2s|' % ('ab', 'cd', 'efgh')
'%s' % [1, 2]
'%s' % nope
'%*d' % (5, 42)
'%z' % 1
'%' % 1
'abc' % 1
'abc' % {}
'{} {}'.format(1, 'b')
'{0} {1} {0}'.format('a', 'b')
'{x} {y}'.format(x=1, y=2)
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:05d} {:+} {:,} {:_}'.format(42, 5, 1234567, 1234567)
'{:.2f} {:8.3f} {:e} {:g} {:%}'.format(3.14159, 2.5, 12345.6, 0.0001, 0.256)
'{:x} {:#x} {:b} {:#b} {:o} {:X} {:c}'.format(255, 255, 5, 5, 8, 255, 65)
'{!r} {!s}'.format('a', 'b')
'{0[a]} {0.x}'.format({'a': 1, 'x': 2})
'{0[1]}'.format([1, 2])
'{{}} {}'.format(1)
'{:{}}|'.format('a', 5)
'{:{w}.{p}f}|'.format(3.14159, w=8, p=2)
'{'.format(1)
'}'.format(1)
'{} {0}'.format(1)
'{}'.format()
'{x}'.format(y=1)
'{:d}'.format('a')
'{:5}'.format([1])
'{}'.format([1])
'{:s}'.format('x')
'{:.3}'.format('abcdef')
'{:.3}'.format(3.14159)
'{:10.4}|'.format(1234.5)
'{}'.format(true)
'{:d}'.format(true)
'{:5}|'.format(none)
'{:>08.2f}'.format(-3.14159)
'{:08.2f}'.format(-3.14159)
'{:010,}'.format(1234567)
'{:,.2f}'.format(1234567.891)
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
u.upper()
u.lower()
'ß ŉ ǰ ΐ'.upper()
'ΑΣ ΑΣΑ Σ'.lower()
'İI'.lower()
'straße'.casefold()
"they're bill's".title()
'ǆ ǅ'.title()
'ﬁx'.capitalize()
sp.strip()
sp.lstrip()
sp.rstrip()
'xxhixx'.strip('x')
'abcba'.strip('ab')
'abcba'.lstrip('ab')
'abcba'.rstrip('ab')
'a'.strip(1)
'\\u00a0\\u3000x\\u2003'.strip()
'a b  c'.split()
' a b '.split()
'a b c d'.split(none, 2)
'a b c d'.split(maxsplit=1)
csv.split(',')
csv.split(',', 1)
csv.rsplit(',', 1)
'a b  c '.rsplit(none, 1)
csv.split('')
csv.split(1)
''.split(',')
''.split()
'a--b--c'.split('--')
text.splitlines()
text.splitlines(true)
'a\\r\\nb\\x0bc\\u2028d'.splitlines()
csv.partition(',')
csv.rpartition(',')
csv.partition(';')
csv.rpartition(';')
s.startswith('Hello')
s.startswith(('x', 'He'))
s.startswith('World', 6)
s.startswith(['x'])
s.startswith(nope)
s.endswith('World')
s.endswith(('a', 'd'))
s.endswith('')
s.replace('o', '0')
s.replace('o', '0', 1)
s.replace('', '-')
s.replace('l', '')
s.replace('o')
s.find('o')
s.find('o', 5)
s.find('z')
s.rfind('o')
s.index('o')
s.index('z')
s.rindex('o')
s.count('l')
s.count('')
u.find('日')
u.index('😀')
'aaa'.count('aa')
','.join(['a', 'b'])
','.join([1])
','.join('abc')
','.join(d)
','.join([])
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'一'.isnumeric()
' \\t'.isspace()
''.isspace()
'ABC'.isupper()
'aBc'.islower()
'Ab Cd'.istitle()
'a1'.isidentifier()
'é'.isascii()
'a\\n'.isprintable()
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'x'.removesuffix('')
'42'.zfill(5)
'-42'.zfill(5)
'a'.center(5)
'ab'.center(5, '*')
'a'.ljust(3, '.') ~ '|'
'a'.rjust(3) ~ '|'
'a'.center(3, 'xy')
'a\\tb'.expandtabs(4)
'x'.encode()
'x'.upper(1)
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%A, %B %-d; %H:%M:%S %j %p %y %%')
strftime_now('%z|%Z|%f|')
strftime_now()
raise_exception('no')
a is defined
nope is defined
nope is undefined
nope is not defined
n is none
n is not none
t is boolean
t is true
t is false
fl is false
a is true
a is integer
t is integer
f is float
a is number
t is number
s is number
s is string
a is string
l is sequence
d is sequence
s is sequence
a is sequence
nope is sequence
d is mapping
l is mapping
l is iterable
a is iterable
nope is iterable
s is iterable
n is iterable
range is callable
s.upper is callable
nope is callable
a is callable
a is odd
b is even
b is odd
f is even
s is even
9 is divisibleby 3
9 is divisibleby(4)
9 is divisibleby
a is eq 1
a is equalto 1
a is == 1
a is eq(1)
a is ne 2
a is lt 2
a is le 1
a is gt 0
a is ge 2
a is greaterthan 0
a is lessthan 0
s is lt 1
1 is in [1, 2]
3 is not in [1, 2]
none is sameas none
true is sameas true
1 is sameas true
'abc' is lower
'ABC' is upper
'aBc' is lower
'upper' is filter
'nope' is filter
'even' is test
'nope' is test
s is escaped
(s | e) is escaped
a is defined and b is defined
a is defined or nope
not a is defined
a is nosuchtest
(a is nosuchtest) if false else 'fine'
a is not defined is none
neg | abs
fneg | abs
s | abs
s | attr('upper')
d | attr('x')
d | attr('items')
nope | attr('x')
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(2, 'x') | list
[1, 2, 3, 4, 5, 6, 7] | slice(3) | list
[1, 2, 3, 4, 5, 6, 7] | slice(3, 'x') | list
s | capitalize
'a' | center(5) ~ '|'
'a' | center | length
s | count
l | length
d | length
n | length
nope | length
5 | length
nope | default('x')
nope | d('x')
nope | default
n | default('x')
n | default('x', true)
e | default('x', boolean=true)
nope.x | default('y')
d.nope | default('y')
keys | dictsort
keys | dictsort(true)
keys | dictsort(false, 'value')
keys | dictsort(reverse=true)
keys | dictsort(by='nope')
l | dictsort
html | e
html | escape
html | e | e
html | forceescape
html | safe
(html | safe) ~ html
(html | safe) + html
html + ('<' | safe)
('<%s>' | safe) % html
('<{}>' | safe).format(html)
[html | safe]
[html | e, 1]
(html | safe).upper()
('a' | safe) * 2
('<' | safe).join([html, 'x'])
('a<' | safe).replace('a', html)
13 | filesizeformat
1000 | filesizeformat
1536000 | filesizeformat
1536000 | filesizeformat(true)
l | first
el | first
s | first
nope | first
5 | first
l | last
el | last
s | last
d | last
(l | map('string')) | last
'1.5' | float
'x' | float
'x' | float(2.5)
' 1e3 ' | float
'inf' | float
none | float
'1_0.5' | float
'%s %d' | format('a', 1)
'%(x)s' | format(x=1)
'%s' | format(1, x=2)
m | groupby('city') | list
m | groupby('city', case_sensitive=true)
m | groupby('age') | map(attribute='grouper') | list
m | groupby('tags') | length
text | indent
text | indent(2, true)
text | indent(2, blank=true)
text | indent('> ', true, true)
text | indent(width=1, first=false)
5 | indent
'42' | int
'4.9' | int
'x' | int
'x' | int(7)
'0x1A' | int(base=16)
'1A' | int(0, 16)
'0b11' | int(0, 0)
4.9 | int
-4.9 | int
none | int
nope | int
' 12 ' | int
'1_000' | int
'9999999999999999' | int
true | int
d | items
d | items | list
nope | items | list
l | items | list
l | join
l | join(', ')
l | join(1)
m | join('-', attribute='name')
m | map(attribute='name') | join(' ')
nope | join
5 | join
d | join(',')
s | list
d | list
range(3) | list
nope | list
5 | list
s | lower
5 | lower
none | upper
m | map(attribute='name')|list
m | map(attribute='tags.0') | list
m | map(attribute='tags.0', default='-') | list
m | map(attribute='nope') | list
m | map('length') | list
ls | map('upper') | list
ls | map('replace', 'a', 'x') | list
ls | map('nope') | list
ls | map() | list
ls | map(nope) | list
nope | map('upper') | list
none | map('upper') | list
l | max
l | min
ls | max
ls | min
ls | max(case_sensitive=true)
m | max(attribute='age')
m | min(attribute='age')
el | max
mixed | max
[1, 2, 3, 4] | reject('odd') | list
[1, 2, 3, 4] | select('odd') | list
[1, 2, 3, 4] | select('divisibleby', 2) | list
[0, 1, '', 'x', none] | select | list
[0, 1, '', 'x', none] | reject | list
[1, 2, 3] | select('gt', 1) | list
[1, 2, 3] | select('nope') | list
m | selectattr('tags') | map(attribute='name') | list
m | selectattr('age', 'equalto', 25) | map(attribute='name') | list
m | selectattr('age', '>', 25) | map(attribute='name') | list
m | rejectattr('tags') | map(attribute='name') | list
m | rejectattr('age', 'in', [25, 30]) | map(attribute='name') | list
m | selectattr('tags', 'defined') | list | length
m | selectattr('name', 'upper') | list
m | selectattr() | list
m | selectattr('name') | first
s | replace('o', '0')
s | replace('o', '0', 1)
5 | replace(5, 'five')
l | reverse | list
s | reverse
d | reverse | list
5 | reverse
(l | map('string')) | reverse | list
42.55 | round
42.55 | round(1)
42.55 | round(1, 'floor')
42.55 | round(1, 'ceil')
42.5 | round
43.5 | round
42 | round
1234 | round(-2)
1250 | round(-2)
1234.5 | round(-2)
2.675 | round(2)
42.55 | round(1, 'nope')
s | round
42.4 | round | int
l | sort
ls | sort
ls | sort(case_sensitive=true)
l | sort(reverse=true)
m | sort(attribute='age') | map(attribute='name') | list
m | sort(attribute='age,name') | map(attribute='name') | list
m | sort(attribute='age', reverse=true) | map(attribute='name') | list
mixed | sort
d | sort
s | sort
5 | string
[1] | string
'<b>a &amp; <i>b</i></b>  c <!-- x --> d' | striptags
l | sum
m | sum(attribute='age')
[[1], [2]] | sum(start=[])
ls | sum
[0.1, 0.2, 0.3] | sum
'hello wORLD foo-bar (baz) {q} <w> it\\'s' | title
mixed | tojson
d | tojson
u | tojson
ctl | tojson
html | tojson
d | tojson(indent=2)
mixed | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent='--')
[] | tojson(indent=2)
{} | tojson(indent=2)
{'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
u | tojson(ensure_ascii=true)
u | tojson(true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
[1.0, 1e100, 0.1, -0.0, 1e-10] | tojson
nope | tojson
d.nope | tojson
range(3) | tojson
d.items() | tojson
(1, 2) | tojson
huge * huge | tojson
namespace() | tojson
html | safe | tojson
sp | trim
'xxaxx' | trim('x')
5 | trim
n | trim
nope | trim
'foo bar baz qux' | truncate(9)
'foo bar baz qux' | truncate(9, true)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, false, '...', 0)
'foo bar baz qux' | truncate(2)
s | truncate(5, true, '', 0)
ls | unique | list
ls | unique(true) | list
m | unique(attribute='age') | map(attribute='name') | list
[1, 1.0, true, 2] | unique | list
s | upper
'a b/c?d=é&' | urlencode
{'a b': 'c&d', 'x': 1} | urlencode
[('a', 1), ('b', 'x y')] | urlencode
5 | urlencode
'a b, c-d e_f 5' | wordcount
paragraph | wordwrap(20)
paragraph | wordwrap(7)
paragraph | wordwrap(10, false)
paragraph | wordwrap(20, wrapstring='|')
paragraph | wordwrap(15, break_on_hyphens=false)
text | wordwrap(3)
{'class': 'a b', 'id': none, 'x': html} | xmlattr
{'a': 1} | xmlattr(false)
{'a b': 1} | xmlattr
s | nosuchfilter
(s | nosuchfilter) if false else 'fine'
s | random
s | upper | lower | title
(s | upper).lower()
s | upper()
s | replace(*['o', '0'])
s | replace(**{'old': 'o', 'new': '0'})
s | replace('o', new='0')
s | replace('o', nope='0')
l | join(d='+')
'a' | default(1, 2, 3)
s.split(' ') | map('length') | sum
s.split()[0].upper()[1:] ~ '!'
m[0].name
m[0]['name']
m[-1].tags
m[-1].tags is defined
m | map(attribute='name') | map('upper') | select('ne', 'BOB') | join(',')
(m | map(attribute='name')) is string
(m | selectattr('age')) and 'generators are true'
[] | select and 'even empty ones'
(l | map('string')) | length
(l | map('string'))[0]
dict(m | map(attribute='name') | map('upper') | list | batch(2)) | length
tree[0].kids[1].kids[0].v
true
True
false
none
None
TRUE
if
a.b.c
a b
a +
(a
a)
{a
[1, 2
'abc
@
$a
a!
a = 1
a ? b
""
'{{ not a tag }}'
"{% raw %}"
loop
self
caller
1.
.5
1..real
007
1__0
"a" is string is string
a is defined if a
l[1:2, 3]
l[]
f(
f(a=1, 2)
dict(a=1, a=2)
dict(**{'a': 1}, b=2)
dict(*[[('x', 1)]])
nope(*[1])
""".strip("\n").split("\n")
    # One case has a newline inside a string.
    out, skip = [], False
    for i, line in enumerate(plain):
        if skip:
            skip = False
            continue
        if line.endswith("\\") and line.startswith("'line"):
            out.append(line + "\n" + plain[i + 1])
            skip = True
        else:
            out.append(line)
    return ["{{ " + e + " }}" for e in out]


_STATEMENTS = [
    "",
    "plain text",
    "trailing newline\n",
    "two trailing newlines\n\n",
    "windows\r\nlines\rmixed\n",
    "{",
    "{ { } }",
    "{{}}",
    "{{ }}",
    "{%%}",
    "{% %}",
    "{{ a",
    "{% if a",
    "{% if a %}",
    "{# never closed",
    "{# comment #}x",
    "a{# c #}\nb",
    "a\n{# c #}\nb",
    "a\n  {# c #}\nb",
    "a\n  {#- c -#}\n b",
    "a {#+ c +#}\nb",
    "{#-#}x",
    "  {% if true %}\n  x\n  {% endif %}\n  y",
    "a\n  {% if true %}  \n  x\n{% endif %}",
    "a\n  {%+ if true %}\n  x\n  {%+ endif %}\ny",
    "a {%- if true -%} b {%- endif -%} c",
    "a \n\n {%- if true -%} \n\n b \n {%- endif -%} \n c",
    "a {{- ' b ' -}} c",
    "a\n  {{ 1 }}\nb",
    "a\n  {{- 1 }}\n  b",
    "a\n {{+ 1 }} b",
    "{{ 1 -}}  \n  x",
    "  {{ 1 }}",
    "{% if true %}x{% endif +%}\ny",
    "{% if true +%}\nx{% endif %}\ny",
    "\t{% if true %}\nx\n\t{% endif %}\n",
    "x{% if true %}\ny{% endif %}",
    "x {% if true %} y {% endif %} z",
    "\u00a0\n\u3000{% if true %}x{% endif %}",
    "{% raw %}{{ a }}{% if %}{% endraw %}",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "{%- raw -%}  x  {%- endraw -%}  y",
    "{% raw %}{% endraw %}",
    "{% raw %} never closed",
    "{% rawx %}",
    "{{ '}}' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a': {'b': 1}} }}",
    "{% if true %}1{% elif true %}2{% else %}3{% endif %}",
    "{% if false %}1{% elif true %}2{% else %}3{% endif %}",
    "{% if false %}1{% elif false %}2{% else %}3{% endif %}",
    "{% if nope %}1{% else %}2{% endif %}",
    "{% if a == 1 %}one{% endif %}{% if not a %}zero{% endif %}",
    "{% if a, b %}tuple{% endif %}",
    "{% if true: %}colon{% endif %}",
    "{% if true %}{% else %}{% else %}{% endif %}",
    "{% if true %}{% endfor %}",
    "{% endif %}",
    "{% nope %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% from 'x' import y %}",
    "{% extends 'x' %}",
    "{% do l.append(1) %}",
    "{% trans %}x{% endtrans %}",
    "{% 1 %}",
    "{% print a, ' ', s %}",
    "{% for x in l %}{{ x }},{% endfor %}",
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} {{ loop.length }};{% endfor %}",
    "{% for x in el %}x{% else %}empty{% endfor %}",
    "{% for x in l %}x{% else %}empty{% endfor %}",
    "{% for x in nope %}x{% else %}undefined{% endfor %}",
    "{% for x in n %}x{% endfor %}",
    "{% for x in 5 %}x{% endfor %}",
    "{% for x in s %}{{ x }}.{% endfor %}",
    "{% for x in u %}{{ x }}.{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}-{{ b }};{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a, in [[1]] %}{{ a }}{% endfor %}",
    "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, b in l %}{{ a }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() if v == 1 %}{{ k }}{{ loop.last }}{% endfor %}",
    "{% for x in l if loop.index > 1 %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in l if loop.index > 1 %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in l %}{% if loop.index == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% if loop.index == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in l %}{% continue %}{% else %}else after continue{% endfor %}",
    "{% for x in l %}{% break %}{% else %}else after break{% endfor %}",
    "{% for x in l %}{% for y in l %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% for x in l %}{% for y in el %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}",
    "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for x in l %}{% set y %}a{% if x == 1 %}{% break %}{% endif %}b{% endset %}{{ y }}{% endfor %}",
    "{% for x in l %}{% filter upper %}a{% if x == 1 %}{% continue %}{% endif %}b{% endfilter %}{{ x }}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('odd', 'even') }} {% endfor %}",
    "{% for x in l %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in l %}{{ loop.previtem.foo }}{% endfor %}",
    "{% for x in l | map('string') %}{{ loop.length }}{{ loop.last }}{{ x }} {% endfor %}",
    "{% for x in l | map('string') %}{{ loop.nextitem }}{{ loop.length }}{{ x }} {% endfor %}",
    "{% for x in l %}{{ loop }}{% endfor %}",
    "{% for x in l %}{{ loop.nope }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in l %}{{ loop | length }}{% endfor %}",
    "{% for x in l %}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in l %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in tree recursive %}{{ x.v }}({{ loop(x.kids) }}){% endfor %}",
    "{% for x in tree recursive %}{{ loop.depth }}{{ loop.index }}{% if x.kids %}[{{ loop(x.kids) }}]{% endif %}{% else %}-{% endfor %}",
    "{% for x in l %}{{ loop(l) }}{% endfor %}",
    "{% for x in l %}{% set loop = 1 %}{% endfor %}",
    "{% for loop in l %}{% endfor %}",
    "{% for x in l %}{% endfor %}{{ x }}",
    "{% for x in l %}{{ x }}{% endfor %}{{ x is defined }}",
    "{% for x l %}{% endfor %}",
    "{% for in l %}{% endfor %}",
    "{% for 1 in l %}{% endfor %}",
    "{% for ns.x in l %}{% endfor %}",
    "{% set x = 1 %}{{ x }}",
    "{% set x = 1 %}{% set x = x + 1 %}{{ x }}",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}",
    "{% set (x, y) = [1, 2] %}{{ x }}{{ y }}",
    "{% set x = 1, 2 %}{{ x }}",
    "{% set x, y = 1 %}",
    "{% set a.b = 1 %}",
    "{% set d.q = 1 %}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set x %}block {{ a }}{% endset %}[{{ x }}]",
    "{% set x | upper %}block {{ s }}{% endset %}[{{ x }}]",
    "{% set x | upper | replace('O', '0') %}foo{% endset %}{{ x }}",
    "{% set x | trim | length %}  foo  {% endset %}{{ x + 1 }}",
    "{% set x, y %}ab{% endset %}{{ x }}-{{ y }}",
    "{% set x = 1 %}{% for i in l %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }};{% endfor %}{{ x }}",
    "{% for i in l %}{{ x }}{% set x = i %}{{ x }};{% endfor %}",
    "{% for i in l %}{% if i == 3 %}{% set x = i %}{% endif %}{{ x }};{% endfor %}",
    "{% for i in l %}{% if i == 3 %}{% set a = i %}{% endif %}{{ a }};{% endfor %}{{ a }}",
    "{% if true %}{% set x = 1 %}{% endif %}{{ x }}",
    "{% if false %}{% set a = 5 %}{% endif %}{{ a }}",
    "{% if false %}{% set x = 5 %}{% endif %}{{ x is defined }}",
    "{% if true %}{% if true %}{% set x = 1 %}{% endif %}{% endif %}{{ x }}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.y = 5 %}{{ ns.y }}{{ ns }}",
    "{% set ns = namespace(a=1) %}{% set ns.a, ns.b = 2, 3 %}{{ ns.a }}{{ ns.b }}",
    "{% set ns.y = 5 %}",
    "{% set ns = namespace(found=false) %}{% for x in m %}{% if x.age == 35 %}{% set ns.found = x.name %}{% endif %}{% endfor %}{{ ns.found }}",
    "{% set ns = namespace() %}{% set ns.x %}captured{% endset %}{{ ns.x }}",
    "{% for i in l %}{{ z }}{% endfor %}{% set z = 1 %}",
    "{% for i in l %}{{ a }}{% endfor %}{% set a = 9 %}{{ a }}",
    "{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 9 %}{{ m() }}",
    "{% macro m() %}{{ a }}{% endmacro %}{{ a }}{{ m() }}{% set a = 9 %}{{ m() }}",
    "{% macro m() %}{% set a = 5 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}",
    "{% macro m(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(y=4, x=0) }} {{ m() }}",
    "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}",
    "{% macro m(x=y, y=1) %}{{ x }}{{ y }}{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{{ x is defined }}{{ x }}{% endmacro %}{{ m() }}{{ m(none) }}",
    "{% macro m(x) %}{{ x.y }}{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(x) %}{% endmacro %}{{ m(y=1) }}",
    "{% macro m(x) %}{{ x }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}{{ m() }}",
    "{% macro m() %}{{ varargs | join(',') }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m() %}{% for k, v in kwargs.items() %}{{ k }}{{ v }}{% endfor %}{% endmacro %}{{ m(a=1, b=2) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ a }}{% endcall %}",
    "{% macro m() %}[{{ caller(1, 2) }}]{% endmacro %}{% call(x, y=5) m() %}{{ x }}{{ y }}{% endcall %}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{{ m() }}",
    "{% macro m() %}no caller{% endmacro %}{% call m() %}x{% endcall %}",
    "{% macro m(caller=none) %}{{ caller is none }}{% endmacro %}{{ m() }}",
    "{% macro m(caller) %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}",
    "{% call nope() %}x{% endcall %}",
    "{% call s %}x{% endcall %}",
    "{% macro m() %}{{ m2() }}{% endmacro %}{% macro m2() %}two{% endmacro %}{{ m() }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f is callable }}{{ f.name }}{{ f }}",
    "{% macro m(x, y=1) %}{{ kwargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}",
    "{% macro m() %}  spaced  {% endmacro %}[{{ m() }}][{{ m() | trim }}]",
    "{% macro m() -%}  trimmed  {%- endmacro %}[{{ m() }}]",
    "{% macro m(x, x) %}{% endmacro %}",
    "{% macro m(x=1, y) %}{% endmacro %}",
    "{% macro m %}{% endmacro %}",
    "{% macro m() %}{% macro inner() %}in{{ a }}{% endmacro %}{{ inner() }}{% endmacro %}{{ m() }}{{ inner is defined }}",
    "{% if true %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}",
    "{% for x in l %}{% macro m() %}{{ x }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% set x = 1 %}{% macro m() %}{% set x = x + 1 %}{{ x }}{% endmacro %}{{ m() }}{{ m() }}{{ x }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
    "{% filter indent(2, true) %}x\ny{% endfilter %}",
    "{% filter nope %}x{% endfilter %}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}{{ x is defined }}",
    "{% with a = 5 %}{{ a }}{% endwith %}{{ a }}",
    "{% with a = 5, q = a %}{{ q }}{% endwith %}",
    "{% with x, y = 1, 2 %}{{ x }}{% endwith %}",
    "{% with (x, y) = (1, 2) %}{{ x }}{{ y }}{% endwith %}",
    "{% generation %}gen {{ a }}{% endgeneration %}",
    "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}",
    "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "  {% generation %}\n  x\n  {% endgeneration %}\ny",
    "{% generation %}x",
    "{% set g = m | map(attribute='name') %}{{ g | list }}{{ g | list }}",
    "{% set g = l | select('gt', 1) %}{% for x in g %}{{ x }}{% endfor %}-{% for x in g %}{{ x }}{% endfor %}",
    "{% set g = l | map('string') %}{{ '1' in g }}{{ g | list }}",
    "{% set g = l | reverse %}{{ g | first }}{{ g | list }}",
    "{% set v = d.items() %}{{ v | list | length }}{{ v | list | length }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{{ cycler() }}",
    "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set j = joiner() %}{{ j() }}{{ j() }}{{ j() }}",
    "{% set x = nope %}{{ x is defined }}{{ x }}",
    "{{ [nope, none] }}",
    "{% set x = a if false %}{{ x is defined }}",
    "{{ s }}{# c1 #}{{ a }}{# c2 -#}   end",
    "{{ 'a' }}\n{{ 'b' }}\n",
    "{%- for x in l %}\n    {{- x }}\n{%- endfor %}\n",
    "{%- for x in l -%}\n    {{ x }}\n{%- endfor -%}\n tail",
    "{% for x in l %}\n{{ x }}\n{% endfor %}\n",
    "{% for x in l %}\n  {% if x == 1 %}\n    one\n  {% else %}\n    other\n  {% endif %}\n{% endfor %}",
    "{% set x = 'a' %}\n\n{% set y = 'b' %}\n\n{{ x }}{{ y }}",
    "{{ raise_exception('Conversation roles must alternate') }}",
    "{% if a == 1 %}{{ raise_exception('a is ' ~ a) }}{% endif %}",
    "{% if a == 2 %}{{ raise_exception('a is ' ~ a) }}{% endif %}fine",
    "{% for x in range(3) %}{% for y in range(x) %}{{ y }}{% endfor %}|{% endfor %}",
    "{{ (1, 2) | tojson }}{{ [1, [2]] | tojson }}",
    "{% set content = '<think>a</think>b' %}{{ content.split('</think>')[-1].lstrip('\\n') }}",
    "{% set x = [] %}{% for i in l %}{% set x = x + [i] %}{% endfor %}{{ x }}",
    "{% set ns = namespace(x=[]) %}{% for i in l %}{% set ns.x = ns.x + [i * 2] %}{% endfor %}{{ ns.x }}",
    "{% set x = {'a': 1} %}{% set x = dict(x, b=2) %}{{ x }}{{ x | tojson }}",
    "{{ '\u00e9\u0301\u1e9e\u0130\u03a3'.lower() }}{{ '\u00e9\u0301\u1e9e\u0149'.upper() }}",
    "{{ ['\\u0378', '\\ue000', '\\u00ad', '\\u2028', '\\ufeff', '\\U000e0001', '\\U0001f9ff'] }}",
    "{% set gr\u00f6\u00dfe = 5 %}{{ gr\u00f6\u00dfe }}",
    "{{ '%s' % ('a', ) }}{{ '%s' % [('a', )] }}",
    "{{ a.__class__ is defined }}{{ nope.__class__ }}",
    "{{ d.__init__ }}",
    "{% set l = l %}{{ l }}",
    "{% for l in l %}{{ l }}{% endfor %}{{ l }}",
    "{% macro m(l) %}{{ l }}{% endmacro %}{{ m(l) }}{{ m(l=a) }}",
    "{% macro tool(t) %}{{ t.name }}{% for p in t.args %} {{ p }}{{ ',' if not loop.last }}{% endfor %}{% endmacro %}{{ tool({'name': 'f', 'args': ['x', 'y']}) }}",
    "{{ m | tojson(indent=2) | indent(4) }}",
    "{% if m[0].tags and m[0].tags[0] == 'x' %}yes{% endif %}",
    "{% if m[3].tags is not defined or not m[3].tags %}no tags{% endif %}",
    "{% set last = m[-1] %}{{ last['name'] ~ '/' ~ last.get('tags', 'none') }}",
    "{% for x in m[::-1] %}{{ loop.index0 }}{{ x.name }}{% endfor %}",
    "{% for x in m[1:] %}{{ x.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{{ m | length - 1 }}",
    "{{ m | length > 2 and m | length < 5 }}",
    "{{ 'a' if m | length == 4 else 'b' }}",
    "{{ (m | selectattr('name', 'equalto', 'Bob') | list)[0].age }}",
    "{{ not 'x' in d }}{{ not 'q' in d and true }}",
    "{{ 'a' ~ 'b' if true else 'c' ~ 'd' }}",
    "{{ - 5 | abs }}{{ -5 | string ~ '!' }}",
    "{{ 2 * 3 ~ 4 }}{{ 2 ~ 3 * 4 }}{{ 1 + 2 ~ 3 }}",
    "{{ a in [1] == true }}",
    "{{ 1 is odd and 2 is even or 3 is string }}",
    "{{ s is string and s | length > 3 }}",
    "{% set x = 5 if a == 1 else 6 %}{{ x }}",
    "{{ [x for x in l] }}",
    "{{ lambda x: x }}",
    "{{ a; b }}",
    "{{ `a` }}",
    "{{ a && b }}",
    "{{ a || b }}",
    "{{ !a }}",
    "{{ a === b }}",
    "{% set x = 1; %}",
    "{% if a = 1 %}{% endif %}",
    "{% for x in l %}{% endfor x %}",
    "{% endset %}",
    "{% set %}",
    "{% macro %}{% endmacro %}",
    "{% else %}",
    "{% if true %}a{% elif %}b{% endif %}",
    "{% block x %}{% endblock %}",
    "{% autoescape true %}{{ html }}{% endautoescape %}",
]

# The last two need tags that are refused although jinja2 has them: keep them out of the goldens.
SNIPPETS = _expressions() + [s for s in _STATEMENTS if not s.startswith(("{% block", "{% autoescape"))]
# These print memory addresses, depend on Python's own objects, or need what is refused on purpose.
_UNSTABLE = {
    "{{ " + e + " }}"
    for e in (
        "s.upper", "keys.get", "d.items", "d | attr('items')", "s | attr('upper')", "d | items",
        "namespace", "range", "lipsum()", "s | random", "self", "'x'.encode()", "d.__len__",
    )
}
SNIPPETS = [s for s in SNIPPETS if s not in _UNSTABLE]


def _tool(name, description, properties, required):
    parameters = {"type": "object", "properties": properties, "required": required}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


_WEATHER = _tool(
    "get_weather",
    "Get the current weather for a city.",
    {
        "city": {"type": "string", "description": "The city's name, e.g. \"Zürich\""},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "integer", "description": "How many days"},
    },
    ["city"],
)
_SEARCH = _tool(
    "search",
    "Search <documents> & more.",
    {
        "query": {"type": "string"},
        "limit": {"type": "number", "default": 2.5},
        "filters": {
            "type": "array",
            "items": {"type": "object", "properties": {"k": {"type": "string"}}},
        },
        "flags": {"type": ["boolean", "null"]},
        "any": {"oneOf": [{"type": "string"}, {"type": "integer", "description": "n"}]},
    },
    [],
)
_NOARGS = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {}}}


def _call(name, arguments, call_id="call00001"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


_SPECIALS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "add_generation_prompt": True,
}


def _user(text):
    return {"role": "user", "content": text}


def _assistant(text, **more):
    return dict({"role": "assistant", "content": text}, **more)


_SYSTEM = {"role": "system", "content": "You are a helpful assistant."}


def _make(messages, **more):
    return dict(_SPECIALS, messages=messages, **more)


CONVERSATIONS = {
    "user": _make([_user("Hi there!")]),
    "user_no_prompt": _make([_user("Hi there!")], add_generation_prompt=False),
    "system": _make([_SYSTEM, _user("What is 2+2?")]),
    "turns": _make(
        [_SYSTEM, _user("One"), _assistant("Two"), _user("Three"), _assistant("Four"), _user("Five?")]
    ),
    "turns_done": _make(
        [_user("One"), _assistant("Two"), _user("Three"), _assistant("Four")],
        add_generation_prompt=False,
    ),
    "unicode": _make(
        [_user("Grüße, 日本語 🎉\u200d👩 \u00a0\u2028x\ty"), _assistant("«Ça va»"), _user("\u0645\u0631\u062d\u0628\u0627")]
    ),
    "whitespace": _make([_user("  leading and trailing \n\n"), _assistant("\n ok \n"), _user("\n")]),
    "empty": _make([_user(""), _assistant(""), _user("")]),
    "markup": _make([_user("<b>&amp;</b> {{ not }} {% a %} <|im_end|> [INST] </s> \"q\" 'q' \\n")]),
    "tools": _make([_SYSTEM, _user("Weather in Bern?")], tools=[_WEATHER, _SEARCH]),
    "tools_one": _make([_user("Weather in Bern?")], tools=[_NOARGS]),
    "tools_empty": _make([_user("Weather in Bern?")], tools=[]),
    "tools_null": _make([_user("Weather in Bern?")], tools=None, documents=None),
    "tool_call": _make(
        [
            _SYSTEM,
            _user("Weather in Bern?"),
            _assistant("", tool_calls=[_call("get_weather", {"city": "Bern", "days": 2, "x": [1, {"y": None}]})]),
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"temp\": 21.5}"},
            _assistant("It is 21.5 degrees."),
            _user("Thanks!"),
        ],
        tools=[_WEATHER],
    ),
    "tool_call_pending": _make(
        [
            _user("Weather in Bern?"),
            _assistant(None, tool_calls=[_call("get_weather", {"city": "Bern"})]),
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "sunny"},
        ],
        tools=[_WEATHER, _SEARCH],
    ),
    "tool_calls_two": _make(
        [
            _user("Two things"),
            _assistant(
                "Let me see.",
                tool_calls=[
                    _call("get_weather", {"city": "Genève", "unit": "celsius"}, "call00001"),
                    _call("search", {"query": "a \"b\"", "limit": 1.0, "flags": True}, "call00002"),
                ],
            ),
            {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "cloudy"},
            {"role": "tool", "name": "search", "tool_call_id": "call00002", "content": "[1, 2]"},
        ],
        tools=[_WEATHER, _SEARCH],
    ),
    "tool_call_string": _make(
        [
            _user("Weather?"),
            _assistant("", tool_calls=[_call("get_weather", "{\"city\": \"Bern\"}")]),
            {"role": "tool", "tool_call_id": "call00001", "content": "ok"},
            _assistant("Done."),
        ],
        tools=[_WEATHER],
        add_generation_prompt=False,
    ),
    "reasoning": _make(
        [
            _user("Think."),
            _assistant("Four.", reasoning_content="2+2\nis 4", thinking="2+2 is 4"),
            _user("More."),
            _assistant("<think>\nhmm\n</think>\n\nFive."),
            _user("Last."),
        ]
    ),
    "thinking_on": _make([_SYSTEM, _user("Think.")], enable_thinking=True, thinking=True, reasoning_effort="high"),
    "thinking_off": _make([_user("Think.")], enable_thinking=False, thinking=False, reasoning_effort="low"),
    "null_content": _make([_user("x"), _assistant(None), _user("y")]),
    "no_content": _make([_user("x"), {"role": "assistant"}, _user("y")]),
    "parts": _make(
        [
            {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image", "image": "x.png"}]},
            _assistant([{"type": "text", "text": "Nice."}]),
            {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
        ]
    ),
    "documents": _make(
        [_SYSTEM, _user("What do they say?")],
        documents=[
            {"title": "One", "text": "First text", "doc_id": 1},
            {"title": "Two", "text": "Second\ntext", "doc_id": 2},
        ],
    ),
    "builtin_tools": _make(
        [_SYSTEM, _user("Use them.")],
        tools=[_WEATHER],
        builtin_tools=["browser", "python"],
        tools_in_user_message=False,
        date_string="14 Jul 2024",
        model_identity="You are a test.",
    ),
    "developer": _make([{"role": "developer", "content": "Be brief."}, _user("Hi")], tools=[_SEARCH]),
    "continue": _make([_user("Finish:"), _assistant("Once upon")], add_generation_prompt=False, continue_final_message=True),
    "system_only": _make([_SYSTEM]),
    "no_messages": _make([]),
    "messages_missing": dict(_SPECIALS),
    "two_systems": _make([_SYSTEM, _user("a"), {"role": "system", "content": "Now be rude."}, _user("b")]),
    "two_users": _make([_user("a"), _user("b")]),
    "assistant_first": _make([_assistant("Hello"), _user("b")]),
    "odd_role": _make([_user("a"), {"role": "critic", "content": "bad"}]),
    "no_bos": {"messages": [_user("plain")], "add_generation_prompt": True},
    "custom": _make([_user("a")], custom_instructions="Pirate.", system_message="S", xml_tools="[]", keep_past_thinking=True),
}

_ROLES = "{%- for message in messages %}\n"

FAMILIES = {
    "chatml": """\
{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
""",
    "chatml_default_system": """\
{%- for message in messages -%}
    {%- if loop.first and messages[0]['role'] != 'system' -%}
        {{ '<|im_start|>system\\nYou are kind.<|im_end|>\\n' }}
    {%- endif -%}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ (message.content or '') | trim ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
""",
    "inst_with_system": """\
{% if messages[0]['role'] == 'system' %}
{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}
{% else %}
{% set loop_messages = messages %}
{% set system_message = false %}
{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}
{% set content = message['content'] %}
{% endif %}
{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}
{{ ' '  + content.strip() + ' ' + eos_token }}
{% endif %}
{% endfor %}
""",
    "inst_tools": """\
{%- if messages and messages[0]["role"] == "system" %}{% set system = messages[0].content %}{% set rest = messages[1:] %}
{%- else %}{% set rest = messages %}{%- endif %}
{%- if not tools is defined %}{% set tools = none %}{% endif %}
{%- set users = rest | selectattr("role", "equalto", "user") | list %}
{{- bos_token }}
{%- for message in rest %}
    {%- if message.role == "user" %}
        {%- if tools is not none and tools and message == users[-1] %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val | tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}{{- ", " if not loop.last else "]" }}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {{- "[INST] " + ((system + "\\n\\n") if loop.last and system is defined else "") + message.content + "[/INST]" }}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for call in message.tool_calls %}
            {%- set out = call.function | tojson %}
            {{- out[:-1] }}
            {%- if call.id is not defined or call.id | length != 9 %}{{- raise_exception("Tool call IDs should be 9 characters") }}{%- endif %}
            {{- ', "id": "' + call.id + '"}' }}{{- ", " if not loop.last else "]" + eos_token }}
        {%- endfor %}
    {%- elif message.role == "assistant" %}{{- " " + message.content | trim + eos_token }}
    {%- elif message.role in ["tool", "tool_results"] %}
        {%- set content = message.content.content if message.content is mapping and message.content.content is defined else message.content %}
        {{- '[TOOL_RESULTS] {"content": ' + content | string + ", " + '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported, got " + message.role) }}{%- endif %}
{%- endfor %}
""",
    "system_prompt_tags": """\
{{- bos_token -}}
{%- set default_system = "Today is " ~ strftime_now("%Y-%m-%d") ~ "." -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}[SYSTEM_PROMPT]{{ message['content'] if message['content'] is string else message['content'][0]['text'] }}[/SYSTEM_PROMPT]
{%- elif message['role'] == 'user' -%}
{%- if loop.index0 == 0 -%}[SYSTEM_PROMPT]{{ default_system }}[/SYSTEM_PROMPT]{%- endif -%}
[INST]
{%- if message['content'] is string -%}{{ message['content'] }}
{%- else -%}
{%- for block in message['content'] -%}
{%- if block['type'] == 'text' -%}{{ block['text'] }}{%- elif block['type'] in ['image', 'image_url'] -%}[IMG]{%- else -%}{{ raise_exception('Only text and image blocks are supported') }}{%- endif -%}
{%- endfor -%}
{%- endif -%}
[/INST]
{%- elif message['role'] == 'assistant' -%}{{ message['content'] }}{{ eos_token }}
{%- else -%}{{ raise_exception('Only user, system and assistant roles are supported!') }}{%- endif -%}
{%- endfor -%}
""",
    "role_tags_newline": """\
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "turn_tokens": """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START_OF_TURN|><|SYSTEM|>' + system_message + '<|END_OF_TURN|>' }}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START_OF_TURN|><|USER|>' + content.strip() + '<|END_OF_TURN|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START_OF_TURN|><|BOT|>'  + content.strip() + '<|END_OF_TURN|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START_OF_TURN|><|BOT|>' }}{% endif %}""",
    "user_assistant_colon": """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\\n\\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}""",
    "reasoner": """\
{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}
{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = ns.system_prompt + ('\\n\\n' if ns.system_prompt else '') + message['content'] %}{%- endif %}{%- endfor %}
{{bos_token}}{{ns.system_prompt}}
{%- for message in messages %}
{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<User>' + message['content']}}{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is none %}{%- set ns.is_tool = false -%}
{%- for tool in message['tool_calls']%}
{%- if not ns.is_first %}{{'<Assistant><calls><call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n```json\\n' + tool['function']['arguments'] | tojson + '\\n```<end>'}}{%- set ns.is_first = true -%}
{%- else %}{{'\\n<call>' + tool['type'] + '<sep>' + tool['function']['name'] + '<end>'}}{{'</calls>'}}{%- endif %}
{%- endfor %}
{%- endif %}
{%- if message['role'] == 'assistant' and message['content'] is not none %}
{%- if ns.is_tool %}{{'</outputs>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}
{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<Assistant>' + content + eos_token}}{%- endif %}
{%- endif %}
{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}
{%- if ns.is_output_first %}{{'<outputs><output>' + message['content'] + '</output>'}}{%- set ns.is_output_first = false %}
{%- else %}{{'\\n<output>' + message['content'] + '</output>'}}{%- endif %}
{%- endif %}
{%- endfor -%}
{% if ns.is_tool %}{{'</outputs>'}}{% endif %}
{% if add_generation_prompt and not ns.is_tool %}{{'<Assistant><think>\\n'}}{% endif %}""",
    "start_of_turn": """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}
""",
    "im_sep": """\
{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}{% generation %}{{message['content'] + '<|im_end|>'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}""",
    "a_chat_between": """\
{%- set roles = {'user': 'USER', 'assistant': 'ASSISTANT'} -%}
{%- if messages and messages[0].role == 'system' -%}{{ messages[0].content.strip() }}{%- else -%}A chat between a curious user and an assistant.{%- endif -%}
{%- for m in messages if m.role in roles %}{{ ' ' if m.role == 'user' else ' ' }}{{ roles[m.role] }}: {{ m.content.strip() }}{{ eos_token if m.role == 'assistant' }}{%- endfor -%}
{%- if add_generation_prompt %} ASSISTANT:{% endif -%}
""",
    "instruction_response": """\
{% for message in messages %}
{% if message['role'] == 'system' %}
{{ message['content']|trim -}}
{% if not loop.last %}


{% endif %}
{% elif message['role'] == 'user' %}
### Instruction:
{{ message['content']|trim -}}
{% if not loop.last %}


{% endif %}
{% elif message['role'] == 'assistant' %}
### Response:
{{ message['content']|trim -}}
{% if not loop.last %}


{% endif %}
{% endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}


### Response:
{% endif %}
""",
    "endoftext_roles": """\
{{ bos_token }}{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
    "header_ids": """\
{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not date_string is defined %}{%- set date_string = strftime_now("%d %b %Y") if strftime_now is defined else "26 Jul 2024" %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have access to the following functions.\\n\\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("This model only supports single tool-calls at once!") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "tool_xml": """\
{%- macro put(message, prefix='<|im_start|>') -%}
{{ prefix ~ message.role }}
{% if caller %}{{ caller(message) }}{% endif %}
<|im_end|>
{% endmacro -%}
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages and messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages and messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- call(m) put(message) -%}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning) -%}
        {{ '<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' }}
        {%- endif -%}
        {{ content }}
        {%- for tool_call in m.tool_calls or [] %}
            {%- set f = tool_call.function if tool_call.function else tool_call %}
            {{- '\\n<tool_call>\\n{"name": "' ~ f.name ~ '", "arguments": ' }}
            {{- f.arguments if f.arguments is string else f.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {%- endcall %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    "python_signatures": """\
{%- set json_to_python = {'string': 'str', 'number': 'float', 'integer': 'int', 'boolean': 'bool'} %}
{%- macro type_of(spec) -%}
{%- if spec.type is string -%}
{%- if spec.type == 'array' -%}List[{{ type_of(spec['items']) if spec['items'] else 'Any' }}]
{%- elif spec.type == 'object' -%}Dict[{{ spec.properties.keys() | sort | join(', ') }}]
{%- else -%}{{ json_to_python.get(spec.type, 'Any') }}{%- endif -%}
{%- elif spec.type is iterable and spec.type is not undefined -%}Union[{{ spec.type | map('default', '?') | join(',') }}]
{%- elif spec.oneOf is defined -%}Union[{% for o in spec.oneOf %}{{ type_of(o) }}{{ ', ' if not loop.last }}{% endfor %}]
{%- else -%}Any{%- endif -%}
{%- endmacro -%}
{% for tool in tools or [] -%}
{%- set f = tool.function -%}
def {{ f.name }}({% for name, spec in (f.parameters.properties or {}).items() %}{{ name }}: {{ type_of(spec) }}{% if name not in (f.parameters.required or []) %} = {{ spec.default | default(none) }}{% endif %}{{ ', ' if not loop.last }}{% endfor %}):
    \"\"\"{{ f.description | wordwrap(20) | indent }}\"\"\"

{% endfor -%}
{% for message in messages -%}
{{ "%-10s|%3d|" | format(message.role, loop.index) }}{{ message.content | default('', true) | string | truncate(30) | e }}
{% endfor %}""",
    "grouped": """\
{%- for role, group in (messages | groupby('role')) %}
{{ loop.index }}. {{ role | upper | center(15, ) }}|{{ group | map(attribute='content') | map('string') | map('length') | list }}
{%- endfor %}
{{ messages | map(attribute='role') | unique | join(' > ') }}
{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }}
{%- for batch in messages | batch(2) %}
{{ loop.cycle('even', 'odd') }}: {{ batch | map(attribute='role') | join('+') }}
{%- endfor %}
{{ messages[-1] | dictsort | map('first') | join(',') if messages else 'nothing' }}
""",
}
