"""A package: its tasks, and the functions that the host calls."""

from __future__ import annotations

import inspect
import json
import typing
from dataclasses import dataclass
from typing import Any, Callable

from . import host, logs
from .context import check, read
from .failures import Failure, Permanent
from .run import Run


@dataclass(frozen=True)
class Completion:
    """The result of a task that passes keys to the tasks that depend on it."""

    output: Any = None
    context: dict[str, Any] | None = None


@dataclass(frozen=True)
class TaskFunction:
    """A task: its id, its function, the type of its context, and its entry in the manifest."""

    id: str
    function: Callable[..., Any]
    context: Any
    entry: dict[str, Any]


class Package:
    """A package with tasks. `manifest` has more keys of the manifest, such as `requests`."""

    def __init__(
        self,
        name: str,
        version: str,
        *,
        summary: str | None = None,
        schedules: list[dict[str, Any]] | None = None,
        **manifest: Any,
    ):
        self.name = name
        self._manifest = {"name": name, "version": version, **manifest}
        if summary is not None:
            self._manifest["summary"] = summary
        if schedules is not None:
            self._manifest["schedules"] = schedules
        self.tasks: dict[str, TaskFunction] = {}

    def task(self, function: Callable[..., Any] | None = None, /, *, id: str | None = None, **entry: Any) -> Any:
        """Make a function a task: `@package.task`, or `@package.task(id="load", depends_on=["fetch"])`.

        The function takes the run, and the context in the type of its second parameter. It returns the output as a
        JSON value or a dataclass, or a `Completion`.
        """
        if function is None:
            return lambda function: self.task(function, id=id, **entry)
        task = id or function.__name__
        if task in self.tasks:
            raise ValueError(f"the package has two tasks named {task!r}; give one another `id`")
        self.tasks[task] = TaskFunction(task, function, _context_type(function), entry)
        return function

    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the package. It grants nothing."""
        if not self.tasks:
            raise ValueError(f"the package {self.name!r} has no task; write `@package.task` above a function")
        tasks = [{"id": task.id, **task.entry} for task in self.tasks.values()]
        return {**self._manifest, "tasks": tasks}

    def call(self, task: str, context: dict[str, Any]) -> Completion:
        """Call a task. Raises: `Failure` and its kinds, for what the task foresaw."""
        found = self.tasks.get(task)
        if found is None:
            raise Permanent(f"the package has no task {task!r}; it has {', '.join(self.tasks)}")
        arguments = [Run(context)]
        if found.context is not inspect.Parameter.empty:
            arguments.append(read(context, found.context))
        result = found.function(*arguments)
        return result if isinstance(result, Completion) else Completion(output=result)

    def exports(self) -> tuple[type, type]:
        """Return the classes `Describe` and `Task` that componentize-py looks for in the module."""
        package = self

        class Describe:
            def describe(self) -> str:
                return json.dumps(package.manifest())

        class Task:
            def run(self, task: str, context: str) -> Any:
                return _run(package, task, context)

        logs.install()
        host.connect()
        return Describe, Task


def _context_type(function: Callable[..., Any]) -> Any:
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) not in (1, 2):
        raise TypeError(f"the task {function.__name__} must take the run, and its context if it reads any")
    if len(parameters) == 1:
        return inspect.Parameter.empty
    kind = typing.get_type_hints(function).get(parameters[1].name, dict)
    try:
        check(kind)
    except TypeError as error:
        raise TypeError(f"the task {function.__name__}: {error}") from None
    return kind


def _run(package: Package, task: str, context: str) -> Any:
    """Call a task for the host. The types of the contract exist only inside WebAssembly."""
    wasi = host.connect()
    if wasi is None:
        raise RuntimeError("this is no component: call the task with `campanile.testing.call`")
    try:
        completion = package.call(task, json.loads(context))
    except Failure as failure:
        raise wasi.failure(failure) from failure
    return wasi.completion(completion)
