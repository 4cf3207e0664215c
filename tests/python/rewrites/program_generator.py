"""Makes random programs of Python over tensors for `random_programs.py`: each of a seed, and small.

A program tells which classes of constructs it has: "late binding", "a slice added to", "return in a loop".
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from program_head import HEAD
from program_idioms import IDIOMS, filled, statements_of


@dataclass
class Statement:
    """A line, or the head of blocks: `if`, `else`; `for`; `try`, `except`."""

    heads: list[str]
    blocks: list[list[Statement]] = field(default_factory=list)

    def lines(self, depth: int) -> Iterator[str]:
        """The source."""
        indent = "    " * depth
        if not self.blocks:
            yield from (f"{indent}{head}" for head in self.heads)
            return
        for head, block in zip(self.heads, self.blocks, strict=True):
            yield f"{indent}{head}"
            yield from (line for statement in block for line in statement.lines(depth + 1))
            if not block:
                yield f"{indent}    pass"


@dataclass
class Program:
    """The statements of `forward`, what it returns, and the classes of constructs in it."""

    body: list[Statement]
    returned: str
    classes: frozenset[str] = frozenset()

    def source(self) -> str:
        """The module that holds the model."""
        lines = [line for statement in self.body for line in statement.lines(2)]
        return HEAD + "\n".join([*lines, f"        return {self.returned}"]) + "\n"


Makers = dict[str, Callable[[], Statement]]


class Generator:
    """Makes one program of a seed.

    :param seed: of the choices
    :param size: how many statements there are at most beside those that every program has
    """

    def __init__(self, seed: int, size: int = 4) -> None:
        self._random = random.Random(seed)
        self._size = size
        self._vectors = ["v", "w"]  # tensors of shape [4]
        self._scalars = ["s"]  # tensors of rank 0
        self._numbers = ["n", "k"]  # Python numbers
        self._lists: list[str] = []
        self._row: list[str] = []
        self._index: list[str] = []
        self._functions: list[str] = []
        self._depth = 0
        self._loops = 0
        self._fresh = 0
        self._classes: set[str] = set()

    def program(self) -> Program:
        """The program."""
        start = [
            Statement([f"v = {self._pick(['x[0] * 1.0', 'x.sum(0)', 'self.bias + 1.0', 'x.sum(0) * 0.5'])}"]),
            Statement(["w = x.sum(0) - self.bias"]),
            Statement(["s = x.sum()"]),
            Statement([f"n = {self._pick(['0', '1', '2', '0.5'])}"]),
            Statement([f"k = {self._pick(['1', '3', '2.0'])}"]),
        ]
        body = start + [self._statement() for _ in range(self._random.randint(2, self._size))]
        return Program(body, ", ".join(["v", "w", "s", "x * n", "k", *self._results()]), frozenset(self._classes))

    def _results(self) -> list[str]:
        if not self._lists:
            return []
        name = self._pick(self._lists)
        kinds = {
            "a collected list stacked": f"torch.stack({name})",
            "a collected list summed": f"torch.stack({name}).sum(0)",
            "the length of a collected list": f"len({name})",
            "an element of a collected list": self._pick([f"{name}[-1]", f"{name}[0]"]),
            "a slice of a collected list": f"torch.stack({name}[{self._pick(['1:', ':-1', '::-1', '::2', '-2:'])}])",
            "reversed of a collected list": f"torch.stack(list(reversed({name})))",
            "lists added": f"torch.cat({name} + {self._pick(self._lists)})",
            "sum of a collected list": f"sum({name})",
            "a comprehension over a collected list": f"torch.stack([o * 2 for o in {name}])",
        }
        return [self._of(kinds)]

    def _pick(self, items: list[str]) -> str:
        return self._random.choice(items)

    def _of(self, kinds: dict[str, str]) -> str:
        """One of some texts, by class."""
        name = self._pick([*kinds])
        self._classes.add(name)
        return kinds[name]

    def _new(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    # ------------------------------------------------------------------------------------------ expressions

    def _vector(self) -> str:
        v = self._pick(self._vectors + self._row)
        if self._random.random() < 0.5:
            kinds = [
                v,
                f"{v} + {self._scalar_or_number()}",
                f"{v} * {self._scalar_or_number()}",
                f"{v} - {self._pick(self._vectors + self._row)}",
                f"torch.tanh({v})",
                f"{v}.clone()",
                f"{v} + self.bias",
                f"torch.where({v} > 0, {v}, {self._pick(self._vectors)})",
            ]
            if self._index:
                kinds += [f"x[{self._pick(self._index)}]", f"x[-{self._pick(self._index)} - 1]"]
            return self._pick(kinds)
        classes = {
            "a conditional expression": f"({v} if {self._test()} else {self._pick(self._vectors)} * 2)",
            "max of tensors": f"max({v}.sum(), {self._pick(self._scalars)}) + {v}",
            "a parameter or another": f"(self.bias if {self._test()} else {v})",
            "a module": f"self.inner({v})",
            "a return in a loop of a method": f"self.first_above(x, {self._pick(['0', '3', '100'])})",
            "a star in a call": f"torch.add(*[{v}, w])",
            "a format that decides": f"{v} * (2.0 if f'{{{self._pick(self._numbers)} > 1}}' == 'True' else 3.0)",
            "a dict by a test": f"{{'a': {v}, 'b': w}}['a' if {self._test()} else 'b']",
        }
        if self._functions:
            classes |= {"late binding": f"{self._pick(self._functions)}() + {v}"}
        return self._of(classes)

    def _scalar(self) -> str:
        v = self._pick(self._vectors + self._row)
        s = self._pick(self._scalars)
        kinds = {
            "plain scalars": self._pick([f"{v}.sum()", f"{v}.max()", f"{s} * 0.5", f"{v}[1] + {s}"]),
            "numbers beside tensors": f"{s} + {self._number()}",
            "`or` as a value": f"({s} or {v}.sum())",
            "`and` as a value": f"({s} > 0 and {s} + 1.0) * 1.0",
            "min of tensors": f"min({s}, {v}.mean())",
            "sum of a generator": "sum(r.sum() for r in x)",
            "max with a default": "max([r.max() for r in x] + [s])",
            "a sum with a filter": "sum(r.sum() for r in x if r[0] > 0) + s * 0.0",
        }
        return self._of(kinds)

    def _number(self) -> str:
        n = self._pick(self._numbers + self._index)
        return self._pick(
            [n, f"{n} + 1", f"{n} * 2", f"{n} - 1", f"{n} // 2", f"{n} % 3", "2", "0.5", f"({n} + 1) / 2"]
        )

    def _scalar_or_number(self) -> str:
        return self._pick([*self._scalars, *self._numbers, self._number(), "0.5"])

    def _test(self) -> str:
        v, s = self._pick(self._vectors + self._row), self._pick(self._scalars)
        kinds = {
            "a test": self._pick([f"{s} > 0", f"{v}.sum() > 0.5", f"{v}.max() > {v}.mean() * 2", f"bool({v}[2] > 0)"]),
            "a test with `and`, `or`, `not`": self._pick(
                [f"{s} > 0 and {v}[0] < 1", f"not {v}.sum() > 0", f"{s} < 1 or {v}.min() < -0.5"]
            ),
            "a chained comparison": f"0 < {s} < 4",
            "a test of a number": self._pick([f"{self._pick(self._numbers)} > 1", f"{self._pick(self._numbers)} % 2"]),
            "any and all": self._pick(["any(r.sum() > 1 for r in x)", "all((r < 2).all() for r in x)"]),
            "a test that Python knows": self._pick(["x.dim() == 2", "self.cache is None", "len(x) > 2"]),
            "a walrus": f"({self._walrus()} := {v}.sum()) > 1",
        }
        return self._of(kinds)

    def _walrus(self) -> str:
        return self._pick(["s", self._new("t")])

    # ------------------------------------------------------------------------------------------ statements

    def _block(self, count: int) -> list[Statement]:
        return [self._statement() for _ in range(count)]

    def _statement(self) -> Statement:
        chosen = self._random.random()
        if self._depth < 2 and chosen < 0.3:
            return self._idiom()
        if self._depth == 0 and chosen < 0.5:
            return self._made({**self._state(), **self._unpacking()})
        if self._depth >= 2 or chosen < 0.72:
            return self._simple()
        return self._nested()

    def _made(self, makers: Makers) -> Statement:
        name = self._pick([*makers])
        self._classes.add(name)
        return makers[name]()

    def _simple(self) -> Statement:
        if self._random.random() < 0.5:
            kinds = [
                f"{self._pick(self._vectors)} = {self._vector()}",
                f"{self._pick(self._vectors)} = {self._vector()}",
                f"{self._pick(self._scalars)} = {self._scalar()}",
            ]
            return Statement([self._pick(kinds)])
        makers: Makers = {
            "a number that changes": lambda: Statement([f"{self._pick(self._numbers)} = {self._number()}"]),
            "a number added to": lambda: Statement([f"{self._pick(self._numbers)} += {self._pick(['1', '2', '0.5'])}"]),
            "numbers exchanged": lambda: Statement([f"n, k = k, n + {self._pick(['1', 'k'])}"]),
            "a change in place": self._in_place,
            "a slice added to": self._slice,
            "an alias": lambda: Statement([self._pick(["v = w", "w = v", "v = w.view(4)", "w = v[:]"])]),
            "an attribute": self._attribute,
            "a buffer changed": lambda: Statement(
                [f"self.bias {self._pick(['+=', '*='])} {self._scalar_or_number()} * 0.1"]
            ),
            "an assertion": lambda: Statement([f"assert {self._test()}, 'no'"]),
        }
        if self._lists:
            makers["an append"] = lambda: Statement([f"{self._pick(self._lists)}.append({self._vector()})"])
        if self._loops:
            makers["break"] = lambda: Statement([f"if {self._test()}:"], [[Statement(["break"])]])
            makers["continue"] = lambda: Statement([f"if {self._test()}:"], [[Statement(["continue"])]])
            makers["return in a loop"] = lambda: Statement([f"if {self._test()}:"], [[self._return()]])
        return self._made(makers)

    def _return(self) -> Statement:
        return Statement([f"return v, w, s, x * n, k{', v' if self._lists else ''}"])

    def _nested(self) -> Statement:
        self._depth += 1
        known = [list(names) for names in (self._row, self._index)]
        makers: Makers = {
            "if": self._if,
            "if and else": self._if_else,
            "for": self._for,
            "for over rows": self._for,
            "while": self._while,
            "try": self._try,
            "with": self._with,
            "match": self._match,
        }
        try:
            return self._made(makers)
        finally:
            self._row, self._index = known
            self._depth -= 1

    def _in_place(self) -> Statement:
        v = self._pick(self._vectors)
        kinds = [
            f"{v} += {self._pick([*self._scalars, '1.0', *self._vectors])}",
            f"{v}.mul_(0.5)",
            f"{v}[{self._random.randint(0, 3)}] = {self._pick([*self._scalars, '2.0'])}",
        ]
        return Statement([self._pick(kinds)])

    def _slice(self) -> Statement:
        v = self._pick(self._vectors)
        return Statement(
            [self._pick([f"{v}[1:3] += 1.0", f"{v}[:2] *= {self._pick(self._scalars)}", f"{v}[::2] -= 0.5"])]
        )

    def _attribute(self) -> Statement:
        read = f"{self._pick(self._vectors)} = self.last * 0.5"
        return Statement([f"self.last = {self._pick(self._vectors)}", *([read] if self._random.random() < 0.7 else [])])

    def _if(self) -> Statement:
        block = self._block(self._random.randint(1, 2))
        if self._random.random() < 0.12:
            block.append(self._return())
        return Statement([f"if {self._test()}:"], [block])

    def _if_else(self) -> Statement:
        heads, blocks = [f"if {self._test()}:", "else:"], [self._block(self._random.randint(1, 2)), self._block(1)]
        if self._random.random() < 0.2:
            heads, blocks = [heads[0], f"elif {self._test()}:", "else:"], [blocks[0], self._block(1), blocks[1]]
        if self._random.random() < 0.1:
            self._classes.add("raise")
            blocks[-1] = [Statement(["raise ValueError('no')"])]
        return Statement(heads, blocks)

    def _for(self) -> Statement:
        row, index = self._new("r"), self._new("i")
        heads: dict[str, tuple[str, str | None, str | None]] = {
            "rows": (f"for {row} in x:", row, None),
            "enumerate of rows": (f"for {index}, {row} in enumerate(x):", row, index),
            "a range of a size": (f"for {index} in range(x.shape[0]):", None, index),
            "a range with a start": (f"for {index} in range(1, len(x)):", None, index),
            "reversed rows": (f"for {row} in reversed(x):", row, None),
            "zip of rows": (f"for {row}, _ in zip(x, x * 2):", row, None),
            "a range that Python knows": (f"for {index} in range(3):", None, None),
            "a slice of rows": (f"for {row} in x[{self._pick(['1:', ':-1', '::2'])}]:", row, None),
            "no rows": (f"for {row} in x[:0]:", row, None),
            "rows of a generator": (f"for {row} in self.rows_of(x):", row, None),
            "numbers of tolist": (f"for {index} in x[:, 0].tolist():", None, None),
            "a range of tensor data": (f"for {index} in range(int(x.abs().sum()) % 4):", None, None),
        }
        name = self._pick([*heads])
        self._classes.add(name)
        head, row_name, index_name = heads[name]
        self._row += [row_name] if row_name else []
        self._index += [index_name] if index_name else []
        self._loops += 1
        body = self._block(self._random.randint(1, 2))
        self._loops -= 1
        if self._random.random() < 0.12:
            self._classes.add("for … else")
            return Statement([head, "else:"], [body, self._block(1)])
        return Statement([head], [body])

    def _while(self) -> Statement:
        count, s = self._new("c"), self._pick(self._scalars)
        tests = [
            f"{count} < 3",
            f"{s} < 3 and {count} < 4",
            f"v.sum() < 2 and {count} < 5",
            f"({count} := {count} + 1) < 3",
        ]
        test = self._pick(tests)
        self._loops += 1
        body = [*([] if ":=" in test else [Statement([f"{count} += 1"])]), *self._block(self._random.randint(1, 2))]
        self._loops -= 1
        loop = Statement([f"while {test}:"], [body])
        if self._random.random() < 0.15:
            self._classes.add("while … else")
            loop = Statement([f"while {test}:", "else:"], [body, self._block(1)])
        return Statement(["if True:"], [[Statement([f"{count} = 0"]), loop]])

    def _try(self) -> Statement:
        caught = self._pick(["ValueError", "AssertionError", "(ValueError, AssertionError)", "KeyError", "KeyError"])
        block = self._block(self._random.randint(1, 2))
        if self._random.random() < 0.4:
            self._classes.add("an exception of a method")
            block.append(Statement([f"{self._pick(self._vectors)} = self.bounded({self._vector()})"]))
        heads, blocks = ["try:", f"except {caught}:"], [block, self._block(1)]
        if self._random.random() < 0.3:
            heads, blocks = [*heads, "else:"], [*blocks, self._block(1)]
        if self._random.random() < 0.3:
            self._classes.add("finally")
            heads, blocks = [*heads, "finally:"], [*blocks, [Statement(["w = w + 1.0"])]]
        return Statement(heads, blocks)

    def _with(self) -> Statement:
        managers = {
            "suppress": "contextlib.suppress(ValueError, AssertionError)",
            "a manager that swallows": "Quiet(True)",
            "a manager that does not": "Quiet(False)",
            "no_grad": "torch.no_grad()",
            "nullcontext": "contextlib.nullcontext()",
        }
        return Statement([f"with {self._of(managers)}:"], [self._block(self._random.randint(1, 2))])

    def _match(self) -> Statement:
        heads = self._pick(["match n:", "match v.dim():", "match (x.dim(), k):"])
        first = {"match n:": "case 0 | 1:", "match v.dim():": "case 1:", "match (x.dim(), k):": "case (2, other):"}[
            heads
        ]
        cases = Statement([first, "case _:"], [self._block(1), self._block(1)])
        return Statement([heads], [[cases]])

    # ------------------------------------------------------------------------------------------ idioms

    def _idiom(self) -> Statement:
        """What people write, in one of its forms."""
        name = self._pick([*IDIOMS])
        self._classes.add(name)
        self._depth += 1
        self._fresh += 1
        names: dict[str, Callable[[], str]] = {
            "v": lambda: self._pick(["v", "w"]),
            "s": lambda: "s",
            "n": lambda: self._pick(["n", "k"]),
            "test": self._test,
            "expr": self._vector,
            "row": lambda: self._pick(["r", "r * 2", "torch.tanh(r)", f"r + {self._pick(self._vectors)}"]),
        }
        template = filled(self._random.choice(IDIOMS[name]), names, self._fresh)
        block = statements_of(template, Statement, self._statement)
        self._depth -= 1
        return Statement(["if True:"], [block])

    # ------------------------------------------------------------------------------------------ state

    def _state(self) -> Makers:
        return {
            "a lambda": self._closure,
            "a nested function": self._closure,
            "functions in a list": self._functions_in_a_list,
            "a list": self._make_list,
            "a list that a loop fills": self._filled,
            "nested lists": self._nested_lists,
            "a comprehension": self._comprehension,
            "a dict": self._dict,
            "an object": self._box,
            "a dataclass": self._dataclass,
            "nonlocal": self._nonlocal,
        }

    def _unpacking(self) -> Makers:
        return {
            "star-unpacking": lambda: Statement([f"v, *rest = {self._vector()}, w, s", "w = rest[0] + 1.0"]),
            "star-unpacking of a list": lambda: Statement(["*_, v = [w, " + self._vector() + "]"]),
            "a number of tensor data": lambda: Statement(
                [f"n = {self._pick(['int(s)', 'float(v.sum())', 'round(2.4)'])}"]
            ),
            "a cache that is filled": lambda: Statement(
                ["if self.cache is None:"], [[Statement(["self.cache = w * 1.0"])]]
            ),
            "a float of tensor data": lambda: Statement(["w = w * float(v.sum())"]),
            "numbers in a list": lambda: Statement(["sums = [float(r.sum()) for r in x]", "s = s + max([*sums, 0.0])"]),
        }

    def _closure(self) -> Statement:
        name = self._new("f")
        body = self._vector()
        self._functions.append(name)
        if self._random.random() < 0.5:
            return Statement([f"{name} = lambda: {body}"])
        return Statement([f"def {name}():"], [[Statement([f"return {body}"])]])

    def _functions_in_a_list(self) -> Statement:
        name, index = self._new("fs"), self._new("i")
        loop = Statement([f"for {index} in range(2):"], [[Statement([f"{name}.append(lambda: v * ({index} + 1))"])]])
        last = Statement([f"w = w + {name}[0]()"])
        return Statement(["if True:"], [[Statement([f"{name} = []"]), loop, *self._block(1), last]])

    def _nonlocal(self) -> Statement:
        name = self._new("f")
        inner = Statement([f"def {name}(r):"], [[Statement(["nonlocal v"]), Statement(["v = v * 0.5 + r"])]])
        row = self._new("r")
        call = self._pick([f"for {row} in x:", f"if {self._test()}:"])
        use = Statement([call], [[Statement([f"{name}({row if call.startswith('for') else 'w'})"])]])
        return Statement(["if True:"], [[inner, use]])

    def _make_list(self) -> Statement:
        name = self._new("outs")
        self._lists.append(name)
        return Statement([f"{name} = [{self._pick(['v', 'w * 2', 'v + 1', 'w'])}]"])

    def _filled(self) -> Statement:
        name, row = self._new("outs"), self._new("r")
        self._row.append(row)
        element, kept = self._vector(), self._test()
        self._row.remove(row)
        append = Statement([f"{name}.append({element})"])
        step = append if self._random.random() < 0.7 else Statement([f"if {kept}:"], [[append]])
        update = [Statement([f"v = v * 0.5 + {row}"])] if self._random.random() < 0.5 else []
        start = self._pick(["[]", "[w * 1.0]", "[w, v]"]) if not step.blocks else "[w * 1.0]"
        self._lists.append(name)
        loop = Statement([f"for {row} in x:"], [[*update, step]])
        return Statement(["if True:"], [[Statement([f"{name} = {start}"]), loop]])

    def _nested_lists(self) -> Statement:
        name, row = self._new("pairs"), self._new("r")
        kinds = {
            "pairs that a loop collects": (f"{name}.append(({row}, {row}.sum()))", f"s = s + {name}[-1][1]"),
            "lists in a list": (f"{name}.append([{row}, v])", f"w = w + {name}[0][0]"),
        }
        chosen = self._pick([*kinds])
        self._classes.add(chosen)
        step, use = kinds[chosen]
        loop = Statement([f"for {row} in x:"], [[Statement([step])]])
        return Statement(["if True:"], [[Statement([f"{name} = []"]), loop, Statement([use])]])

    def _dict(self) -> Statement:
        name, row = self._new("d"), self._new("r")
        update = f"{name}['h'] = {name}['h'] * 0.5 + {row}"
        body = [Statement([self._pick([update, f"{name}['h'] += {row}"])]), Statement([f"{name}['n'] += 1"])]
        loop = Statement([self._pick([f"for {row} in x:", f"for {row} in x[1:]:"])], [body])
        last = Statement([f"v = {name}['h'] * {name}['n']"])
        return Statement(["if True:"], [[Statement([f"{name} = {{'h': v, 'n': 0}}"]), loop, last]])

    def _box(self) -> Statement:
        name, row = self._new("b"), self._new("r")
        step = self._pick(
            [f"{name} = Box({name}.value + {row}, {name}.count + 1)", f"{name}.value = {name}.value * 0.5 + {row}"]
        )
        loop = Statement([f"for {row} in x:"], [[Statement([step])]])
        last = Statement([f"w = {name}.value * {name}.count"])
        return Statement(["if True:"], [[Statement([f"{name} = Box(w, 1)"]), loop, last]])

    def _dataclass(self) -> Statement:
        name, row = self._new("st"), self._new("r")
        step = self._pick(
            [f"{name} = dataclasses.replace({name}, hidden={name}.hidden + {row})", f"{name}.hidden = {row}"]
        )
        block = [Statement([step]), Statement([f"{name}.steps += 1"])]
        inner = [Statement([f"if {self._test()}:"], [block])] if self._random.random() < 0.5 else block
        loop = Statement([f"for {row} in x:"], [inner])
        last = Statement([f"w = {name}.hidden * {name}.steps"])
        return Statement(["if True:"], [[Statement([f"{name} = State(w)"]), loop, last]])

    def _comprehension(self) -> Statement:
        name = self._new("outs")
        self._lists.append(name)
        kinds = {
            "over rows": "[r * 2 for r in x]",
            "with an outer variable": "[r + v for r in x]",
            "with a filter": "[r for r in x if r.sum() > -100]",
            "a filter that leaves out": "[v] + [r for r in x if r.sum() > 1]",
            "with a test": "[r if r.sum() > 0 else w for r in x]",
            "over a range": "[x[i] * i for i in range(len(x))]",
            "over pairs": "[a + b * 2 for a, b in zip(x, x[1:])] + [v]",
            "with a walrus": "[t for r in x if (t := r * 2).sum() > -100]",
        }
        return Statement([f"{name} = {self._of(kinds)}"])
