"""Python's `logging`, to the log of the launch."""

from __future__ import annotations

import logging

from . import host

LEVELS = [
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warn"),
    (logging.INFO, "info"),
    (logging.DEBUG, "debug"),
]


class HostHandler(logging.Handler):
    """Sends records to the host. The name of the logger is the context of the line."""

    def emit(self, record: logging.LogRecord) -> None:
        level = next((word for least, word in LEVELS if record.levelno >= least), "trace")
        context = "" if record.name == "root" else record.name
        try:
            host.current().log(level, context, self.format(record))
        except Exception:
            self.handleError(record)


def install() -> None:
    """Let every logger send to the host, once."""
    root = logging.getLogger()
    if not any(isinstance(handler, HostHandler) for handler in root.handlers):
        root.addHandler(HostHandler())
        if root.level in (logging.NOTSET, logging.WARNING):
            root.setLevel(logging.INFO)
