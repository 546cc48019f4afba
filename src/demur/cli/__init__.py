"""The command line: one file per command, put together in ``app``."""

from demur.cli.app import run

__all__ = ["run"]
