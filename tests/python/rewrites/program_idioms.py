"""What people write with loops and tests, as templates for the random programs: each in several forms.

In a template `$v` is a tensor of shape [4], `$s` one of rank 0, `$n` a Python number, `$test` a test, `$expr` an
expression of shape [4], `$row` the same within a loop over rows `r`, `$stmt` a statement of the generator's, and `#` a
number that no other template has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

SIZES = "a test of a size"  # torch itself takes for granted that a size is not 1, the conversion does not

#: Each form ends in assignments to what every program has, so that what it computes is compared.
IDIOMS: dict[str, tuple[str, ...]] = {
    "a layer by a number of data": (
        "$v = [self.inner, torch.tanh, self.first_row][int($s.abs()) % 3]($expr)",
        "k# = int($s > 0)\n$v = (self.inner, torch.relu)[k#]($v)",
        "$v = {0: torch.sin, 1: self.inner}[int($s > 1)]($expr)",
    ),
    "a number by a number of data": (
        "$v = $v * (0.5, 1.0, 2.0)[int($s.abs()) % 3]",
        "sizes# = [1, 2, 3]\n$n = sizes#[int($s > 0)]",
        "$v = $v + {True: 1.0, False: -1.0}[bool($test)]",
        "$v = $v * {0: 0.5, 1: 2.0}.get(int($s.abs()) % 3, 1.0)",
    ),
    "a tensor by a number of data": (
        "$v = [$expr, $v * 2][($s > 0).long()]",
        "options# = [$expr, $v, w]\n$v = options#[int($s.abs()) % 3 - 1]",
    ),
    "counts by a number of data": (
        "counts# = [0, 0, 0]\nfor r in x:\n    counts#[int(r.argmax()) % 3] += 1\n$v = $v + counts#[1]",
        "sums# = [w * 0.0, w * 1.0]\nfor r in x:\n    k# = int(r.sum() > 1)\n    sums#[k#] = sums#[k#] + $row\n"
        "$v = sums#[0] - sums#[1]",
        "buckets# = [[w], [v]]\nfor r in x:\n    buckets#[int(r.sum() > 1)].append($row)\n"
        "$v = torch.stack(buckets#[0]).sum(0) + torch.stack(buckets#[1]).sum(0)",
        "seen# = {0: 0, 1: 0}\nfor r in x:\n    seen#[int(r[0] > 0)] += 1\n$n = seen#[1]",
    ),
    "the last of a list that the loop fills": (
        "outs# = [$expr]\nfor r in x:\n    outs#.append(outs#[-1] * 0.5 + $row)\n$v = torch.stack(outs#).sum(0)",
        "outs# = [$v * 1.0]\nfor r in x:\n    if $test:\n        outs#.append(outs#[-1] - r)\n"
        "$v = outs#[-1] * len(outs#)",
        "outs# = []\nfor r in x:\n    outs#.append(r if not outs# else outs#[-1] * 0.5 + r)\n"
        "$v = sum(outs#) + $v * 0.0",
        "outs# = [w, v]\nfor r in x:\n    outs#.append(outs#[-1] + outs#[-2] * 0.5 - r)\n$v = outs#[-1]",
        "outs# = [x[0]]\nfor i in range(1, x.shape[0]):\n    outs#.append(outs#[i - 1] * 0.5 + x[i])\n$v = outs#[-1]",
        "st# = [($expr, 1.0)]\nfor r in x:\n    h, c = st#[-1]\n    st#.append((h * 0.5 + r, c + 1.0))\n"
        "$v = st#[-1][0] * st#[-1][1]",
    ),
    "the length of a list that the loop fills": (
        "outs# = [w * 1.0]\nfor r in x:\n    if $test:\n        outs#.append(r * len(outs#))\n"
        "$v = torch.stack(outs#).sum(0)",
        "outs# = [w * 1.0]\nfor r in x:\n    outs#.append(r)\n    if len(outs#) > 2:\n        break\n$v = outs#[-1]",
    ),
    "a list that a break ends": (
        "outs# = [w * 1.0]\nfor r in x:\n    if r.sum() > 2:\n        break\n    outs#.append($row)\n"
        "$v = torch.stack(outs#).sum(0)",
        "outs# = [w * 1.0]\nfor i, r in enumerate(x):\n    outs#.append($row)\n    if $test:\n        break\n"
        "$s = $s + len(outs#)",
    ),
    "map and filter": (
        "$v = sum(map(lambda r: r * 2, x)) + $v",
        "outs# = list(map(lambda r: torch.tanh(r) + $v, x))\n$v = torch.stack(outs# + [w]).sum(0)",
        "outs# = [w] + list(filter(lambda r: r.sum() > 1, x))\n$v = torch.stack(outs#).sum(0)",
        "for a, b in map(lambda r: (r, r.sum()), x):\n    $v = $v * 0.5 + a * b",
        "m# = map(lambda r: r + $v, x)\n$v = $v * 2\n$v = sum(m#) + $v",
    ),
    "reduce and itertools": (
        "$v = functools.reduce(lambda a, b: a * 0.5 + b, x, $expr)",
        "$v = torch.stack(list(itertools.accumulate(x, lambda a, b: a * 0.5 + b, initial=w))).sum(0)",
        "for r in itertools.chain(x, x * 2):\n    $v = $v * 0.5 + $row",
        "for a, b in itertools.pairwise(x):\n    $v = $v + a * b",
        "for a, b in itertools.product(x, (1.0, 2.0)):\n    $v = $v * 0.5 + a * b",
        "for a, b in itertools.combinations(x, 2):\n    $s = $s + (a * b).sum()",
    ),
    "the best so far": (
        "best# = None\nfor r in x:\n    if best# is None or r.sum() > best#.sum():\n        best# = r\n"
        "$v = best# + $v if best# is not None else $v",
        "best#, at# = x.sum(0), 0\nfor i, r in enumerate(x):\n    if r.max() > best#.max():\n"
        "        best#, at# = r, i\n$v = best# * (at# + 1)",
        "top# = float('-inf')\nfor r in x:\n    top# = max(top#, float(r.sum()))\n"
        "$s = $s + (top# if top# > -1e6 else 0.0)",
    ),
    "a word that decides": (
        "mode# = 'sum'\nif $test:\n    mode# = 'mean'\n$v = $v * 2 if mode# == 'sum' else $v - 1",
        "mode# = 'up' if $test else 'down'\nif mode# == 'up':\n    $stmt\nelse:\n    $v = $v * 0.5",
        "state# = 'idle'\nfor r in x:\n    if state# == 'idle' and r.sum() > 1:\n        state# = 'run'\n"
        "    elif state# == 'run':\n"
        "        $v = $v + r",
    ),
    SIZES: (
        "if x.shape[0] > 3:\n    $stmt\nelse:\n    $v = $v * 2",
        "if x.shape[0] % 2 == 0:\n    $v = $expr",
        "$v = $v * 2 if len(x) == 1 else $v - 1",
        "if len(x) in (2, 5):\n    $v = $v + 3\nelif x.shape[0] > 4:\n    $stmt",
        "if x.sum() > 0:\n    if x.shape[0] > 3:\n        $v = $expr\n    else:\n        $v = $v - 1",
        "c# = x.shape[0]\nwhile c# > 1:\n    c# //= 2\n    $v = $v * 0.5",
        "try:\n    assert x.shape[0] > 2\n    $v = $v * 3\nexcept AssertionError:\n    $v = $v - 2",
        "for r in x:\n    if x.shape[0] % 2 and r.sum() > 0:\n        $v = $v * 0.5 + r",
        "if x.shape[0] == 3:\n    $v = $expr",
        "$v = {3: $v, 4: w}.get(x.shape[0], $expr)",
        "if math.sqrt(x.shape[0]) > 1.5 or x.shape[0] * 0.3 > 1:\n    $v = $v - 1",
        "$v = $v * max(x.shape[0] - 2, 0.5) + min(1.5, len(x))",
        "try:\n    $v = $v + 3 / (x.shape[0] - 2)\nexcept ZeroDivisionError:\n    $v = $expr",
        "try:\n    $v = $v + math.log(len(x) - 1)\nexcept ValueError:\n    $v = $v * 2",
        "try:\n    $v = $v + x.unfold(0, 3, 1).sum()\nexcept RuntimeError:\n    $v = $v - 2",
        "with contextlib.suppress(Exception):\n    $v = $v + x.max(0).values + x[1]",
        "try:\n    $v = [$v, w, $expr][x.shape[0] - 1]\nexcept IndexError:\n    $v = $v * 3",
    ),
    "the one of two": (
        "k# = max(int($s), 1.5)\n$v = $v * k# + k# // 2",
        "k# = min($s, 1)\n$v = $v * k#\nk# = max(0.5, $s)\n$v = $v + k#",
        "$n = max(int($s.abs()) % 4, $n)\n$v = $v * $n",
        "k# = max(torch.log($s), 0.25)\n$v = torch.where(k# == k#, $v * 2, $v - 1)",
        "k# = max($v.max(), w.min())\n$v = $v - k#",
    ),
    "seeds": (
        "random.seed(3)\n$v = $v * random.random() if $test else $v + random.random()",
        "random.seed(5)\nif $test:\n    $v = $v * random.random()\n$v = $v + random.random()",
        "random.seed(7)\nfor r in x:\n    $v = $v * 0.5 + r * random.random()",
    ),
    "small statements": (
        "k# = int($s)\n$v = $v * 2 if k# not in (0, 1, 5) else $expr",
        "k# = int($s)\nif k# in {1, 2} or k# in range(-4, 0):\n    $stmt",
        "if $test:\n    t# = $expr\n    $v = $v + t#\n    del t#",
        "h#, *t# = x\n$v = h# + sum(t#) + $v",
        "*t#, h# = [r * 2 for r in x]\n$v = h# - $v * len(t#)",
    ),
    "half of the rows": (
        "for i in range(x.shape[0] // 2):\n    $v = $v * 0.5 + x[i] * x[-i - 1]",
        "for i in range(len(x) // 2, len(x)):\n    $v = $v * 0.5 + x[i]",
        "for a, b in zip(x[: len(x) // 2], x[len(x) // 2 :]):\n    $v = $v * 0.5 + a - b",
        "for i in range(x.shape[0] // 2):\n    if i % 2 == 0:\n        continue\n    $v = $v + x[2 * i]",
    ),
    "deques": (
        "q# = collections.deque([w, v], maxlen=2)\nfor r in x:\n    q#.append(r)\n$v = q#[0] - q#[-1]",
        "q# = collections.deque([w, v])\nq#.appendleft($expr)\nq#.rotate(1)\n$v = q#.popleft() - q#.pop()",
        "q# = collections.deque(maxlen=3)\nfor r in x:\n    q#.append($row)\n$v = sum(q#) + w * 0.0",
        "q# = collections.deque([w])\nwhile q#:\n    t = q#.popleft()\n    if t.sum() > 2 and len(q#) < 3:\n"
        "        q#.append(t * 0.5)\n    $v = $v + t",
    ),
    "sorting": (
        "l# = [w, $expr, v * 0.5]\nl#.sort(key=lambda t: float(t.sum()))\n$v = l#[0] - l#[-1]",
        "l# = sorted([w, $expr], key=lambda t: t.sum(), reverse=True)\n$v = l#[0] * 2 - l#[1]",
        "l# = sorted([float(w.sum()), float($s), 1.0])\n$v = $v * l#[1]",
        "l# = [3, 1, 2]\nl#.sort()\n$v = $v * l#[0] + l#[-1]",
        "l# = sorted(x, key=lambda r: r.sum())\n$v = torch.stack(l# + [w]).sum(0)",
    ),
    "pairs taken apart": (
        "ps# = [(r, r * 2) for r in (v, w)]\na, b = zip(*ps#)\n$v = sum(a) - b[0]",
        "ps# = []\nfor r in x:\n    ps#.append((r, r.sum()))\na, b = zip(*ps#)\n$v = sum(a) * sum(b)",
        "a, *b = [v, w, $expr]\n$v = a + b[0] - b[-1]",
        "*a, b = (v, w)\n$v = a[0] * 0.5 + b",
        "(a, b), c = (v, w), $s\n$v = a - b * c",
        "first, *_, last = x[:1], w, v\n$v = first.sum(0) + last",
    ),
    "names behind and": (
        "if (a# := $v.sum()) > 1 and (b# := w.max()) < a#:\n    $v = $v * b#\nelse:\n    $v = $v - a#",
        "if $test or (a# := $v.sum()) > 2:\n    $stmt\nelse:\n    $v = $v * a#",
        "if not ($test and (a# := $v.max()) > 1):\n    $v = $expr\nelse:\n    $v = $v - a#",
        "c# = 0\nwhile c# < 3 and (a# := $v.sum()) > 1:\n    c# += 1\n    $v = $v / a#",
    ),
    "the first that": (
        "$n = next((i for i, r in enumerate(x) if r.sum() > 1), -1)",
        "$v = next((r for r in x if r.sum() > $s), $v) * 2",
        "$v = $v * next((k for k in range(4) if w[k] > 0), 9)",
        "$v = $v * (2 if any(all(a > -1 for a in r) for r in x) else 3)",
    ),
    "signs of quotients": (
        "k# = int($s) - 3\n$v = $v * (k# // 3) + k# % 4 - (-k#) // 2 + k# % -3",
        "a#, b# = divmod(int($s) - 5, -3)\n$v = $v * a# + b#",
        "a#, b# = divmod(len(x), 2)\n$v = $v * a# + b# - len(x) // -3 + len(x) % -4",
        "a# = ($s * 3).round().item()\n$v = $v + a# // 2 - a# % -3",
    ),
    "memory by a number": (
        "m# = torch.zeros(2, 4)\nfor i, r in enumerate(x):\n    m#[i % 2] = m#[(i + 1) % 2] * 0.5 + r\n$v = m#.sum(0)",
        "m# = [v * 1.0, w * 1.0]\nh# = 0\nfor r in x:\n    if r.sum() > 0:\n        m#[h#] = r\n"
        "        h# = (h# + 1) % 2\n$v = m#[0] - m#[1]",
        "b#, c# = float('inf'), 0\nfor r in x:\n    if r.abs().mean() < b#:\n        b# = r.abs().mean()\n"
        "    else:\n        c# += 1\n        if c# > 1:\n            break\n$v = $v * c#",
    ),
    "entries exchanged": (
        "t# = $v.clone()\nfor j in range(3):\n    if t#[j] > t#[j + 1]:\n"
        "        t#[j], t#[j + 1] = t#[j + 1].clone(), t#[j].clone()\n$v = t#",
        "t# = $v * 1.0\nif t#[0] > t#[1]:\n    t#[0], t#[1] = t#[1], t#[0]\n$v = t#",
        "t# = $v.tolist()\nif t#[0] > t#[1]:\n    t#[0], t#[1] = t#[1], t#[0]\n$v = torch.tensor(t#) * 1.0",
        "t# = x.clone()\nif $test:\n    t#[0], t#[-1] = t#[-1], t#[0]\n$v = t#[0] - t#[-1] * 2",
    ),
    "ways out that meet": (
        "def seek#(rows):\n    for r in rows:\n        for a in r:\n            if a > 1.5:\n                return r\n"
        "            if a < -1.5:\n                break\n        else:\n            continue\n"
        "        if r.sum() > 2:\n            return r * 2\n        break\n    else:\n        return rows[0] - 1\n"
        "    return rows[0]\n$v = seek#(x) + $v",
        "for i in range(3):\n    if $v.max() > i:\n        continue\n    for j in range(2):\n"
        "        if $v.min() < -j:\n            break\n    else:\n        $v = $v - 1\n        break\n"
        "else:\n    $v = $v * 0.5",
    ),
    "an object that decides": (
        "o# = Score($v.sum())\n$v = $v * 2 if o# else $v - 1",
        "o# = Score($s) or Score(w.sum())\n$v = $v * o#.value",
        "if not Score($v.max() - 1) or Score($s):\n    $stmt",
    ),
    "dicts that change": (
        "d# = {'a': v, 'b': w}\nfor key, t in list(d#.items()):\n    d#[key] = t * 0.5 if $test else t\n"
        "$v = d#['a'] - d#['b']",
        "d# = {'a': v}\nd#.setdefault('b', w)\nif $test:\n    d#['b'] = $expr\n$v = d#['a'] + d#.get('b')",
        "d# = {'a': v, 'b': w}\nif $test:\n    d#['a'] = d#.pop('b')\n    d#['b'] = $expr\n$v = d#['a'] - d#['b']",
        "d# = {'a': v, 'b': w}\ndel d#['a']\n$v = sum(d#.values()) + $v",
        "d# = {**{'a': v}, 'b': $expr}\n$v = d#['b'] - d#['a']",
    ),
    "slices with steps": (
        "$v = x[::2].sum(0) - x[1::2].sum(0)",
        "for r in x[::2]:\n    $v = $v * 0.5 + $row",
        "for r in x[1:]:\n    $v = $v * 0.5 + r",
        "y# = x.clone()\ny#[::2] *= 2.0\n$v = y#.sum(0)",
        "$v = $v * 1.0\n$v = $v[1:3].repeat(2)",
        "$v = torch.cat([$v[::2], $v[1::2]])",
    ),
    "functions in functions": (
        "t# = $v * 1.0\ndef add#(a):\n    nonlocal t#\n    t# = t# * 0.5 + a\n    return t#.sum()\n"
        "for r in x:\n    $s = $s + add#(r)\n$v = t#",
        "c# = 0\ndef count#(a):\n    nonlocal c#\n    if a.sum() > 1:\n        c# += 1\n    return a * c#\n"
        "$v = count#(v) + count#(w)\n$n = c#",
        "def outer#(a):\n    def inner#(b):\n        return a * b if a.sum() > 0 else b\n    return inner#\n"
        "$v = outer#(v)(w) + outer#(w)($expr)",
        "def each#(rows):\n    for r in rows:\n        yield r * 0.5\n$v = sum(each#([v, w])) + $expr",
    ),
    "generators": (
        "for r in self.rows_of(x):\n    $v = $v * 0.5 + r",
        "$v = sum(self.rows_of(x)) + $v",
        "$v = torch.stack([*self.rows_of(x), w]).sum(0)",
    ),
    "a match": (
        "match ($s > 0, len(x) > 100):\n    case (_, True):\n        $v = $v * 3\n    case _:\n        $v = $v - 1",
        "match int($s.abs()) % 3:\n    case 0:\n        $v = $v * 2\n    case 1 | 2 if $test:\n        $v = $v - 1\n"
        "    case _:\n        $v = $v + 1",
        "match {'mode': 'a', 'by': 2}:\n    case {'mode': 'a', 'by': b}:\n        $v = $v * b",
    ),
    "what a number is": (
        "b# = bool($test)\n$v = $v * 2 if b# is True else $v - 1",
        "$v = $v - 1 if any(r.sum() > 1 for r in x) is not False else $v * 2",
        "k# = int($s.abs())\n$v = $v * 2 if isinstance(k#, int) and not isinstance(k#, bool) else $v * 50",
        "$v = $v * (2.0 if isinstance($s > 0, torch.Tensor) else 3.0)",
        "t# = $v.sum().item()\n$v = $v * 50 if isinstance(t#, torch.Tensor) or type(t#) is int else $v + t#",
        "c# = 0\nfor r in x:\n    c# += 1 if r.sum() > 1 else 0\n$v = $v * (c# if type(c#) is int else 50)",
    ),
    "patterns": (
        "match (bool($test), len(x) > 100):\n    case (True, False):\n        $v = $v + 1\n"
        "    case (False, _):\n        $v = $v * 2",
        "match [int($s.abs()) % 3, {'a': bool($test)}]:\n    case [0, {'a': True}]:\n        $v = $v + 1\n"
        "    case [m#, {'a': a#}] if m# > 1:\n        $v = $v * m# - 1\n    case _:\n        $v = $v - 1",
        "match Pair($v, int($s > 0)):\n    case Pair(t#, 1):\n        $v = t# * 2\n    case Pair(first=t#):\n"
        "        $v = t# - 1",
        "match $v.sum().item():\n    case float(m#) if m# > 1:\n        $v = $v / m#\n"
        "    case int() | torch.Tensor():\n        $v = $v * 50\n    case _:\n        $v = $v + 1",
        "match bool($test):\n    case True:\n        $v = $expr\n    case False:\n        $v = $v * 0.5",
    ),
    "a try that ends": (
        "try:\n    $v = self.bounded($expr)\nfinally:\n    $s = $s + 1",
        "try:\n    try:\n        $v = self.bounded($v * 3)\n    finally:\n        $s = $s * 2\n"
        "except ValueError:\n    $v = $v - 1",
        "if $s.isnan().any():\n    raise ValueError(f'not a number: {$s} after {len(x)} rows')\n$v = $v + 1",
        "try:\n    $v = {'a': v}['b']\nexcept KeyError as error:\n    $v = $v * len(error.args)",
    ),
    "conversions": (
        "$v = $v * int(bool($s > 0)) + float($s > 1)",
        "$n = int(float($s.abs()) * 2) + int(True)",
        "$v = $v + float(int($s)) * bool($v.sum() > 0)",
        "$v = $v * complex(2.0).real",
        "b# = bool($test)\n$v = $v * (1 + b#) if not b# else -$v",
    ),
    "comparisons in chains": (
        "if -2 < $s < 4 < $v.sum() + 5:\n    $v = $expr",
        "if 0 < len(x) <= 3 < $s + 4:\n    $v = $v * 2",
        "$v = $v * 2 if $v.min() < w.max() > $s else $v - 1",
        "a# = 1 if $s > 0 else 2\nif 0 < a# < 2 or not $test:\n    $stmt",
    ),
    "assignments that add": (
        "b# = Box($v * 1.0, 1)\nfor r in x:\n    b#.value += r\n    b#.count += 1\n$v = b#.value / b#.count",
        "b# = Box($v, 2)\nif $test:\n    b#.value *= 0.5\n    b#.count **= 2\n$v = b#.value * b#.count",
        "l# = [$v * 1.0, 0]\nfor r in x:\n    l#[0] += r\n    l#[-1] += 1\n$v = l#[0] * l#[1]",
        "d# = {'t': $v * 1.0}\nfor r in x:\n    d#['t'] -= $row\n$v = d#['t']",
        "y# = x * 1.0\ny#[0] += 1\ny#[-1] *= 2.0\n$v = y#.sum(0)",
    ),
    "del": (
        "t# = $expr\nif $test:\n    u# = t# * 2\n    $v = u# + v\n    del u#\ndel t#",
        "l# = [v, w, $expr]\ndel l#[1]\n$v = l#[0] - l#[1]",
        "for r in x:\n    t# = r * 2\n    $v = $v * 0.5 + t#\n    del t#",
    ),
    "returns in nested loops": (
        "$v = self.pair_above(x, $s)",
        "$v = self.pair_above(x * 2, 3) + self.first_above(x, $s)",
        "def find#(rows):\n    for i, a in enumerate(rows):\n        for b in rows[:2]:\n"
        "            if (a * b).sum() > 4:\n                return a - b, i\n    return rows.sum(0), -1\n"
        "a, b = find#(x)\n$v = a * b",
    ),
    "modules that call each other": (
        "$v = self.ping($v, 2)",
        "$v = self.inner(self.ping($expr, 1))",
    ),
    "ranges": (
        "for i in range(0, x.shape[0], 2):\n    $v = $v * 0.5 + x[i]",
        "for i in range(len(x) - 1, -1, -1):\n    $v = $v * 0.5 + x[i]",
        "for i in range(x.shape[0] - 1):\n    $v = $v + x[i:i + 2].sum(0)",
        "for i in reversed(range(x.shape[0])):\n    $v = $v * 0.5 + x[i] * i",
        "for i in range(x.shape[0]):\n    for j in range(i):\n        $s = $s + (x[i] * x[j]).sum()",
        "for i in range(1, x.shape[0] + 1):\n    $v = $v * 0.5 + x[-i]",
    ),
    "parts of a tensor": (
        "for c in w.chunk(2):\n    $v = $v + c.sum()",
        "a, b = $v.split(2)\n$v = torch.cat([b, a])",
        "for r in x.unbind(0):\n    $v = $v * 0.5 + $row",
        "for r in torch.unbind(x):\n    $stmt",
        "for a, b in zip(x[:-1], x[1:]):\n    $v = $v + (b if b.sum() > a.sum() else a)",
        "for i, (a, b) in enumerate(zip(x, x * 2)):\n    $v = $v + a * i - b",
    ),
    "rows that are written": (
        "y# = torch.zeros_like(x)\nfor i in range(x.shape[0]):\n    y#[i] = x[i] * 0.5 + $v\n$v = y#.sum(0)",
        "y# = x.clone()\nfor i in range(1, x.shape[0]):\n    y#[i] += y#[i - 1]\n$v = y#.sum(0)",
        "y# = x.clone()\ny#[y# > 0.5] = 0.0\n$v = y#.sum(0)",
        "y# = x.clone()\nif $test:\n    y#[:, 1] = 2.0\n$v = y#.sum(0)",
    ),
    "a named tuple": (
        "p# = Pair($expr, 1)\nfor r in x:\n    p# = Pair(p#.first * 0.5 + r, p#.second + 1)\n$v = p#.first * p#.second",
        "p# = Pair($v, 2)\nif $test:\n    p# = p#._replace(first=$expr)\n$v = p#.first * p#.second",
    ),
    "recursion": (
        "def f#(t, d):\n    if d == 0 or t.sum() > 3:\n        return t\n    return f#(t * 1.5 + 0.1, d - 1)\n"
        "$v = f#($expr, 3)",
        "$v = self.halved($expr, 2)",
    ),
    "helpers with options": (
        "$v = self.scaled($v, by=None if $test else 2.0)",
        "$v = self.scaled($v)",
        "$v = self.summed($v, w, *[r for r in [v, w]], scale=0.5)",
        "f# = functools.partial(self.scaled, by=3.0)\n$v = f#($expr)",
        "fs# = [lambda a, k=k: a * k for k in (1.0, 2.0)]\n$v = fs#[0]($v) + fs#[1](w)",
    ),
    "a loop until it is left": (
        "c# = 0\nwhile True:\n    c# += 1\n    $v = $v * 0.5 + 0.1\n    if c# > 3 or $v.sum() < 1:\n        break",
        "c# = 0\nwhile c# < 4:\n    c# += 1\n    if $test:\n        continue\n    d# = 0\n"
        "    while d# < c# and $v.sum() < 5:\n        d# += 1\n"
        "        $v = $v + 0.3\n$n = c#",
        "for _ in range(4):\n    new# = $v * 0.5\n    if (new# - $v).abs().max() < 0.1:\n        break\n"
        "    $v = new#\nelse:\n    $v = $v + 1.0",
    ),
    "a while that binds a name": (
        "c# = 0\nwhile (m# := $v.abs().max()) > 1 and c# < 3:\n    c# += 1\n    $v = $v / (m# * 0.9 + 0.3)",
        "c# = 0\nwhile (m# := $v.sum()) > 1 and c# < 4:\n    c# += 1\n    if $test:\n        $v = $v - 0.5\n"
        "        continue\n    $v = $v * 0.5 - m# * 0.1\n$s = $s + m#",
    ),
    "try in a loop": (
        "for r in x:\n    try:\n        $v = $v * 0.5 + self.bounded(r)\n    except ValueError:\n"
        "        $v = $v - 1\n    else:\n        $s = $s + 1",
        "for r in x:\n    try:\n        if r.sum() > 2:\n            continue\n        $v = $v * 0.5 + r\n"
        "    finally:\n        $s = $s + 0.5",
        "for r in x:\n    with contextlib.suppress(KeyError):\n        if r.sum() > 1:\n            break\n"
        "    $v = $v + $row",
        "with told():\n    $stmt",
    ),
    "state of the model": (
        "self.steps += 1\n$v = $v * self.steps",
        "self.cache = None\nif $test:\n    self.last = $v * 2\n$v = self.last + w",
        "self.table['k'] = $expr\nif $test:\n    self.table['k'] = $v * 0.5\n$v = self.table.pop('k')",
        "if $test:\n    self.bias.copy_($v)\n$v = self.bias * 2",
        "for r in x:\n    self.bias.mul_(0.5).add_(r)\n$v = self.bias + $v",
    ),
    "names exchanged": (
        "if $test:\n    v, w = w, v",
        "a# = b# = $v * 1.0\na# += 1\n$v = b# + w",
        "a# = $v\nfor r in x:\n    a#, b# = a# * 0.5 + r, a#\n$v = a#",
        "h# = $v * 1.0\nprev# = h#\nfor r in x:\n    prev# = h#\n    h# = h# * 0.5 + r\n$v = h# - prev#",
    ),
    "dicts": (
        "d# = {k: $v * k for k in range(3)}\n$v = sum(d#.values())",
        "d# = {'a': $v, 'b': w}\nfor name, t in d#.items():\n    $s = $s + (t.sum() if $test else t.max())",
        "d# = collections.defaultdict(list)\nfor r in x:\n    d#['rows'].append($row)\n$v = sum(d#['rows']) + $v",
        "d# = dict(a=$v)\nif $test:\n    d#.update(a=$expr)\n$v = d#['a']",
    ),
    "the order of keys": (
        "d# = {'a': $v}\nif $test:\n    d#['b'] = $expr\n    d#['c'] = w\nelse:\n    d#['c'] = $expr\n    d#['b'] = w\n"
        "for t in d#.values():\n    $v = $v * 0.5 + t",
        "d# = {'a': $v, 'b': w}\nif $test:\n    d#['a'] = d#.pop('a') * 2\n"
        "for t in d#.values():\n    $v = $v * 0.5 + t",
    ),
    "an object of two names": (
        "b# = Box($v, 1)\nc# = b# if $test else Box(w, 2)\nc#.count += 1\n$s = $s + b#.count",
        "b# = Box($v, 1)\nb# = b# if $test else Box(w, 2)\nb#.count += 1\n$s = $s + b#.count",
        "t# = $v if $test else w\n$v = t# * 2 if t# is w else t#",
    ),
    "a word chosen by data": (
        "k# = 'a' if $test else 'b'\n$v = {'a': $v, 'b': w * 2}[k#]",
        "f# = torch.tanh if $test else torch.relu\n$v = f#($expr)",
    ),
    "what data lets raise": (
        "k# = int($s.abs()) % 3\ntry:\n    $v = $v / k#\nexcept ZeroDivisionError:\n    $v = $v * 0.0",
        "try:\n    $v = x[int($s.abs())] + $v\nexcept IndexError:\n    $v = w * 2",
    ),
    "iterators and generators": (
        "it# = iter([v, w])\n$v = next(it#) + next(it#)",
        "g# = (r * 2 for r in x)\n$v = sum(g#) + $v",
        "$v = max((r.sum() for r in x), default=$s) + $v",
        "q# = collections.deque([v, w], maxlen=2)\nif $test:\n    q#.append($expr)\n$v = q#[0] - q#[1]",
        "held# = [w * 1.0]\nadd# = held#.append\nif $test:\n    add#($expr)\n$v = torch.stack(held#).sum(0)",
    ),
    "numbers of data": (
        "$n = int($s.abs()) // 2 + 1",
        "a#, b# = divmod(int($s.abs()), 3)\n$v = $v * a# + b#",
        "$v = $v * min(max(float($s), -1.0), 1.0)",
        "$v = x[: int($s.abs()) % 3].sum(0) + $v",
        "$n = sum(1 for r in x if r.sum() > 0)",
        "$n = len([r for r in x if r[0] > 0])",
        "$v = $v / (len(x) + 1)",
    ),
}


def filled(template: str, pick: dict[str, Callable[[], str]], number: int) -> str:
    """A template with its places filled, each by a choice of its own, and its own names."""
    text = template.replace("#", str(number))
    return re.sub(r"\$(\w+)", lambda place: pick.get(place[1], lambda: place[0])(), text)


def statements_of(text: str, make: Callable[[list[str], list[Any]], Any], other: Callable[[], Any]) -> list[Any]:
    """The lines of a template as statements; `else` and its like belong to the one before them.

    :param other: makes what stands for `$stmt`
    """
    lines = text.split("\n")
    made: list[Any] = []
    while lines:
        line = lines.pop(0)
        inner: list[str] = []
        while lines and lines[0].startswith("    "):
            inner.append(lines.pop(0)[4:])
        if line == "$stmt":
            made.append(other())
        elif not inner:
            made.append(make([line], []))
        elif line.startswith(("else:", "elif ", "except ", "finally:")):
            made[-1].heads.append(line)
            made[-1].blocks.append(statements_of("\n".join(inner), make, other))
        else:
            made.append(make([line], [statements_of("\n".join(inner), make, other)]))
    return made
