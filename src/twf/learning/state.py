"""All that a run is between two steps, as plain values and tensors, and back again.

A method may keep tensors, modules, a buffer, numbers, and lists, tuples and dicts by strings of
these in its attributes. Its modules and its buffer must be there after `setup`: they are filled,
not made.
"""

from typing import Any

import torch
from torch import Tensor, nn

from twf.learning.methods.base import Method
from twf.learning.replay.buffer import ReservoirBuffer

Tensors = dict[str, Tensor]


def capture(method: Method[Any]) -> dict[str, Any]:
    """Network, random generators and the method's own attributes; tensors are not copied."""
    learner = method.learner
    return {
        "network": learner.network,
        "generators": {name: g.generator.get_state() for name, g in learner.generators.items()},
        "method": _attributes(method),
    }


def restore(method: Method[Any], saved: dict[str, Any], tensors: Tensors) -> None:
    """Make a method, just set up, what it was when it was captured and flattened."""
    learner = method.learner
    fill(learner.network, saved["network"], tensors, learner.device)
    for name, state in saved["generators"].items():
        learner.generators[name].generator.set_state(tensors[state["tensor"]])
    for name, value in saved["method"].items():
        current = getattr(method, name, None)
        setattr(method, name, fill(current, value, tensors, learner.device))


def _attributes(method: Method[Any]) -> dict[str, Any]:
    """What a method holds, a buffer of two names once."""
    found: dict[str, Any] = {}
    for name, value in vars(method).items():
        again = isinstance(value, ReservoirBuffer) and any(value is o for o in found.values())
        if name not in ("learner", "hyperparameters") and not again:
            found[name] = value
    return found


def flatten(value: Any, tensors: Tensors) -> Any:
    """`value` as JSON knows it, its tensors copied to the host and into `tensors` by name."""
    if isinstance(value, Tensor):
        name = f"tensor-{len(tensors)}"
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name}
    if isinstance(value, nn.Module):
        training = [name for name, module in value.named_modules() if module.training]
        kept = {n: t for n, t in value.state_dict().items() if n not in _constant(value)}
        return {"parameters": flatten(kept, tensors), "training": training}
    if isinstance(value, ReservoirBuffer):
        return {name: flatten(getattr(value, name), tensors) for name in _BUFFER}
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: flatten(part, tensors) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [flatten(part, tensors) for part in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a run's state cannot hold {value!r:.80}: see {__name__}")


_BUFFER = ("seen", "rows", "pinned")


def _constant(module: nn.Module) -> frozenset[str]:
    """The names of a module's tensors that stay as they were made, and so need no saving."""
    names: frozenset[str] = getattr(module, "constant", frozenset())
    return names


@torch.no_grad()
def fill(current: Any, saved: Any, tensors: Tensors, device: torch.device) -> Any:
    """The value that `saved` stands for, its tensors on `device`.

    Where `current` is a module, a buffer or a tensor of the same shape and type, it is filled and
    given back: what refers to it still does, and its order in memory stays. So are the tensors of
    a dict or a list as long as before; a list is a tuple where `current` is one.
    """
    if isinstance(current, nn.Module):
        constant = {n: t for n, t in current.state_dict().items() if n in _constant(current)}
        current.load_state_dict(constant | fill(None, saved["parameters"], tensors, device))
        for name, module in current.named_modules():
            module.training = name in saved["training"]
        return current
    if isinstance(current, ReservoirBuffer):
        for name in _BUFFER:
            value = fill(getattr(current, name), saved[name], tensors, device)
            setattr(current, name, value)
        return current
    if isinstance(saved, dict):
        if saved.keys() == {"tensor"}:
            value = tensors[saved["tensor"]]
            if not isinstance(current, Tensor):
                return value.to(device)
            same = current.shape == value.shape and current.dtype == value.dtype
            return current.copy_(value) if same else value.to(device)
        there = current if isinstance(current, dict) else {}
        return {name: fill(there.get(name), part, tensors, device) for name, part in saved.items()}
    if isinstance(saved, list):
        as_long = isinstance(current, list) and len(current) == len(saved)
        kept = current if as_long or isinstance(current, tuple) else [None] * len(saved)
        parts = [fill(c, part, tensors, device) for c, part in zip(kept, saved, strict=True)]
        return tuple(parts) if isinstance(current, tuple) else parts
    return saved
