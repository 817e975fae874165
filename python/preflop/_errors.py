"""What can go wrong."""

from __future__ import annotations


class PreflopError(ValueError):
    """Bad input: what is wrong, and in ``hint`` what to do about it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.message = message
        self.hint = hint


class CaptureError(PreflopError):
    """The training step could not be recorded."""
