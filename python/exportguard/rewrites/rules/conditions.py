"""`if` statements become calls of `if_`, whose branches are local functions.

    if x.sum() > 0:          def _then_3(y):
        y = x + 1                y = x + 1
    else:            →           return (y,)
        y = x - 1            def _else_3(y):
                                 y = x - 1
                                 return (y,)
                             (y,) = _rt.if_(x.sum() > 0, _then_3, _else_3, ("y",), (_rt.value(lambda: y),))

A branch that returns takes the statements behind the `if` with it, as a function that falling through calls. So does
every branch when a unit is to absorb the rest: variables may then be None on one path and a tensor on the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import located, parts_of

ORDER = 40


def apply(unit: Unit) -> None:
    """Rewrites every `if` of the function whose test may depend on tensor data."""
    located(unit.node)
    _Blocks(unit, unit.node, _Reads(unit.node, unit.loops)).rewrite_function()


def is_plain_test(test: ast.expr) -> bool:
    """Whether a test is about Python values by its form: `x is None`, `isinstance(…)`, `self.training`."""
    if isinstance(test, ast.Constant):
        return True
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return is_plain_test(test.operand)
    if isinstance(test, ast.BoolOp):
        return all(is_plain_test(value) for value in test.values)
    if isinstance(test, ast.Compare):
        plain_operators = (ast.Is, ast.IsNot)
        compares_text = any(
            isinstance(c, ast.Constant) and isinstance(c.value, str) for c in [test.left, *test.comparators]
        )
        return compares_text or all(isinstance(op, plain_operators) for op in test.ops)
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name):
        return test.func.id in {"isinstance", "issubclass", "hasattr", "callable", "len"}
    return isinstance(test, ast.Attribute) and test.attr == "training"


def _deleted(statement: ast.stmt) -> set[str]:
    """The names that may have no value behind a statement, for a `del` of the user's in it."""
    found = [node for node in scope.walk_scope([statement]) if isinstance(node, ast.Delete)]
    return {name for deletion in found if not build.is_made(deletion) for name in scope.assigned([deletion])}


class _Reads:
    """Where a function reads its variables: one that nothing reads behind a test need not come out of the branches."""

    def __init__(self, node: ast.FunctionDef, loops: Sequence[range]) -> None:
        self._loops = loops
        self._lines: dict[str, list[int]] = {}
        self._anywhere: set[str] = set()  # by functions, which run later than they are defined
        for name, line, is_later in _all_reads(node):
            self._lines.setdefault(name, []).append(line)
            if is_later:
                self._anywhere.add(name)

    def behind(self, statement: ast.If, names: Sequence[str]) -> list[str]:
        """The names that are read behind the statement, or before it in a loop around it."""
        last = statement.end_lineno or statement.lineno
        if any(statement.lineno in loop for loop in self._loops):
            return list(names)
        return [n for n in names if n in self._anywhere or any(line > last for line in self._lines.get(n, ()))]


_FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.ClassDef)


def _all_reads(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    pending = [(tree, False)]
    while pending:
        node, is_later = pending.pop()
        for child in parts_of(node):
            is_deleted = isinstance(child, ast.Name) and isinstance(child.ctx, ast.Del)  # which must be bound, too
            name = child if is_deleted else scope.read_by(child)
            if isinstance(name, ast.Name):
                yield name.id, name.lineno, is_later or build.is_behind(name)
            is_function = isinstance(child, _FUNCTIONS) and not build.is_made(child)
            pending.append((child, is_later or is_function))


class _Blocks:
    """The blocks of one function, that under rewriting or one that is defined in it."""

    def __init__(self, unit: Unit, node: ast.FunctionDef, reads: _Reads) -> None:
        self._unit = unit
        self._node = node
        self._reads = reads
        self._globals = scope.declared(node.body, ast.Global)
        self._nonlocals = [*scope.declared(node.body, ast.Nonlocal), *sorted(scope.shared(node))]

    def rewrite_function(self) -> None:
        """Rewrites the body of the function."""
        if not scope.contains(self._node.body, ast.Yield, ast.YieldFrom):
            self._node.body = self.rewrite(self._node.body, set(scope.parameters(self._node)), is_tail=True)

    def rewrite(self, statements: Sequence[ast.stmt], certain: set[str], *, is_tail: bool) -> list[ast.stmt]:
        """The statements with their `if`s rewritten. `certain` names surely have a value; a tail ends the function."""
        done: list[ast.stmt] = []
        certain = set(certain)
        for position, statement in enumerate(statements):
            rest = statements[position + 1 :]
            if isinstance(statement, ast.If) and (
                self._applies(statement) or (rest and self._returns_within(statement))
            ):
                returns = scope.contains([*statement.body, *statement.orelse], ast.Return)
                if is_tail and (returns or (self._unit.absorbs and rest)):
                    return done + self._leaving(statement, rest, certain)
                if not returns:
                    done += self._staying(statement, certain)
                    continue
            done.append(self._descend(statement, certain, is_tail and not rest))
            certain |= self._certain_after(statement)
            certain -= _deleted(statement)
        return done

    def _applies(self, statement: ast.If) -> bool:
        if is_plain_test(statement.test) or not self._unit.keep(statement):
            return False
        branches = [*statement.body, *statement.orelse]
        return build.can_move(branches) and not scope.leaves_loop(branches)

    def _returns_within(self, statement: ast.If) -> bool:
        """Whether a test that applies returns within branches of Python's own, so that it takes what is behind them."""
        branches = [*statement.body, *statement.orelse]
        if not build.can_move(branches) or scope.leaves_loop(branches):
            return False
        inner = (node for node in scope.walk_scope(branches) if isinstance(node, ast.If) and self._applies(node))
        return any(scope.contains([*node.body, *node.orelse], ast.Return) for node in inner)

    def _descend(self, statement: ast.stmt, certain: set[str], is_tail: bool) -> ast.stmt:
        inner = set(certain)
        if isinstance(statement, ast.FunctionDef) and build.is_generated(statement):
            self._of_loop(statement)
        elif isinstance(statement, ast.FunctionDef) and not build.is_made(statement):
            _Blocks(self._unit, statement, self._reads).rewrite_function()
        elif isinstance(statement, ast.If):
            statement.body = self.rewrite(statement.body, inner, is_tail=is_tail)
            statement.orelse = self.rewrite(statement.orelse, inner, is_tail=is_tail)
        elif isinstance(statement, ast.With):
            statement.body = self.rewrite(statement.body, inner, is_tail=is_tail)
        elif isinstance(statement, ast.For | ast.While):
            statement.body = self.rewrite(statement.body, inner, is_tail=False)
            statement.orelse = self.rewrite(statement.orelse, inner, is_tail=False)
        elif isinstance(statement, ast.Try):
            statement.body = self.rewrite(statement.body, inner, is_tail=is_tail and not statement.orelse)
            for handler in statement.handlers:
                handler.body = self.rewrite(handler.body, inner, is_tail=is_tail)
            statement.orelse = self.rewrite(statement.orelse, inner, is_tail=is_tail)
            statement.finalbody = self.rewrite(statement.finalbody, inner, is_tail=False)
        return statement

    def _of_loop(self, body: ast.FunctionDef) -> None:
        """What a loop carries is local to its body, also where the function declares it global or nonlocal."""
        inner = _Blocks(self._unit, body, self._reads)
        carried = scope.parameters(body)
        inner._globals = [name for name in self._globals if name not in carried]
        inner._nonlocals = [name for name in self._nonlocals if name not in carried]
        body.body = inner.rewrite(body.body, set(), is_tail=True)

    @staticmethod
    def _certain_after(statement: ast.stmt) -> set[str]:
        simple = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Expr)
        if build.is_loop(statement):  # whose variables may come out without a value
            return set()
        return set(scope.assigned([statement])) if isinstance(statement, simple) else set()

    def _locals(self, statements: Sequence[ast.stmt]) -> list[str]:
        outer = {*self._globals, *self._nonlocals}
        return [name for name in scope.assigned(statements) if name not in outer]

    def _declarations(self, statements: Sequence[ast.stmt], where: ast.AST) -> list[ast.stmt]:
        bound = set(scope.assigned(statements))
        global_names = [name for name in dict.fromkeys(self._globals) if name in bound]
        nonlocal_names = [name for name in dict.fromkeys(self._nonlocals) if name in bound]
        return build.declarations(global_names, nonlocal_names, where)

    # -------------------------------------------------------------------------------------- branches that fall through

    def _staying(self, statement: ast.If, certain: set[str]) -> list[ast.stmt]:
        self._unit.note(statement, "if")
        names = self._locals([*statement.body, *statement.orelse])
        results = self._reads.behind(statement, names)
        uncertain = [name for name in results if name not in certain]
        place = self._unit.place(statement)
        then, orelse = (
            self._branch(kind, block, names, results, certain, statement, place)
            for kind, block in (("then", statement.body), ("else", statement.orelse))
        )
        call = build.call(
            "if_",
            statement.test,
            build.load(then.name),
            build.load(orelse.name),
            build.names_tuple(results),
            build.current_values(names, certain),
            line=statement.lineno,
        )
        if build.leaving_branch(statement):
            call.keywords.append(ast.keyword("leaving", ast.Constant(build.leaving_branch(statement))))
        result: ast.stmt = ast.Expr(call)
        if results:
            result = ast.Assign([ast.Tuple([build.store(name) for name in results], ast.Store())], call)
        ast.copy_location(result, statement)
        return [then, orelse, result, *build.unbind(uncertain, statement)]

    def _branch(
        self,
        kind: str,
        block: Sequence[ast.stmt],
        names: list[str],
        results: list[str],
        certain: set[str],
        where: ast.If,
        place: str,
    ) -> ast.FunctionDef:
        uncertain = [name for name in names if name not in certain]
        declarations = self._declarations(block, where)
        body = self.rewrite(block, certain, is_tail=False)
        result = ast.copy_location(ast.Return(build.current_values(results, certain)), where)
        statements = [*declarations, *build.unbind(uncertain, where), *body, result]
        return build.function(f"_{kind}_{place}", names, statements, where)

    # -------------------------------------------------------------------------------------- branches that return

    def _leaving(self, statement: ast.If, rest: Sequence[ast.stmt], certain: set[str]) -> list[ast.stmt]:
        self._unit.note(statement, "if with return")
        place = self._unit.place(statement)
        names = self._locals([*statement.body, *statement.orelse, *rest])
        values = build.current_values(names, certain)
        behind = self._tail_function(f"_rest_{place}", names, rest, certain, statement)
        branches = []
        for kind, block in (("then", statement.body), ("else", statement.orelse)):
            goes_on = ast.Call(build.load(behind.name), list(build.current_values(names, certain).elts), [])
            ending = [] if scope.always_leaves(block) else [ast.copy_location(ast.Return(goes_on), statement)]
            branches.append(self._tail_function(f"_{kind}_{place}", names, [*block, *ending], certain, statement))
        call = build.call(
            "if_",
            statement.test,
            *(build.load(b.name) for b in branches),
            ast.Tuple([], ast.Load()),
            values,
            line=statement.lineno,
        )
        return [behind, *branches, ast.copy_location(ast.Return(call), statement)]

    def _tail_function(
        self, name: str, names: list[str], block: Sequence[ast.stmt], certain: set[str], where: ast.If
    ) -> ast.FunctionDef:
        uncertain = [n for n in names if n not in certain]
        declarations = self._declarations(block, where)
        body = self.rewrite(block, certain, is_tail=True)
        return build.function(name, names, [*declarations, *build.unbind(uncertain, where), *body], where)
