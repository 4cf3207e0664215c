"""The exceptions that the library raises on purpose; those of the C++ side arrive as the same classes."""


class ExportGuardError(RuntimeError):
    """Base of them all."""


class InvalidArgumentError(ExportGuardError, ValueError):
    """An argument is out of its bounds; the text names it, the bound, the value and the remedy."""


class GraphError(ExportGuardError):
    """A graph is malformed, or ONNX's checker rejects the model."""


class ParseError(ExportGuardError, ValueError):
    """Text is not in the format that is read; `line` and `column` count from 1."""

    line: int
    column: int

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type["ParseError"], tuple[str, int, int]]:
        return type(self), (str(self), self.line, self.column)


class ExportError(ExportGuardError):
    """torch.export stopped; the text tells the line of the model, torch's reason and the remedy."""


class AxisError(ExportError):
    """An axis that was asked to change does not, or not to every size; the text tells the line and the remedy."""


class ProgramError(ExportGuardError):
    """An exported program holds something that cannot be represented."""


class LoweringError(ExportGuardError):
    """Operators could not be lowered; the text lists all of them with their source lines."""


class FileError(ExportGuardError, OSError):
    """A file cannot be written or read, or its content is not what it should be."""


class GuardError(ExportGuardError):
    """A patch cannot be installed, or the guard is used in a way it does not allow."""


class PackageError(ExportGuardError, ImportError):
    """A package that this needs is not installed, or is not the one that this was built with."""


class StoppedError(SystemExit):
    """A signal asked the program to end."""


class TextOfASymbolError(TypeError):
    """A text is made of what only stands for a number."""

    def __init__(self) -> None:
        super().__init__(
            "a text is made of a dynamic size, or of what is data-dependent, and it says something else while a "
            "program is traced"
        )


#: What the code of a model raises for inputs that it does not take.
REFUSALS = (
    *(AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError),
    *(StopIteration, UnboundLocalError),  # where there is nothing to go through
)
