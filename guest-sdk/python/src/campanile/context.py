"""Reading a task's context, a JSON object, into a type."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

from .failures import Permanent

WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


class ContextError(Permanent):
    """The context does not have the type that the task declares."""


def read(value: Any, kind: Any, path: str = "") -> Any:
    """Return the JSON `value` as a `kind`: a dataclass, a builtin type, a list, a dict, a literal or a union of these.

    Keys that a dataclass does not have are ignored, because the host sets some. A null is as good as an absent key.
    """
    if kind is Any or kind is None or kind is dict or kind is list:
        return value if kind in (Any, None) else _expect(value, kind, path)
    if dataclasses.is_dataclass(kind):
        return _dataclass(value, kind, path)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(value, arguments, path)
    if origin is typing.Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            raise _wrong(value, " or ".join(json.dumps(choice) for choice in arguments), path)
        return value
    if origin is list:
        return [read(item, arguments[0], f"{path}[{at}]") for at, item in enumerate(_expect(value, list, path))]
    if origin is dict:
        items = _expect(value, dict, path).items()
        return {key: read(item, arguments[1], f"{path}.{key}" if path else key) for key, item in items}
    return _expect(value, kind, path)


def check(kind: Any, path: str = "", within: tuple = ()) -> None:
    """Check that `read` can read a `kind`. Raises: `TypeError`, which names the part of the type that JSON does not have."""
    if kind in (Any, None, types.NoneType, dict, list, *WORDS) or kind in within:
        return
    parts: list[tuple[str, Any]] = []
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        parts = [(f"{path}.{field.name}" if path else field.name, hints[field.name]) for field in dataclasses.fields(kind)]
    elif origin in (typing.Union, types.UnionType):
        parts = [(path, argument) for argument in arguments]
    elif origin is list:
        parts = [(f"{path}[]", arguments[0])]
    elif origin is dict and arguments[0] is str:
        parts = [(f"{path}.*" if path else "*", arguments[1])]
    elif origin is not typing.Literal:
        where = f"`{path}` of the context" if path else "the context"
        name = getattr(kind, "__name__", None) if origin is None else str(kind)
        raise TypeError(
            f"{where} cannot be read as {name or kind}: JSON has texts, numbers, true and false, null, lists, and objects "
            "with texts as keys; take one of these, a dataclass or a union of them, and convert it in the task"
        )
    for where, part in parts:
        check(part, where, (*within, kind))


def _dataclass(value: Any, kind: Any, path: str) -> Any:
    values = _expect(value, dict, path)
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        where = f"{path}.{field.name}" if path else field.name
        item = values.get(field.name)
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if item is None and has_default:
            continue
        if field.name not in values:
            raise ContextError(f"the context has no `{where}`; set it in the schedule's context")
        found[field.name] = read(item, hints[field.name], where)
    try:
        return kind(**found)
    except ValueError as error:
        # From a `__post_init__` that checks its values.
        raise ContextError(f"{path}: {error}" if path else str(error)) from error


def _union(value: Any, kinds: tuple, path: str) -> Any:
    if value is None and types.NoneType in kinds:
        return None
    failed: list[ContextError] = []
    for kind in kinds:
        if kind is types.NoneType:
            continue
        try:
            return read(value, kind, path)
        except ContextError as error:
            failed.append(error)
    raise failed[0]


def _expect(value: Any, kind: Any, path: str) -> Any:
    # JSON has one kind of number, and Python's bool is an int.
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        words = {**WORDS, dict: "an object", list: "a list"}
        raise _wrong(value, words.get(kind) or getattr(kind, "__name__", str(kind)), path)
    return value


def _wrong(value: Any, expected: str, path: str) -> ContextError:
    where = f"`{path}`" if path else "the context"
    return ContextError(f"{where} must be {expected}, not {json.dumps(value)}")
