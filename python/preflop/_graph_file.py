"""What a recording becomes: the document that `preflop predict step.json` reads."""

from __future__ import annotations

from typing import Any

import torch

from ._session import Session

#: Raised when a reader of the older form would misread the newer one: the second has fused kernels.
FORMAT_VERSION = 1
COMPILED_VERSION = 2


def _tf32(backend: Any) -> bool:
    """May products of fp32 numbers run in TF32?"""
    try:
        return bool(backend.allow_tf32)
    except RuntimeError:
        # The newer setting was used; the older one then refuses to answer.
        return getattr(backend, "fp32_precision", "ieee") == "tf32"


def document(session: Session, name: str, samples: int | None) -> dict[str, Any]:
    """The recorded iteration as plain lists and dictionaries."""
    session.settle()
    last = session.final()
    training = any(op["phase"] != "forward" for op in last.ops)
    ran = [op for op in last.ops if not op.get("captured") and not op.get("view")]
    replayed = bool(ran) and all(op.get("replayed") for op in ran)
    compiled = session.compilation.report() if session.compilation is not None else None
    return {
        "format": "preflop-capture",
        "version": COMPILED_VERSION if compiled or replayed else FORMAT_VERSION,
        "name": name,
        "torch": torch.__version__,
        "samples": samples or session.samples_of(last) or 1,
        "seq": session.seq,
        "mode": "train" if training else "infer",
        "autocast": session.autocast,
        "tf32_products": _tf32(torch.backends.cuda.matmul),
        "tf32_convolutions": _tf32(torch.backends.cudnn),
        "parameters": session.parameter_elements,
        "parameter_tensors": last.parameter_tensors,
        "module_calls": last.module_calls,
        "first_op": last.begin,
        **({"peak_from": session.peak_from} if session.peak_from else {}),
        **({"side_streams": len(session.side_streams)} if session.side_streams else {}),
        "tensors": session.tensors,
        "storages": [[s["bytes"], s["kind"], s["first"], s["last"]] for s in session.storages],
        "ops": last.ops,
        **({"replayed": True} if replayed else {}),
        "assumptions": list(session.assumptions.values()),
        **({"notes": session.told()} if session.remarks else {}),
        **({"compile": compiled} if compiled else {}),
    }
