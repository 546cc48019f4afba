"""Finished studies about the paper, outside the package."""
