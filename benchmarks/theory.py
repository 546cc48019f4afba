"""Time and memory of ``check_calibration`` for ``apc+log``, by number of classes.

Run it with ``python -m benchmarks theory``.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter

CLASSES = (8, 26, 100)
TARGET_SECONDS = {8: 3, 26: 15, 100: 90}
TARGET_MEGABYTES = 1000


def measure(n_classes: int) -> tuple[float, float]:
    """Return the seconds of one check in this process, and its peak memory in megabytes."""
    from demur.theory import check_calibration

    start = perf_counter()
    report = check_calibration("apc+log", n_classes, 0.2)
    seconds = perf_counter() - start
    assert not report.calibrated
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(arguments: Sequence[str] = ()) -> None:
    """Print one line per number of classes, each measured in a separate process."""
    print(f"{'classes':>8}{'seconds':>10}{'target':>8}{'whole process':>15}{'megabytes':>11}{'target':>8}")
    for n_classes in CLASSES:
        start = perf_counter()
        call = [sys.executable, "-m", "benchmarks.theory", str(n_classes)]
        seconds, megabytes = map(float, subprocess.run(call, capture_output=True, text=True, check=True).stdout.split())
        whole = perf_counter() - start
        print(
            f"{n_classes:>8}{seconds:>10.2f}{TARGET_SECONDS[n_classes]:>8}{whole:>15.2f}{megabytes:>11.0f}"
            f"{TARGET_MEGABYTES:>8}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*measure(int(sys.argv[1])))
    else:
        main()
