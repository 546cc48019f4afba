"""``demur demo``: the main job in one command."""


def demo() -> None:
    """To be written."""
