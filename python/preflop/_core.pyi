"""The program as a module."""

VERSION: str

def run(args: list[str]) -> int:
    """Runs the program with the arguments after its name and gives its exit status."""

def call(args: list[str]) -> str:
    """What a command would print; raises ``ValueError(message, hint)`` for bad input."""

def predict_table(table: object, fixed: list[tuple[str, str]], keep: list[str] | None, threads: int | None) -> object:
    """A stream of answers (``__arrow_c_stream__``) to a stream of rows; raises ``ValueError(message, hint)``."""

class Sweep:
    """A study made ready: any of its parts, and the folder that keeps them."""

    rows: int
    parts: int

    def __init__(self, text: str, file: str, part_rows: int | None = None, threads: int | None = None) -> None: ...
    def part(self, part: int) -> bytes:
        """Computes a part: the bytes of a Parquet file."""
    def open(self, output: str, format: str | None = None, restart: bool = False) -> list[int]:
        """Opens the folder of parts of an output, and gives those that are missing."""
    def keep(self, part: int, bytes: bytes) -> bool:
        """Keeps a part; False where it is there already."""
    def finish(self) -> int:
        """Puts all parts together; gives how many rows could not be predicted."""
