"""Draw the figures of the theory page that no command draws: ``python docs/figures/theory_figures.py``."""

from pathlib import Path

from demur.theory import calibration_function
from demur.theory.pictures import (
    draw_beta_bounds,
    draw_calibration_functions,
    draw_room,
    save,
)

HERE = Path(__file__).parent


def main() -> None:
    """Write the drawings beside this file."""
    save(
        draw_beta_bounds("apc+log", 0.2, [2, 3, 4, 6, 8, 10, 15, 20, 26]),
        HERE / "theory-beta.png",
    )
    functions = [
        calibration_function("ce", 8, cost) for cost in (0.05, 0.2, 0.4, 0.4999)
    ]
    save(draw_calibration_functions(functions), HERE / "theory-ce-costs.png")
    room = [
        calibration_function(name, 3, 0.2)
        for name in ("ce", "ova+log", "ova+exp", "ova+sq")
    ]
    room += [calibration_function(name, 3, 0.4999) for name in ("ce", "ova+log")]
    save(draw_room(room), HERE / "theory-room.png")


if __name__ == "__main__":
    main()
