"""``python -m demur`` is ``demur``."""

from demur.cli import run

if __name__ == "__main__":
    run()
