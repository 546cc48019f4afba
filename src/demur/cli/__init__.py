"""The command line: one file per command, put together in ``app``."""

from demur.cli.app import main, run

__all__ = ["main", "run"]
