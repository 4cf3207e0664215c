"""`for` and `while` become calls of `for_` and `while_`, whose bodies are local functions of the carried variables.

    total = 0                       def _body_5(row, total):
    for row in x:                       total = total + row
        total = total + row     →       return (True, (total,))
                                    (total,) = _rt.for_(x, _body_5, ("total",), (total,))

`continue` returns from the body; `break` returns with False in the first place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from exportguard.rewrites import build, scope
from exportguard.rewrites.engine import Unit
from exportguard.source.walking import Transformer, parts_of, walked

ORDER = 20
ITEM = "_item"
_FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.ClassDef)


def apply(unit: Unit) -> None:
    """Rewrites every loop that can be a function: no `return`, `else`, `yield` inside."""
    rewriter = _Loops(unit)
    rewriter.visit(unit.node)
    gathers = any(what in applied for applied in unit.applied for what in ("comprehension", "sorted", "list(", "[*"))
    if rewriter.found or unit.keeps_sizes or gathers or _lists_numbers(unit.node):
        collections = _Collections()
        collections.visit(unit.node)
        for node, what in collections.found if unit.keeps_sizes else ():
            unit.note(node, what)
    else:
        _Tensors().visit(unit.node)
    if _lists_numbers(unit.node):
        for call in walked(unit.node):
            if _looks_up(call) and unit.keep(call):
                unit.note(call, "index(…)")


def _lists_numbers(node: ast.AST) -> bool:
    """Whether it has an `x.tolist()`."""
    return any(isinstance(n, ast.Attribute) and n.attr == "tolist" for n in walked(node))


def _looks_up(node: ast.AST) -> bool:
    """Whether it may ask a list of numbers for one of them, which the runtime's lists answer."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) == 1
    return is_call and node.func.attr in ("index", "count")  # type: ignore[attr-defined]


class _Jumps(build.OfOneLoop):
    """`continue` and `break` of one loop as returns of its body."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def _returning(self, goes_on: bool, where: ast.AST) -> ast.Return:
        values = build.current_values(self._names, set())
        return ast.copy_location(ast.Return(ast.Tuple([ast.Constant(goes_on), values], ast.Load())), where)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return self._returning(True, node)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return self._returning(False, node)

    def end(self, where: ast.AST) -> ast.Return:
        return self._returning(True, where)


class _Loops(Transformer):
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._globals: set[str] = set()
        self._cells: set[str] = set()  # variables that functions share, which stay where they are
        self.found = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        before = self._globals, self._cells
        self._globals = set(scope.declared(node.body, ast.Global))
        self._cells = {*scope.declared(node.body, ast.Nonlocal), *scope.shared(node)}
        self.generic_visit(node)
        self._globals, self._cells = before
        return node

    def _applies(self, node: ast.For | ast.While) -> bool:
        stays = node.orelse or scope.contains(node.body, ast.Return, ast.Global, ast.Nonlocal)
        return not stays and build.can_move(node.body) and self._unit.keep(node)

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not self._applies(node):
            return node
        self._unit.note(node, "for")
        self.found = True
        names = self._carried(node)
        breaks = scope.breaks(node.body)
        unpack = ast.copy_location(ast.Assign([node.target], build.load(ITEM)), node)
        body = self._body(node, [ITEM], [unpack, *node.body], names)
        call = build.call(
            "for_",
            build.lazy(node.iter),
            build.load(body.name),
            build.names_tuple(names),
            build.current_values(names, set()),
            line=node.lineno,
            breaks=breaks,
        )
        return [body, *self._result(call, names, node)]

    def visit_While(self, node: ast.While) -> ast.stmt | list[ast.stmt]:
        self.generic_visit(node)
        if not self._applies(node):
            return node
        self._unit.note(node, "while")
        self.found = True
        names = self._carried(node)
        breaks = scope.breaks(node.body)
        place = f"{node.lineno}_{node.col_offset}"
        test = build.function(
            f"_test_{place}",
            names,
            [*build.unbind(names, node), ast.copy_location(ast.Return(node.test), node)],
            node,
        )
        body = self._body(node, [], node.body, names)
        call = build.call(
            "while_",
            build.load(test.name),
            build.load(body.name),
            build.names_tuple(names),
            build.current_values(names, set()),
            line=node.lineno,
            breaks=breaks,
        )
        return [test, body, *self._result(call, names, node)]

    def _carried(self, node: ast.For | ast.While) -> list[str]:
        """Names the body assigns; those that nothing but the body reads, after it has assigned them, stay inside."""
        behind = self._reads_behind(node)
        first = _assigned_first(node.body)
        names = [n for n in scope.assigned(node.body) if n in behind or n not in first]
        if isinstance(node, ast.For):
            elsewhere = self._reads_outside(node)
            targets = scope.assigned([node.target])
            names = [n for n in names if n not in targets] + [n for n in targets if n in elsewhere]
        return [name for name in dict.fromkeys(names) if name not in self._globals | self._cells]

    def _reads_outside(self, node: ast.For) -> set[str]:
        inside = {id(n) for n in walked(node)}
        names = (scope.read_by(n) for n in walked(self._unit.node))
        return {name.id for name in names if name is not None and id(name) not in inside}

    def _reads_behind(self, node: ast.For | ast.While) -> set[str]:
        """What is read when the loop is over; in a loop around it, what comes before it is read again."""
        around = [lines.start for lines in self._unit.loops if lines.start < node.lineno < lines.stop]
        first = min([node.lineno, *around])
        inside = {id(n) for n in walked(node)}
        names = {
            name.id
            for name, is_later in _names_read(self._unit.node)
            if id(name) not in inside and (is_later or getattr(name, "lineno", first) >= first)  # a rule's has no line
        }
        return names | scope.reads([node.test]) if isinstance(node, ast.While) else names

    def _body(
        self, node: ast.For | ast.While, parameters: list[str], statements: Sequence[ast.stmt], names: list[str]
    ) -> ast.FunctionDef:
        jumps = _Jumps(names)
        moved = [jumps.visit(statement) for statement in statements]
        bound = scope.assigned(statements)
        of_module, of_cells = ([name for name in bound if name in kind] for kind in (self._globals, self._cells))
        block = [*build.declarations(of_module, of_cells, node), *build.unbind(names, node), *moved, jumps.end(node)]
        made = build.function(f"_body_{node.lineno}_{node.col_offset}", [*parameters, *names], block, node)
        return build.mark_generated(made)

    @staticmethod
    def _result(call: ast.Call, names: list[str], where: ast.stmt) -> list[ast.stmt]:
        if not names:
            return [ast.copy_location(ast.Expr(call), where)]
        target = ast.Tuple([build.store(name) for name in names], ast.Store())
        return [ast.copy_location(ast.Assign([target], call), where), *build.unbind(names, where)]


def _names_read(tree: ast.AST) -> Iterator[tuple[ast.Name, bool]]:
    """Each name that is read, and whether by a function in it, which may run later than it is defined."""
    pending = [(tree, False)]
    while pending:
        node, is_later = pending.pop()
        for child in parts_of(node):
            if (name := scope.read_by(child)) is not None:
                yield name, is_later
            pending.append((child, is_later or isinstance(child, _FUNCTIONS)))


def _assigned_first(statements: Sequence[ast.stmt]) -> set[str]:
    """The names that the statements give a value on every path before they read it."""
    first: set[str] = set()
    met: set[str] = set()
    for statement in statements:
        met |= scope.reads([statement])
        if isinstance(statement, ast.Assign):
            first |= {name for name in scope.assigned(statement.targets) if name not in met}
        met.update(scope.assigned([statement]))
    return first


def _is_len(node: ast.expr) -> bool:
    """Whether it is `len` itself, as in `sorted(rows, key=len)`."""
    return isinstance(node, ast.Name) and node.id == "len"


class _Tensors(Transformer):
    """What does not know numbers that are tensors: `torch.tensor([n, 1])`."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if _is_of_torch(node.func) and node.func.attr in ("tensor", "as_tensor"):  # type: ignore[attr-defined]
            node.func = build.runtime(node.func.attr)  # type: ignore[attr-defined]
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "new_tensor":
            node.args.insert(0, node.func.value)
            node.func = build.runtime("new_tensor")
        return node


def _is_of_torch(function: ast.expr) -> bool:
    is_attribute = isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
    return is_attribute and function.value.id == "torch"  # type: ignore[attr-defined]


class _Collections(_Tensors):
    """The same, and what would fix a symbolic size: `len(x)`, `x.tolist()`, and others."""

    def __init__(self) -> None:
        self.found: list[tuple[ast.Call, str]] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        super().visit_Call(node)
        function = node.func
        if isinstance(function, ast.Name) and function.id == "len" and len(node.args) == 1:
            node.func = build.runtime("len_")
            self.found.append((node, "len(…)"))
        if any(_is_len(given) for given in (*node.args, *(keyword.value for keyword in node.keywords))):
            self.found.append((node, "len(…)"))
            node.args = [build.runtime("len_") if _is_len(given) else given for given in node.args]
            for keyword in node.keywords:
                keyword.value = build.runtime("len_") if _is_len(keyword.value) else keyword.value
        if not isinstance(function, ast.Attribute):
            return node
        if _is_of_torch(function) and function.attr == "unbind":
            node.func = build.runtime(function.attr)
        elif not _is_of_torch(function) and function.attr in ("tolist", "unbind"):
            node.func, node.args = build.runtime(function.attr), [function.value, *node.args]
            self.found.append((node, f"{function.attr}(…)"))
        return node
