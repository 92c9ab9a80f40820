"""Write tasks for Campanile in Python.

    import campanile

    package = campanile.Package("hello", "0.1.0")

    @package.task
    def hello(run: campanile.Run, context: dict) -> dict:
        return {"message": f"Hello, {context['name']}!"}

    Describe, Task = package.exports()

componentize-py builds the module that has this. `campanile.testing` calls a task without a host.
"""

from . import http
from .bucket import Bucket
from .context import ContextError
from .failures import Denied, Failure, Permanent, Retryable
from .package import Completion, Package
from .run import Run

__all__ = [
    "Bucket",
    "Completion",
    "ContextError",
    "Denied",
    "Failure",
    "Package",
    "Permanent",
    "Retryable",
    "Run",
    "http",
]
