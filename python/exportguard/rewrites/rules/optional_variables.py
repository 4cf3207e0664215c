"""A local variable that may be None gets a second one beside it, which says whether it has a value.

start = None                          start = None
for i, row in enumerate(x):           start, _has_start = _rt.apart_from_none(start)
    if start is None and …:     →     for i, row in enumerate(x):
        start = i                         if not _has_start and …:
x[start]                                      start = i
                                              start, _has_start = _rt.apart_from_none(start)
                                      x[_rt.given(start, _has_start)]

A graph has no None, but it has a truth value beside a number or a tensor: what stands for the value where there is none
is never read, for a run ends that would. A function that may return None returns both, and what calls it is rewritten,
too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.reading import copied
from exportguard.source.walking import Transformer, located, walked

ORDER = -5

#: Methods that have something hold their arguments.
_ADDING = frozenset(("add", "append", "insert", "setdefault"))


def apply(unit: Unit) -> None:
    """Rewrites the variables that are assigned None and asked for it, and what is returned, if the unit is to tell
    where they are None."""
    if not unit.tells_nones:
        return
    located(unit.node)
    outside = scope.Outside(unit.node, unit.original)
    rewriter = _Variables(unit, outside)
    for value in _held(unit.node, outside):
        build.mark_held(value)
    unit.node.body = rewriter.body_of(unit.node)
    if rewriter.told or rewriter.has_pairs:
        unit.note(unit.node, f"{' and '.join(sorted(rewriter.told)) or 'what is returned'} may be None")


def _held(function: ast.FunctionDef, outside: scope.Outside) -> Iterator[ast.expr]:
    """The expressions of which a list, a tuple, a dict or an attribute is to hold the values, or a function of the
    model's is handed them."""
    for node in walked(function):
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            yield from node.elts
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            yield node.elt
        elif isinstance(node, ast.Dict):
            yield from node.values
        elif isinstance(node, ast.DictComp):
            yield node.value
        elif isinstance(node, ast.Call) and _takes_none(node, outside):
            yield from (*node.args, *(keyword.value for keyword in node.keywords))
        elif isinstance(node, ast.Assign) and not any(isinstance(t, ast.Tuple | ast.List) for t in node.targets):
            yield node.value


def _takes_none(node: ast.Call, outside: scope.Outside) -> bool:
    """Whether a function that is called may be the model's own, or has something hold its arguments."""
    if isinstance(node.func, ast.Attribute):
        base = node.func.value
        is_own = isinstance(base, ast.Name) and base.id == outside.first
        return is_own or node.func.attr in _ADDING
    return isinstance(node.func, ast.Name) and _may_be_models(node, outside)


def _optional(function: ast.FunctionDef, outside: scope.Outside) -> frozenset[str]:
    """The variables of a function that are asked for None, or given it, and that statements of it alone bind."""
    nodes = walked(function)
    asked = {name for node in nodes if isinstance(node, ast.Compare) and (name := _asked(node)) is not None}
    assigned = [node for node in scope.walk_scope(function.body) if isinstance(node, ast.Assign)]
    given = {name for node in assigned for name in (*_given_none(node), *_given_by_a_call(node, outside))}
    own = {*scope.assigned(function.body), *scope.parameters(function)}
    found = ((asked & own) | given) - _bound_elsewhere(function, nodes)
    return frozenset(name for name in found if _flag(name) not in own)  # which is the model's own name there


def _asked(node: ast.Compare) -> str | None:
    """The variable of `v is None` and `v is not None`."""
    return node.left.id if _is_asked(node) and isinstance(node.left, ast.Name) else None


def _is_asked(node: ast.Compare) -> bool:
    return len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and _is_none(node.comparators[0])


def _given_none(node: ast.Assign) -> Iterator[str]:
    for target in node.targets:
        if isinstance(target, ast.Name) and (any(map(_is_none, _chosen(node.value))) or _drawn(node.value)):
            yield target.id
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            yield from (part.id for part, value in pairs if isinstance(part, ast.Name) and _is_none(value))


def _drawn(value: ast.expr) -> ast.GeneratorExp | None:
    """The generator of `next((… for … in …), None)`."""
    is_next = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "next"
    if not is_next or value.keywords or len(value.args) != 2 or not _is_none(value.args[1]):  # type: ignore[attr-defined]
        return None
    if any(isinstance(node, ast.Lambda) for node in walked(value)):  # whose parameters may be called as what is drawn
        return None
    drawn = value.args[0]  # type: ignore[attr-defined]
    return drawn if isinstance(drawn, ast.GeneratorExp) and len(drawn.generators) == 1 else None


def _given_by_a_call(node: ast.Assign, outside: scope.Outside) -> Iterator[str]:
    """The variables that are what a function of the model's may return: None is no error there."""
    if any(_may_be_models(part, outside) for part in _chosen(node.value)):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _may_be_models(node: ast.expr, outside: scope.Outside) -> bool:
    """Whether an expression calls a function that may be the model's."""
    return isinstance(node, ast.Call) and scope.may_be_function(outside.meant(node.func))


def _chosen(value: ast.expr) -> list[ast.expr]:
    """What an expression may be."""
    return [*_chosen(value.body), *_chosen(value.orelse)] if isinstance(value, ast.IfExp) else [value]


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _bound_elsewhere(function: ast.FunctionDef, nodes: Sequence[ast.AST]) -> set[str]:
    """Names that something else than the statements which this rule knows binds."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif isinstance(node, ast.NamedExpr):
            found.add(node.target.id)
        elif isinstance(node, ast.Delete):
            found.update(name for target in node.targets for name in _bound(target))
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(scope.assigned([node]))
        elif isinstance(node, ast.FunctionDef) and node is not function:
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found.update([node.name, *scope.assigned(node.body)])
    return found


def _bound(target: ast.AST) -> list[str]:
    """The variables that a target binds."""
    return [node.id for node in walked(target) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)]


def _flag(name: str) -> str:
    return f"_has_{name}"


def _parted(names: Sequence[str], where: ast.AST) -> list[ast.stmt]:
    """`v, _has_v = apart_from_none(v)` for each name."""
    made: list[ast.stmt] = []
    for name in dict.fromkeys(names):
        targets = ast.Tuple([build.store(name), build.store(_flag(name))], ast.Store())
        made.append(ast.Assign([targets], build.call("apart_from_none", build.load(name))))
    return [located(ast.copy_location(statement, where)) for statement in made]


def _of_one_tuple(node: ast.Assign) -> ast.Tuple | None:
    """The target of an assignment of as many values as places, without a star."""
    (target, *others), value = node.targets, node.value
    if others or not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return None
    has_star = any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
    return None if has_star or len(target.elts) != len(value.elts) else target


_Facts = tuple[frozenset[str], frozenset[str]]  # which variables have a value where a test holds, and where it fails
_NO_FACTS: _Facts = (frozenset(), frozenset())


def _is_there(name: str, where: ast.AST) -> ast.stmt:
    """`_has_v = True`"""
    return located(ast.copy_location(ast.Assign([build.store(_flag(name))], ast.Constant(True)), where))


class _Variables(Transformer):
    """Gives each variable its flag; what a test of it says is known in the blocks that it leads to."""

    def __init__(self, unit: Unit, outside: scope.Outside) -> None:
        self._unit = unit
        self._names: frozenset[str] = frozenset()  # the variables that may be None in the scope that is visited
        self.told: frozenset[str] = frozenset()  # those of all scopes
        self._outside = outside
        self._there: frozenset[str] = frozenset()  # the variables that have a value at the place that is visited
        self._returns_pairs = False  # whether the function that is visited returns a value and whether it is there
        self.has_pairs = False  # whether a function does

    def body_of(self, function: ast.FunctionDef) -> list[ast.stmt]:
        """The statements of a function; those of one that may return None are of a function in it."""
        before = self._names, self._there, self._returns_pairs
        local = {*scope.assigned(function.body), *scope.parameters(function)}
        local -= {*scope.declared(function.body, ast.Nonlocal), *scope.declared(function.body, ast.Global)}
        own = _optional(function, self._outside)
        self.told |= own
        self._names, self._there = (self._names - local) | own, frozenset()
        self._returns_pairs = self._may_return_none(function)
        first = _parted([name for name in scope.parameters(function) if name in own], function.body[0])
        body = [*first, *self.block(function.body)]
        if self._returns_pairs:
            self.has_pairs = True
            body = self._in_a_function(function, body)
        self._names, self._there, self._returns_pairs = before
        return body

    def _may_return_none(self, function: ast.FunctionDef) -> bool:
        inside = [*scope.walk_scope(function.body)]
        if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in inside):
            return False
        values = [node.value or ast.Constant(None) for node in inside if isinstance(node, ast.Return)]
        chosen = [part for value in values for part in _chosen(value)]
        if all(map(_is_none, chosen)):
            return False
        falls_through = not scope.always_leaves(function.body)
        return falls_through or any(map(self._may_be_none, chosen))

    def _in_a_function(self, function: ast.FunctionDef, body: list[ast.stmt]) -> list[ast.stmt]:
        """`def _pair_3_4(…): …` and `return perhaps(_pair_3_4(…))`."""
        nothing = ast.Return(ast.Tuple([build.runtime("NOTHING"), ast.Constant(False)], ast.Load()))
        ending = [] if scope.always_leaves(body) else [nothing]
        names = scope.parameters(function)
        name = f"_pair_{self._unit.place(function)}"
        made = ast.FunctionDef(name, build.arguments(names), [*body, *ending], [])
        setattr(made, "type_params", [])  # noqa: B010 - a field from Python 3.12 on
        call = build.call("perhaps", ast.Call(build.load(name), [*map(build.load, names)], []))
        return [located(ast.copy_location(part, function)) for part in (made, ast.Return(call))]

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """The statements, visited in their order."""
        made: list[ast.stmt] = []
        for statement in statements:
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        return made

    def _of(self, targets: Sequence[ast.AST]) -> list[str]:
        return [name for target in targets for name in _bound(target) if name in self._names]

    # -------------------------------------------------------------------------------------- what binds them

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        names = self._of(node.targets)
        drawn = _drawn(node.value) if names and self._outside("next") is next else None
        if drawn is not None:
            return self._first(drawn, node)
        if names and (target := _of_one_tuple(node)) is not None:
            return self._one_by_one(target, node)
        if names and isinstance(node.value, ast.IfExp) and any(map(self._may_be_none, _chosen(node.value))):
            return self._as_branches(node)
        source = node.value.id if self._is_own(node.value) else None  # type: ignore[attr-defined]
        if source is not None and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) and names:
            self._there = self._there - {*names} | ({*names} if source in self._there else set())
            flag = ast.Assign([build.store(_flag(names[0]))], build.load(_flag(source)))
            return [node, located(ast.copy_location(flag, node))]
        are_variables = all(isinstance(target, ast.Name) for target in node.targets)
        node.value = self._value_of(node.value) if names and are_variables else self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        self._there -= {*names}
        return [node, *_parted(names, node)]

    def _one_by_one(self, target: ast.Tuple, node: ast.Assign) -> list[ast.stmt]:
        """`a, b = b, None`: each value has a variable of its own before the first is assigned."""
        assert isinstance(node.value, ast.Tuple)
        held = [f"_held_{self._unit.place(node)}" for _ in target.elts]
        self._names |= frozenset(held)
        first = [ast.Assign([build.store(n)], value) for n, value in zip(held, node.value.elts, strict=True)]
        then = [ast.Assign([part], build.load(n)) for part, n in zip(target.elts, held, strict=True)]
        return self.block([located(ast.copy_location(statement, node)) for statement in (*first, *then)])

    def _first(self, drawn: ast.GeneratorExp, node: ast.Assign) -> list[ast.stmt]:
        """`v = next((a for i in b if c), None)` as a loop that is left at the first one."""
        (through,) = drawn.generators
        renamed = {name: f"_drawn_{self._unit.place(node)}" for name in dict.fromkeys(_bound(through.target))}
        for part in (through.target, drawn.elt, *through.ifs):
            for name in walked(part):
                if isinstance(name, ast.Name):
                    name.id = renamed.get(name.id, name.id)
        held = f"_held_{self._unit.place(node)}"  # the generator may read the variable itself
        self._names |= {held}
        found: list[ast.stmt] = [ast.Assign([build.store(held)], drawn.elt), ast.Break()]
        for test in reversed(through.ifs):
            found = [ast.If(test, found, [])]
        made = [
            ast.Assign([build.store(held)], ast.Constant(None)),
            ast.For(through.target, through.iter, found, []),
            ast.Assign(node.targets, build.load(held)),
        ]
        return self.block([located(ast.copy_location(statement, node)) for statement in made])

    def _value_of(self, value: ast.expr) -> ast.expr:
        """An expression of which it is asked whether it is None: a call may tell."""
        return build.mark_asked(self.visit(value))

    def _as_branches(self, node: ast.Assign) -> list[ast.stmt]:
        assert isinstance(node.value, ast.IfExp)
        sides = (node.value.body, node.value.orelse)
        branches: list[list[ast.stmt]] = [
            [ast.copy_location(ast.Assign([*map(copied, node.targets)], side), node)] for side in sides
        ]
        return [self.visit(located(ast.copy_location(ast.If(node.value.test, *branches), node)))]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        if node.value is not None and self._of([node.target]):
            return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))
        self.generic_visit(node)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt | list[ast.stmt]:
        names = self._of([node.target])
        self.generic_visit(node)
        if not names:
            return node
        read = ast.Assign([build.store(names[0])], self._given(names[0]))
        self._there -= {*names}
        return [located(ast.copy_location(read, node)), node, *_parted(names, node)]

    # -------------------------------------------------------------------------------------- blocks

    def visit_If(self, node: ast.If) -> ast.stmt:
        holds, fails = self._facts(node.test)
        node.test = self._tested(node.test)
        before = self._there
        left = []
        bound = {*self._of([node])}
        for block, facts in ((node.body, holds), (node.orelse, fails)):
            self._there = before | facts
            ends = _never_ends(block)
            known = [] if ends else [_is_there(name, node) for name in sorted(facts & bound)]
            block[:] = [*known, *self.block(block)]  # where the other branch gives a value, there is one behind both
            left += [] if ends else [self._there]
        self._there = frozenset.intersection(*left) if left else before
        return node

    def visit_For(self, node: ast.For) -> ast.stmt:
        node.iter = self.visit(node.iter)
        own = _parted(self._of([node.target]), node)
        node.target = self.visit(node.target)
        return self._loop(node, own, frozenset())

    def visit_While(self, node: ast.While) -> ast.stmt:
        self._forget(node)
        holds, _ = self._facts(node.test)
        node.test = self._tested(node.test)
        return self._loop(node, [], holds)

    def _loop(self, node: ast.For | ast.While, own: list[ast.stmt], facts: frozenset[str]) -> ast.stmt:
        before = self._forget(node)
        self._there = before | facts
        node.body = [*own, *self.block(node.body)]
        self._there = before
        node.orelse = self.block(node.orelse)
        self._there = before
        return node

    def visit_With(self, node: ast.With) -> ast.stmt:
        for item in node.items:
            item.context_expr = self.visit(item.context_expr)
        targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        before = self._forget(node)
        node.body = [*_parted(self._of(targets), node), *self.block(node.body)]
        self._there = before
        return node

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        before = self._forget(node)
        for block in (node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody):
            self._there = before
            block[:] = self.block(block)
        self._there = before
        return node

    def visit_Match(self, node: ast.Match) -> ast.stmt:
        node.subject = self.visit(node.subject)
        before = self._forget(node)
        for case in node.cases:
            self._there = before
            case.guard = None if case.guard is None else self.visit(case.guard)
            case.body = self.block(case.body)
        self._there = before
        return node

    def _forget(self, node: ast.AST) -> frozenset[str]:
        """What is known wherever in a statement the program is: nothing of the variables that it binds."""
        self._there -= {*self._of([node])}
        return self._there

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.args = self.visit(node.args)
        node.body = self.body_of(node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        body, before = node.body, (self._names, self._there)
        node.args = self.visit(node.args)
        arguments = {argument.arg for argument in walked(node.args) if isinstance(argument, ast.arg)}
        self._names, self._there = self._names - arguments, frozenset()
        node.body = self.visit(node.body)
        self._names, self._there = before
        if isinstance(body, ast.IfExp) and any(map(_is_none, _chosen(body))):
            self.has_pairs = True
            node.body = located(ast.copy_location(build.call("perhaps", self._pairs(body)), body))
        return node

    def _pairs(self, value: ast.expr) -> ast.expr:
        """An expression that was visited, as a pair."""
        if isinstance(value, ast.IfExp):
            return ast.IfExp(value.test, self._pairs(value.body), self._pairs(value.orelse))
        return self._pair(value) if _is_none(value) else build.call("apart_from_none", build.mark_asked(value))

    # -------------------------------------------------------------------------------------- calls and what they give

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        if not self._returns_pairs:
            self.generic_visit(node)
            return node
        value = node.value or ast.Constant(None)
        if isinstance(value, ast.IfExp) and any(map(self._may_be_none, _chosen(value))):
            branches: list[list[ast.stmt]] = [
                [ast.copy_location(ast.Return(side), node)] for side in (value.body, value.orelse)
            ]
            made: ast.stmt = self.visit(located(ast.copy_location(ast.If(value.test, *branches), node)))
            return made
        node.value = located(ast.copy_location(self._pair(value), value))
        return node

    def _pair(self, value: ast.expr) -> ast.expr:
        if _is_none(value):
            return ast.Tuple([build.runtime("NOTHING"), ast.Constant(False)], ast.Load())
        if isinstance(value, ast.Name) and self._is_own(value):
            is_there = ast.Constant(True) if value.id in self._there else build.load(_flag(value.id))
            return ast.Tuple([build.load(value.id), is_there], ast.Load())
        return build.call("apart_from_none", self._value_of(value))

    def _may_be_none(self, node: ast.expr) -> bool:
        return _is_none(node) or self._is_own(node) or self._is_call(node)

    def _is_call(self, node: ast.expr) -> bool:
        return _may_be_models(node, self._outside)

    # -------------------------------------------------------------------------------------- tests

    def _facts(self, test: ast.expr) -> _Facts:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            holds, fails = self._facts(test.operand)
            return fails, holds
        if isinstance(test, ast.BoolOp):
            every = [self._facts(value) for value in test.values]
            all_hold, all_fail = ([facts[side] for facts in every] for side in (0, 1))
            if isinstance(test.op, ast.And):
                return frozenset.union(*all_hold), frozenset.intersection(*all_fail)
            return frozenset.intersection(*all_hold), frozenset.union(*all_fail)
        asked = _asked(test) if isinstance(test, ast.Compare) else None
        if asked is None or asked not in self._names:
            return _NO_FACTS
        known = frozenset((asked,))
        return (known, frozenset()) if isinstance(test.ops[0], ast.IsNot) else (frozenset(), known)  # type: ignore[attr-defined]

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        holds, fails = self._facts(node.test)
        node.test = self._tested(node.test)
        before = self._there
        self._there = before | holds
        node.body = self.visit(node.body)
        self._there = before | fails
        node.orelse = self.visit(node.orelse)
        self._there = before
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        first, *rest = node.values
        are_simple = all(isinstance(value, ast.Name | ast.Constant) for value in rest)
        if isinstance(node.op, ast.Or) and isinstance(first, ast.Name) and self._is_own(first) and are_simple:
            others = [self.visit(copied(value)) for value in rest]
            where_none = others[0] if len(others) == 1 else ast.BoolOp(ast.Or(), others)
            chosen = ast.BoolOp(ast.Or(), [build.load(first.id), *map(self.visit, rest)])
            return located(ast.copy_location(ast.IfExp(build.load(_flag(first.id)), chosen, where_none), node))
        return self._in_turn(node, self.visit)

    def _in_turn(self, node: ast.BoolOp, visit: Callable[[ast.expr], ast.expr]) -> ast.expr:
        before = self._there
        for place, value in enumerate(node.values):
            holds, fails = self._facts(value)
            node.values[place] = visit(value)
            self._there |= holds if isinstance(node.op, ast.And) else fails
        self._there = before
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        node.operand = self._tested(node.operand) if isinstance(node.op, ast.Not) else self.visit(node.operand)
        return node

    def _tested(self, test: ast.expr) -> ast.expr:
        """A test, which fails where it is of None: `if v`."""
        if isinstance(test, ast.Name) and self._is_own(test):
            both = ast.BoolOp(ast.And(), [build.load(_flag(test.id)), build.load(test.id)])
            return located(ast.copy_location(both, test))
        return self._in_turn(test, self._tested) if isinstance(test, ast.BoolOp) else self.visit(test)

    # -------------------------------------------------------------------------------------- what reads them

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        asked = _asked(node)
        if asked is not None and asked in self._names:
            flag = build.load(_flag(asked))
            is_there = isinstance(node.ops[0], ast.IsNot)
            return ast.copy_location(flag if is_there else ast.UnaryOp(ast.Not(), flag), node)
        if _is_asked(node) and self._is_call(node.left):
            call = build.call("is_none", self._value_of(node.left))
            made = call if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), call)
            return located(ast.copy_location(made, node))
        is_equality = len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        if is_equality and isinstance(node.left, ast.Name) and self._is_own(node.left):
            return self._compared(node, node.left.id)
        self.generic_visit(node)
        return node

    def _compared(self, node: ast.Compare, name: str) -> ast.expr:
        """`v == 3`, which None is not."""
        node.comparators = [*map(self.visit, node.comparators)]
        flag = build.load(_flag(name))
        is_equal = isinstance(node.ops[0], ast.Eq)
        asked = flag if is_equal else ast.UnaryOp(ast.Not(), flag)
        both = ast.BoolOp(ast.And() if is_equal else ast.Or(), [asked, node])
        return located(ast.copy_location(both, node))

    def visit_Slice(self, node: ast.Slice) -> ast.Slice:
        """`x[v:]` begins at its beginning where v is None."""
        if node.step is None and self._is_own(node.lower):
            node.lower = self._given_or(node.lower, ast.Constant(0))
        elif node.lower is not None:
            node.lower = self.visit(node.lower)
        node.upper = None if node.upper is None else self.visit(node.upper)
        node.step = None if node.step is None else self.visit(node.step)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`x[:v]` goes to the end of x where v is None."""
        bounds, base = node.slice, node.value
        end = bounds.upper if isinstance(bounds, ast.Slice) and bounds.step is None else None
        if not self._is_own(end) or not isinstance(base, ast.Name) or self._is_own(base):
            self.generic_visit(node)
            return node
        assert isinstance(bounds, ast.Slice)
        bounds.upper = None
        node.slice = self.visit(bounds)
        bounds.upper = self._given_or(end, build.call("len_", build.load(base.id)))
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or node.id not in self._names:
            return node
        if build.is_held(node) and node.id not in self._there:
            name = ast.Constant(node.id)
            return ast.copy_location(build.call("held", build.load(node.id), build.load(_flag(node.id)), name), node)
        return ast.copy_location(self._given(node.id), node)

    def _is_own(self, node: ast.AST | None) -> bool:
        return isinstance(node, ast.Name) and node.id in self._names

    def _given(self, name: str) -> ast.expr:
        """The value of a variable, or the end of a run."""
        value = build.load(name)
        return value if name in self._there else build.call("given", value, build.load(_flag(name)))

    def _given_or(self, name: ast.expr | None, other: ast.expr) -> ast.expr:
        assert isinstance(name, ast.Name)
        return ast.copy_location(ast.IfExp(build.load(_flag(name.id)), build.load(name.id), other), name)


def _never_ends(block: Sequence[ast.stmt]) -> bool:
    """Whether what follows a block is never reached through it."""
    return bool(block) and (isinstance(block[-1], ast.Break | ast.Continue) or scope.always_leaves(block))
