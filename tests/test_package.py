"""The package itself: light to import, and honest about what is public."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import demur


def test_import_is_lazy():
    heavy = ["torch", "matplotlib", "pandas", "sklearn", "scipy"]
    code = f"import sys, demur; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_name_of_the_top_level_exists():
    for name in demur.__all__:
        assert getattr(demur, name) is not None
    assert demur.__version__ == importlib.metadata.version("demur")


def modules():
    """Every module that can be imported here: one needs Triton, which comes with the CUDA build of torch."""
    for module in pkgutil.walk_packages(demur.__path__, "demur."):
        if module.name.endswith("fused_kernels") and importlib.util.find_spec("triton") is None:
            continue
        if not module.name.endswith("__main__"):
            yield importlib.import_module(module.name)


def test_every_public_name_is_documented():
    undocumented = []
    for found in modules():
        for name in getattr(found, "__all__", []):
            thing = getattr(found, name)
            if not getattr(thing, "__module__", "").startswith("demur"):
                continue
            if not inspect.getdoc(thing):
                undocumented.append(f"{found.__name__}.{name}")
            if inspect.isclass(thing):
                undocumented += [
                    f"{found.__name__}.{name}.{member}"
                    for member, value in vars(thing).items()
                    if not member.startswith("_")
                    and (inspect.isfunction(value) or isinstance(value, property))
                    and not inspect.getdoc(getattr(thing, member))
                ]
    assert not undocumented


def test_no_two_modules_share_a_name():
    names = [path.stem for path in Path(demur.__file__).parent.rglob("*.py") if not path.name.startswith("__")]
    assert not {name for name in names if names.count(name) > 1}


def test_public_modules_list_their_names():
    for name in demur.__all__:
        found = getattr(demur, name)
        assert not inspect.ismodule(found) or found.__all__, name


@pytest.mark.slow
def test_few_files_lie_on_the_way_of_a_command():
    root = Path(__file__).parent.parent
    told = subprocess.run(
        [sys.executable, "-m", "benchmarks", "rooms"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    fit, evaluate = (int(number) for number in re.findall(r"^demur .*: (\d+) files$", told, re.MULTILINE))
    assert fit <= 26
    assert evaluate <= 24
    assert int(re.findall(r"(\d+) files in src/demur", told)[0]) <= 150


def test_the_architecture_page_names_files_that_exist():
    root = Path(__file__).parent.parent
    page = (root / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`([\w/]+\.py)`", page))
    assert len(named) > 20
    assert not {name for name in named if not any((root / place / name).is_file() for place in ("", "src/demur"))}
    packages = {path.parent.name for path in (root / "src/demur").glob("*/__init__.py")}
    assert packages == {*re.findall(r"(\w+)/", page.split("```")[1])}
