"""Values as JSON, as the host takes them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any


def dumps(value: Any) -> str:
    """Return `value` as JSON; dataclasses become objects. Raises: `TypeError` or `ValueError` for what JSON does not have."""
    return json.dumps(value, default=_object, allow_nan=False)


def _object(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")
