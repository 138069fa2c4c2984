"""What an object still holds on to, found by walking everything that can be reached from it."""

from __future__ import annotations

import gc
import types
from typing import Any, Final

from mcp_tasks_core.server.states import TaskStates

_LEFT_OUT: Final = (type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, TaskStates)
"""Encodings of tasks are a bounded cache, and may outlive them."""


def names_within(root: Any) -> set[str]:
    """Every string that can be reached from an object, through containers, attributes, closures and generators."""
    seen: set[int] = set()
    found: set[str] = set()
    stack = [root]
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, _LEFT_OUT):
            continue
        seen.add(id(thing))
        if isinstance(thing, str):
            found.add(thing)
        elif isinstance(thing, types.FunctionType):
            stack.extend(cell.cell_contents for cell in thing.__closure__ or ())
        elif isinstance(thing, types.FrameType):
            stack.extend(thing.f_locals.values())
        elif isinstance(thing, types.GeneratorType):
            if thing.gi_frame is not None:
                stack.append(thing.gi_frame)
        else:
            stack.extend(gc.get_referents(thing))
    return found
