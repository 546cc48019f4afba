"""The package itself: light to import, and honest about what is public."""

import importlib
import importlib.metadata
import inspect
import pkgutil
import subprocess
import sys

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


def public_objects():
    for module in pkgutil.walk_packages(demur.__path__, "demur."):
        if module.name.endswith("__main__"):
            continue
        found = importlib.import_module(module.name)
        for name in getattr(found, "__all__", []):
            thing = getattr(found, name)
            if getattr(thing, "__module__", "").startswith("demur"):
                yield pytest.param(thing, id=f"{module.name}.{name}")


@pytest.mark.parametrize("thing", list(public_objects()))
def test_every_public_name_is_documented(thing):
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                assert inspect.getdoc(getattr(thing, name)), name


def test_modules_list_their_public_names():
    for module in pkgutil.walk_packages(demur.__path__, "demur."):
        if not module.name.split(".")[-1].startswith("_"):
            assert hasattr(importlib.import_module(module.name), "__all__"), module.name
