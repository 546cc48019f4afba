"""``python -m demur`` is ``demur``."""

from demur.cli import main

if __name__ == "__main__":
    main()
