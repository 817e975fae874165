"""Recording training steps: :func:`capture`, :func:`record`, and :func:`predict` in one call."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING, Any, Callable, Iterator

from ._errors import CaptureError, PreflopError
from ._graph import Graph

#: The GPU that compiled functions are compiled for unless one is named: the one that was measured.
DEFAULT_GPU = "h200"

if TYPE_CHECKING:
    import torch

    from ._session import Session
    from ._results import Prediction


#: The oldest PyTorch whose meta tensors carry what a recording needs.
_OLDEST = (2, 4)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError("recording needs PyTorch: pip install torch") from error
    found = tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2])
    if found < _OLDEST:
        raise CaptureError(
            f"PyTorch {torch.__version__} is too old to record", hint=f"{_OLDEST[0]}.{_OLDEST[1]} or newer: pip install -U torch"
        )
    return torch


class Recording(Graph):
    """A graph that is being recorded."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def step(self) -> None:
        """Ends an iteration: what was recorded before it is a warm-up, and the next iteration counts."""
        self._session.iteration_ended()


@contextlib.contextmanager
def record(
    name: str | None = None, *, samples: int | None = None, gpu: str = DEFAULT_GPU, strict: bool = False
) -> Iterator[Recording]:
    """Records the training step inside the block, without a GPU and without computing anything.

    Models and optimizers made before the block are used as they are and left as they were; their parameters become
    recorded tensors as soon as a model is called. ``samples`` is the number of samples of the iteration if it is not the
    first size of the first model's first input.

        with preflop.record() as graph:
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        print(graph.predict("h100"))

    Call ``graph.step()`` at the end of each iteration to run several; the last complete one is the graph.

    Functions of ``torch.compile`` are compiled for ``gpu`` and recorded as the kernels that would be launched there. One that can't be
    compiled here is recorded eagerly and the result says so; with ``strict`` it is an error.
    """
    _torch()
    from ._graph_file import document
    from ._record import Session, recording

    session = Session()
    session.compile_gpu, session.strict_compile = gpu, strict
    graph = Recording(session)
    with recording(session):
        yield graph
    if not session.final_ops():
        raise CaptureError("no operator ran on the GPU inside the block", hint="call a model inside it")
    graph._document = document(session, name or session.model_name or "model", samples)


def capture(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    samples: int | None = None,
    gpu: str = DEFAULT_GPU,
    strict: bool = False,
    **kwargs: Any,
) -> Graph:
    """Records one call of ``fn(*args, **kwargs)``, a training step or a forward, after one that warms up.

        def step(images, labels):
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        graph = preflop.capture(step, images, labels)
    """
    if not callable(fn):
        raise PreflopError(f"`capture` takes a function, not {type(fn).__name__}")
    with record(name, samples=samples, gpu=gpu, strict=strict) as graph:
        args, kwargs = graph._session.inputs(args, kwargs)
        for _ in range(2):
            fn(*args, **kwargs)
            graph.step()
    return graph


def _optimizer(model: torch.nn.Module, wanted: Any) -> torch.optim.Optimizer | None:
    """An optimizer by name, by a function of the parameters, or as it is."""
    torch = _torch()
    parameters = [p for p in model.parameters() if p.requires_grad]
    if wanted is None or wanted == "none":
        return None
    if isinstance(wanted, torch.optim.Optimizer):
        return wanted
    if wanted == "sgd":
        return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)
    if wanted == "adam":
        return torch.optim.Adam(parameters, fused=False)
    if wanted == "adamw":
        return torch.optim.AdamW(parameters, fused=True)
    if callable(wanted):
        return wanted(parameters)
    raise PreflopError(f"unknown optimizer `{wanted}`", hint="sgd, adam, adamw, none, an optimizer, or a function that makes one")


def _default_loss(output: Any) -> torch.Tensor:
    """The model's own loss if it has one, else cross-entropy of its logits, else the mean of its output."""
    torch = _torch()
    loss = getattr(output, "loss", None)
    if loss is not None:
        return loss
    values = getattr(output, "logits", output)
    if isinstance(values, dict):
        values = next(iter(values.values()))
    if isinstance(values, (list, tuple)):
        values = values[0]
    if values.dim() >= 2 and values.size(-1) > 1:
        values = values.float().flatten(0, -2)
        return torch.nn.functional.cross_entropy(values, values.new_zeros(values.size(0), dtype=torch.long))
    return values.float().mean()


def predict(
    model: torch.nn.Module,
    inputs: Any,
    gpu: str,
    *,
    mode: str = "train",
    optimizer: Any = "sgd",
    precision: str = "pytorch",
    loss: Callable[[Any], torch.Tensor] | None = None,
    name: str | None = None,
    run: str | None = None,
    checkpoint: str = "none",
    algorithms: str = "heuristic",
    host: str | os.PathLike[str] | None = None,
) -> Prediction:
    """How long one iteration of ``model`` takes on ``gpu``.

    ``inputs`` is a tensor, a tuple of arguments or a dictionary of keyword arguments; their values don't matter.
    ``precision`` is pytorch (its default: TF32 in convolutions, fp32 products), fp32 (no TF32), tf32, amp (bf16 autocast), bf16
    or fp16. Without ``loss``, training takes the loss that the model
    returns, or the cross-entropy of its first output. ``checkpoint="full"`` computes each block of the model's lists of modules again in
    backward; ``run``, ``algorithms`` and ``host`` are those of :meth:`Graph.predict`.
    """
    return trace(
        model, inputs, mode=mode, optimizer=optimizer, precision=precision, loss=loss, name=name, checkpoint=checkpoint
    ).predict(gpu, run=run, algorithms=algorithms, host=host)


def _blocks(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The outermost modules that have a number in a list."""
    out = []
    for name, child in module.named_children():
        if name.isdigit():
            inner = [c for n, c in child.named_children() if n.isdigit()]
            out += inner if inner and len(inner) == len(list(child.children())) else [child]
        else:
            out += _blocks(child)
    return [b for b in out if any(True for _ in b.parameters())]


@contextlib.contextmanager
def _checkpointed(model: torch.nn.Module, checkpoint: str, training: bool) -> Iterator[None]:
    """``model`` with each block computed again in backward."""
    if checkpoint == "none":
        yield
        return
    from torch.utils.checkpoint import checkpoint as again

    hint = "call `torch.utils.checkpoint` where you want it and record the step with `preflop.capture`"
    if checkpoint != "full":
        raise PreflopError(f"unknown checkpoint `{checkpoint}` for a module", hint=f"none or full; for others {hint}")
    if not training:
        raise PreflopError("`checkpoint` is about backward, so it is for mode train")
    blocks = _blocks(model)
    if not blocks:
        raise PreflopError("the model has no list of blocks to checkpoint", hint=hint)
    own = [block.__dict__.get("forward") for block in blocks]
    try:
        for block in blocks:
            block.forward = functools.partial(again, block.forward, use_reentrant=False)
        yield
    finally:
        for block, forward in zip(blocks, own):
            block.__dict__.pop("forward", None)
            if forward is not None:
                block.forward = forward


def trace(
    model: torch.nn.Module,
    inputs: Any,
    *,
    mode: str = "train",
    optimizer: Any = "sgd",
    precision: str = "pytorch",
    loss: Callable[[Any], torch.Tensor] | None = None,
    name: str | None = None,
    checkpoint: str = "none",
) -> Graph:
    """The graph that :func:`predict` asks; arguments as there."""
    torch = _torch()
    if not isinstance(model, torch.nn.Module):
        raise PreflopError(f"`model` must be a torch.nn.Module, not {type(model).__name__}")
    if mode not in ("train", "infer"):
        raise PreflopError(f"unknown mode `{mode}`", hint="train or infer")
    formats = {"pytorch": None, "fp32": None, "tf32": None, "amp": None, "bf16": torch.bfloat16, "fp16": torch.float16}
    if precision not in formats:
        raise PreflopError(f"unknown precision `{precision}`", hint=", ".join(formats))
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    kwargs = inputs if isinstance(inputs, dict) else {}
    cast = formats[precision]
    if cast is not None:
        args = tuple(a.to(cast) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args)
    training = mode == "train"
    steps = _optimizer(model, optimizer) if training else None
    criterion = loss or _default_loss

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "amp"):
            if not training:
                with torch.no_grad():
                    model(*args, **kwargs)
                return
            value = criterion(model(*args, **kwargs))
        value.backward()
        if steps is not None:
            steps.step()
            steps.zero_grad()
        else:
            model.zero_grad()

    backends = torch.backends
    before = backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32, model.training
    from ._record import weights_as

    try:
        backends.cuda.matmul.allow_tf32 = precision == "tf32"
        backends.cudnn.allow_tf32 = precision in ("pytorch", "tf32")
        model.train(training)
        with weights_as(cast), _checkpointed(model, checkpoint, training):
            return capture(step, name=name or type(model).__name__)
    finally:
        backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32 = before[:2]
        model.train(before[2])
