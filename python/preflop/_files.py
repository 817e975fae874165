"""Saving inside a recording: the copies to the host are recorded, and no file is written.

What would be saved has no numbers, and a file of zeros over a checkpoint would be worse than none.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Iterator

from ._cuda import replaced
from ._tensor import any_on_gpu, on_gpu, tensors_in


def _instead(session: Any, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def save(thing: Any, *args: Any, **kwargs: Any) -> Any:
        held = thing.state_dict() if hasattr(thing, "state_dict") else thing
        values = list(held.values()) if isinstance(held, dict) else [held]
        if not any_on_gpu(values):
            return real(thing, *args, **kwargs)
        for tensor in tensors_in(values):
            if on_gpu(tensor):
                tensor.cpu()
        session.assumed(name, "no file is written inside a recording", 0)
        return None

    return save


@contextlib.contextmanager
def unwritten(session: Any) -> Iterator[None]:
    """A block in which recorded tensors are not written to files."""
    import torch

    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(torch, "save", _instead(session, "torch.save", torch.save)))
        safetensors = sys.modules.get("safetensors.torch")
        if safetensors is not None:
            for name in ("save_file", "save_model"):
                real = getattr(safetensors, name)
                stack.enter_context(replaced(safetensors, name, _instead(session, f"safetensors.{name}", real)))
        yield
