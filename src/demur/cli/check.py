"""``demur check``: is a loss calibrated for rejection?"""


def check() -> None:
    """To be written with the theory."""
