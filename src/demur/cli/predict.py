"""``demur predict``: decisions for new rows."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Annotated, Any

import typer

from demur.cli.console import console, load_table_model, notes
from demur.cli.options import (
    COMPUTING,
    DECISION,
    OUTPUT,
    AllowExtra,
    DayFirst,
    DecimalSign,
    Delimiter,
    Force,
    ModelFolder,
    OtherCost,
    Prices,
    Repeatable,
    read_limits,
    read_prices,
)


def predict(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="Table of new rows, folder of Parquet files, or - for stdin.")] = "-",
    out: Annotated[
        str, OUTPUT("--out", "-o", help="File to write (.csv, .tsv, .parquet, .arrow), or - for stdout.")
    ] = "-",
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    cost: OtherCost = None,
    review_budget: Annotated[
        float | None, DECISION(help="Number or share of rows to decline, those with the largest saving first.")
    ] = None,
    price: Prices = None,
    capacity: Annotated[
        Repeatable,
        DECISION(metavar="NAME=LIMIT", help="Maximum number or share of rows for an expert; none for no limit."),
    ] = None,
    proba: Annotated[bool, OUTPUT("--proba", help="Write class probabilities, as proba:<class>.")] = False,
    why: Annotated[bool, OUTPUT("--why", help="Write the columns that explain declined rows, as because.")] = False,
    keep: Annotated[Repeatable, OUTPUT(metavar="COLUMN", help="Column to copy to the output.")] = None,
    keep_all: Annotated[bool, OUTPUT("--keep-all", help="Copy all columns to the output.")] = False,
    spreadsheet_safe: Annotated[
        bool, OUTPUT("--spreadsheet-safe", help="Put an apostrophe in front of cells that look like formulas.")
    ] = False,
    force: Force = False,
    chunk_rows: Annotated[int, COMPUTING(min=1, help="Rows to process at a time.")] = 65_536,
) -> None:
    """Decide for each row of a table, and write the decisions in the same order.

    Output columns: prediction (empty where the model declines), rejected,
    confidence, first_choice, second_choice and reason (ambiguous; out of scope;
    or novel, with the columns that have unusual values).

    --proba adds proba:<class> for each class. --review-budget adds saves, the
    expected saving of a review. --why adds because: the columns that make a
    declined row ambiguous or unusual.

    A model with experts adds ask (empty where the model answers), expected_cost,
    and system_answer if the table has the experts' answers. A cascade writes
    decision (ask or answer), service (whom to ask), answer, confidence, spent and
    reason; the cells of calls that were not made are empty in its input.

    Example: demur predict model/ new.csv --out decisions.csv --keep id
    """
    _import_scikit_learn()
    from demur.tabular import DecideOptions, decide_file
    from demur.workers import progress_bar

    options = DecideOptions(
        cost=cost,
        prices=read_prices(price) or None,
        capacity=read_limits(capacity) or None,
        review_budget=review_budget,
        proba=proba,
        why=why,
        keep=None if keep_all else tuple(keep or ()),
        strict=not allow_extra,
        chunk_rows=chunk_rows,
        delimiter=delimiter,
        decimal=decimal,
        dayfirst=dayfirst,
    )
    fitted = load_table_model(model, cascades=True)
    with progress_bar("rows", None) as progress:
        total = decide_file(
            fitted, data, out, options, overwrite=force, spreadsheet_safe=spreadsheet_safe, progress=progress
        )
    what = "to ask" if "decision" in fitted.answer_columns() else "for experts" if fitted.asks_experts else "declined"
    where = "" if out == "-" else f" to {out}"
    summary = f"Wrote {total.rows:,} decisions{where}: {total.rejected:,} {what} ({total.rejected / total.rows:.1%})."
    (notes if out == "-" else console).print(summary, markup=False, soft_wrap=True)


_ASKED_FOR = {
    "pandas": (
        "lightgbm.compat",
        "sklearn.compose._column_transformer",
        "sklearn.utils._mask",
        "sklearn.utils._missing",
        "sklearn.utils.fixes",
        __name__,
    ),
    "polars": ("catboost.core", "catboost.plot_helpers"),
}
"""Packages, and the modules that import them, if they are installed, only to recognise their types."""


class _WithoutFrames:
    """Import hook that lets the import of these packages fail in these modules."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in _ASKED_FOR:
            importing = sys._getframe(1)
            while importing.f_globals["__name__"].startswith("importlib") and importing.f_back:
                importing = importing.f_back
            if importing.f_globals["__name__"] in _ASKED_FOR[name]:
                raise ModuleNotFoundError(name)


class _Postponed(ModuleType):
    """A module that is imported when one of its functions is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            return lambda *args, **options: getattr(import_module(self.__name__), name)(*args, **options)
        return getattr(import_module(self.__name__), name)


def _import_scikit_learn() -> None:
    """Import scikit-learn and skops without modules that predictions do not use, which halves the time for one row.

    scikit-learn and LightGBM import pandas, if it is installed, and scikit-learn imports scipy.stats, for a few
    functions. skops imports every module of scikit-learn to list the estimators that it trusts;
    :mod:`demur.deploy.model_folder` recognises them by itself. Only the program does this: in a process of the user's,
    skops would trust no estimator afterwards.
    """
    if "sklearn" in sys.modules:
        return
    import_module("scipy.special")
    for name in [name for name in sys.modules if name not in ("numpy", "scipy.special")]:
        sys.modules[name] = sys.modules.pop(name)  # skops looks for each function of these two in module after module
    sys.meta_path.insert(0, _WithoutFrames)
    sys.modules["scipy.stats"] = _Postponed("scipy.stats")
    try:
        library: Any = import_module("sklearn.utils")
        complete, library.all_estimators = library.all_estimators, list
        import_module("skops.io")
        library.all_estimators = complete
        import_module("pyarrow").array([])  # looks for pandas; once more where it makes a data frame
    finally:
        del sys.modules["scipy.stats"]
