"""What a record says of the machine it was made on."""

import os
import platform
import sys
from typing import Any

import numpy as np
import torch

from demur._version import __version__

__all__ = ["describe_environment", "peak_memory_mb"]


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Return versions, device and machine.

    Examples
    --------
    >>> describe_environment(torch.device("cpu"))["demur"] == __version__
    True
    """
    return {
        "demur": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "device_type": device.type,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "peak_memory_mb": peak_memory_mb(),
    }


def peak_memory_mb() -> int | None:
    """Return the most memory this process has held, in MB of 10^6 bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor() or platform.machine()
