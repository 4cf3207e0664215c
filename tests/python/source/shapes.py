"""Functions of every shape that a model's code has, drawn at random: as source, to be written to a module.

Each program defines `subject()`, which gives what is to be rewritten as it is found (a raw class attribute or a
function), and `run(function)`, which puts it in its place and gives what it computes.
"""

from __future__ import annotations

import random
import textwrap

_KINDS = ("plain", "static", "class", "property", "cached", "closure", "in_function", "nested_class")
_DECORATORS = ("", "@shifted", "@shifted\n@doubled")


def program(seed: int) -> str:
    """One program."""
    draw = random.Random(seed)
    kind = draw.choice(_KINDS)
    decorators = draw.choice(_DECORATORS)
    return _HEAD + {"closure": _closure, "in_function": _in_function}.get(kind, _method)(draw, kind, decorators)


_HEAD = '''
import functools

FACTOR = 3
LATER = []

def shifted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) + 7
    return wrapper

def doubled(function):
    """By a class that keeps the function in a closure."""
    held = function
    def wrapper(*args, **kwargs):
        return 2 * held(*args, **kwargs)
    return functools.wraps(function)(wrapper)

def default():
    LATER.append("default")
    return 4
'''


def _signature(draw: random.Random, first: str) -> str:
    parts = [first] if first else []
    if draw.random() < 0.3 and first:
        parts.append("/")
    parts += draw.choice([["x=2"], ["x=FACTOR"], ["x=default()"]])
    parts += draw.choice([[], ["*rest"]])
    if "*rest" not in parts:
        parts.append("*")
    parts += draw.choice([["key=5"], ["key=default()", "other: 'int' = 1"]])
    parts += draw.choice([[], ["**options"]])
    return ", ".join(parts)


def _body(draw: random.Random, names: list[str]) -> list[str]:
    """Statements that use the names, then `return total`."""
    lines = [draw.choice(['"""A docstring."""', "total = 0", '"""One at\nthe margin."""'])]
    lines.append("total = x + key * FACTOR")
    choices = [
        "total += sum(y * x for y in range(key))",
        "total += (lambda z: z + x)(key)",
        "for i in range(3):\n    if i > x:\n        break\n    total += i\nelse:\n    total += 100",
        "try:\n    total += {}['missing']\nexcept KeyError as error:\n    total += len(error.args)",
        "def inner(a, b=x):\n    nonlocal total\n    total += a + b\ninner(key)",
        "class Local:\n    __hidden = 9\n    def get(self):\n        return self.__hidden\ntotal += Local().get()",
        "total += (y := x + 1) * y",
        "with __import__('contextlib').suppress(ValueError):\n    raise ValueError",
        "total += [FACTOR, *range(x)][-1]",
        "match x:\n    case 2:\n        total += 50\n    case _:\n        total -= 1",
        "import math as __maths\ntotal += int(__maths.sqrt(16))",
    ]
    lines += draw.sample(choices, draw.randint(1, 4))
    lines += [f"total += {name}" for name in names]
    return [*lines, "return total"]


def _function(draw: random.Random, name: str, first: str, decorators: str, names: list[str]) -> str:
    head = f"def {name}({_signature(draw, first)}):\n"
    body = textwrap.indent("\n".join(_body(draw, names)), "    ", lambda line: not line.startswith("the margin"))
    return f"{decorators}\n{head}{body}\n".lstrip("\n")


_OWNERS = {
    "static": ("@staticmethod", ""),
    "class": ("@classmethod", "cls"),
    "property": ("@property", "self"),
    "cached": ("@functools.cached_property", "self"),
}


_BASE = """
class Base:
    __secret = 13
    def method(self, x):
        return 17 + x
"""


def _method(draw: random.Random, kind: str, decorators: str) -> str:
    outer, first = _OWNERS.get(kind, ("", "self"))
    name = draw.choice(["method", "__private"])
    class_name = draw.choice(["Subject", "_Subject", "__Subject", "FACTORY"])
    names = [] if kind == "static" else [f"{first}.__secret", f"{first}._Base__secret"]
    if kind == "plain" and draw.random() < 0.7:
        names.append("super().method(1)")
    if first and draw.random() < 0.5:
        names.append("len(__class__.__name__)")
    code = _function(draw, name, first, f"{outer}\n{decorators}".strip(), names)
    body = textwrap.indent(f"__secret = 11\n{code}", "    ", lambda line: not line.startswith("the margin"))
    spelled = f"_{class_name.lstrip('_')}{name}" if name.startswith("__") else name
    owner = f"{_BASE}\nclass {class_name}(Base):\n{body}"
    is_read = kind in ("property", "cached")
    call = f"getattr(made(), '{spelled}')" + ("" if is_read else "()")
    ending = f"""
def owner():
    return OWNER
def subject():
    return vars(OWNER)['{spelled}']
def run(function):
    before = vars(OWNER)['{spelled}']
    setattr(OWNER, '{spelled}', function)
    try:
        made = OWNER
        return {call}
    finally:
        setattr(OWNER, '{spelled}', before)
"""
    if kind != "nested_class":
        return f"{owner}\nOWNER = {class_name}\n{ending}"
    inside = textwrap.indent(owner, "    ", lambda line: not line.startswith("the margin"))
    inside = inside.replace("total = x + key * FACTOR", "total = x + key * factor")
    return f"def make(factor):\n{inside}\n    return {class_name}\n\nOWNER = make(5)\n{ending}"


def _closure(draw: random.Random, kind: str, decorators: str) -> str:
    code = _function(draw, "subject_function", "", decorators, ["outer", "filled()"])
    body = textwrap.indent(code, "    ", lambda line: not line.startswith("the margin"))
    return f"""
def make(outer):
{body}
    found = subject_function
    if outer:
        def filled():
            return outer + 1
    return found

SUBJECT = make(19)
def subject():
    return SUBJECT
def run(function):
    return function()
"""


_OF_MAKE = """
SUBJECT = make()
def subject():
    return SUBJECT
def run(function):
    return function(2)
"""


def _in_function(draw: random.Random, kind: str, decorators: str) -> str:
    code = _function(draw, "recursive", "", decorators, ["0 if key < 1 else recursive(x, key=0)"])
    if draw.random() < 0.5:
        return f"{code}\ndef subject():\n    return recursive\ndef run(function):\n    return function(2)\n"
    body = textwrap.indent(code, "    ", lambda line: not line.startswith("the margin"))
    return f"def make():\n{body}\n    return recursive\n{_OF_MAKE}"
