"""The program as a module."""

VERSION: str

def run(args: list[str]) -> int:
    """Runs the program with the arguments after its name and gives its exit status."""

def call(args: list[str]) -> str:
    """What a command would print; raises ``ValueError(message, hint)`` for bad input."""
