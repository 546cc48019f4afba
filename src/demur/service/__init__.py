"""A model as a small HTTP service that answers in the words of ``demur predict``."""

from demur.service.app import create_app

__all__ = ["create_app"]
