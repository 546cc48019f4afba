"""Names that users, files and messages use: a registry of classes by their names, and labels by their spelling."""

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from demur.array_types import AnyMapping
from demur.errors import InputError

T = TypeVar("T")
"""Base class of the registered classes."""


def suggestion(name: object, names: Iterable[str]) -> str:
    """Return a question about the most similar name, to put after a sentence; empty if none is similar.

    Examples
    --------
    >>> suggestion("aple", ["apple", "pear"])
    " Did you mean 'apple'?"
    """
    close = get_close_matches(str(name), names, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


class NamedClasses(Generic[T]):
    """Classes of one kind by their names; two classes cannot share one.

    Parameters
    ----------
    kind : str
        Name of the kind in messages, such as "loss".

    Examples
    --------
    >>> fruits = NamedClasses("fruit")
    >>> fruits.add("apple", dict, {"colour": "red"})
    >>> fruits["apple"]
    <class 'dict'>
    >>> fruits.make("apple", ripe=True)
    {'colour': 'red', 'ripe': True}
    >>> fruits["aple"]
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown fruit 'aple'. Did you mean 'apple'? Available: apple.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._classes: dict[str, type[T]] = {}
        self._fields: dict[str, AnyMapping] = {}

    def add(self, name: str, cls: type[T], fields: AnyMapping | None = None) -> None:
        """Register a class under a name, with the fields for its construction.

        A class with the same module and name is replaced, as when a notebook cell is run again.
        """
        known = self._classes.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise InputError(
                f"a {self._kind} named {name!r} is registered already, by {known.__module__}.{known.__qualname__}; "
                "give yours another name, or unregister that one first."
            )
        self._classes[name] = cls
        self._fields[name] = dict(fields or {})

    def variants(self, *variants: AnyMapping) -> Callable[[Any], Any]:
        """Return a decorator that registers a class with each of these fields, or with none, under its ``name``."""

        def decorate(cls: Any) -> Any:
            for fields in variants or ({},):
                self.add(cls(**fields).name, cls, fields)
            return cls

        return decorate

    def make(self, name: str, **fields: Any) -> T:
        """Return an object of the class of that name; the given fields replace the registered ones."""
        return self[name](**{**self._fields[name], **fields})

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._classes:
            hint = suggestion(name, self._classes)
            raise InputError(f"unknown {self._kind} {name!r}.{hint} Available: {', '.join(self)}.")
        return self._classes[name]

    def __delitem__(self, name: str) -> None:
        self[name]  # raises the error for an unknown name
        del self._classes[name], self._fields[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in alphabetical order."""
        return iter(sorted(self._classes))

    def classes(self) -> set[type[T]]:
        """Return all registered classes."""
        return set(self._classes.values())
