"""The command line: every module of `commands` is a subcommand, its `Options` are the arguments.

A subcommand module has a docstring (the help), a frozen dataclass `Options` whose fields come from `argument`, and
`run(options)`, which returns the exit code: 0, or 1 when what was asked for failed. Wrong usage exits with 2.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import os
import pkgutil
import platform
import signal
import sys
import threading
import time
import traceback
import types
import typing
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from . import commands, streams
from .errors import ExportGuardError, InvalidArgumentError, StoppedError
from .garbage import without_collections
from .leaving import leave
from .model_code import is_installed, is_users
from .version import VERSION, versions

#: What torch says of every LSTM, GRU and RNN that it traces, whose weights it puts back itself.
_OF_RECURRENT_LAYERS = r"The tensor attributes (self\.[\w.]*_flat_weights\[\d+\](, )?)+ were assigned during export"
_LOG_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def argument(
    *flags: str,
    help: str,
    default: object = dataclasses.MISSING,
    choices: Sequence[str] = (),
    least: float | None = None,
) -> Any:
    """A field of a subcommand's `Options`: without flags it stands by position, without a default it is required. A
    number is refused below `least`, and one that is none, too."""
    told = {"flags": flags, "help": help, "choices": tuple(choices), "least": least}
    return dataclasses.field(default=default, metadata=told)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code."""
    try:
        code = build().main(args=arguments, prog_name="exportguard", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return 130
    except ExportGuardError as error:
        click.echo(f"Error: {error}", err=True)
        return 2 if isinstance(error, InvalidArgumentError) else 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "exportguard"):
            raise
        click.echo(f"Error: {package} is not installed: pip install {package}", err=True)
        return 1
    return int(code or 0)


def script() -> None:
    """The `exportguard` program."""
    streams.set_up()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, _stop)
    if not sys.stderr.isatty():  # else every bar of theirs is a hundred lines in the log of a CI
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    leave(main())


def _stop(number: int, frame: types.FrameType | None) -> None:
    """Ends the program as an interrupt does, so that nothing half-written stays; a second signal ends it at once.

    Within an import the signal is sent again a little later: C++ that calls Python there (torch, numpy) ends the
    process at an exception, or takes it for an error of the module.
    """
    _ASKED_TO_STOP.append(time.monotonic())
    if _imports(frame) and _ASKED_TO_STOP[-1] - _ASKED_TO_STOP[0] < _LONGEST_IMPORT:
        again = threading.Timer(_A_LITTLE_LATER, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
        return
    signal.signal(number, signal.SIG_DFL)
    raise StoppedError(128 + number)


def _imports(frame: types.FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


_A_LITTLE_LATER = 0.02  # seconds
_LONGEST_IMPORT = 10.0  # seconds
_ASKED_TO_STOP: list[float] = []  # when


def build() -> click.Group:
    """The command with all its subcommands."""
    group = _Commands(
        name="exportguard",
        help="PyTorch models to ONNX, right on every shape.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(VERSION, message=_versions())(group)


def _versions() -> str:
    others = {**versions(), "Python": platform.python_version()}
    others.pop("exportguard")
    return f"exportguard {VERSION} ({', '.join(f'{name} {version}' for name, version in others.items())})"


class _Commands(click.Group):
    """Imports a subcommand when it is asked for: some of them take seconds. The list of all has the first line of each
    module's docstring, which is read from its source."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(entry.name.replace("_", "-") for entry in pkgutil.iter_modules(commands.__path__))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_line(name)) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        with without_collections():
            module = importlib.import_module(f"{commands.__name__}.{cmd_name.replace('-', '_')}")
        return _command(module)


def _first_line(command: str) -> str:
    """What a subcommand does, without importing it."""
    path = Path(commands.__path__[0], f"{command.replace('-', '_')}.py")
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def _command(module: types.ModuleType) -> click.Command:
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    hints = typing.get_type_hints(module.Options)
    parameters = [_parameter(field, hints[field.name]) for field in dataclasses.fields(module.Options)]
    if "verbose" in hints:
        parameters.append(_quiet())
    return click.Command(name, params=parameters, callback=_callback(module), help=module.__doc__)


def _quiet() -> click.Option:
    return click.Option(["-q", "--quiet"], is_flag=True, help="The same as -v 0.")


def _callback(module: types.ModuleType) -> Callable[..., int]:
    def call(**values: Any) -> int:
        if values.pop("quiet", False):
            values["verbose"] = 0
        _set_up_logging(values.get("verbose", 0))
        try:
            code: int = module.run(module.Options(**values))
        except SystemExit as error:
            if not _is_of_a_model(error):
                raise
            raise ExportGuardError(f"the model's code calls sys.exit({error.code!r}); take that out of it") from error
        return code

    return call


def _is_of_a_model(end: SystemExit) -> bool:
    """Whether it was the user's code that ended the program, with 0 for what was not done, and not a signal or a
    library whose pipe was closed."""
    file = traceback.extract_tb(end.__traceback__)[-1].filename
    return not isinstance(end, StoppedError) and is_users(file) and not is_installed(file)


def _parameter(field: dataclasses.Field[Any], hint: object) -> click.Parameter:
    flags, choices = field.metadata["flags"], field.metadata["choices"]
    kind = click.Choice(choices) if choices else _click_type(hint)
    # click tells "no default" from the default None.
    default = {} if field.default is dataclasses.MISSING else {"default": field.default}
    if not flags:
        return click.Argument([field.name], type=kind, required=not default, **default)
    is_flag = hint is bool
    return click.Option(
        [*flags, field.name],
        type=None if is_flag else kind,
        is_flag=is_flag,
        required=not default,
        show_default=field.default not in (dataclasses.MISSING, None, False),
        help=field.metadata["help"],
        callback=_not_less(field.metadata["least"]),
        **default,
    )


def _not_less(least: float | None) -> Callable[..., Any] | None:
    if least is None:
        return None

    def check(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
        if value is not None and not value >= least:
            raise click.BadParameter(f"it must be at least {least:g}, got {value}", context, parameter)
        return value

    return check


def _click_type(hint: object) -> Any:
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None)]
    if kinds == [Path]:
        return _PathOfAName(path_type=Path)
    return kinds[0]


class _PathOfAName(click.Path):
    """A path that is empty, of a variable of the shell that is not set for example, is not the folder where one is."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("it is empty; pass a name, or . for the folder where you are", param, ctx)
        return super().convert(value, param, ctx)


def _set_up_logging(verbose: int) -> None:
    """What other libraries log about themselves is no news to the user."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    warnings.filterwarnings("ignore", message=_OF_RECURRENT_LAYERS)
    logging.getLogger("exportguard").setLevel(_LOG_LEVELS[min(max(verbose, 0), len(_LOG_LEVELS) - 1)])
