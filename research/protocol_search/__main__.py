"""Run the search: ``python -m research.protocol_search --data DIR --published DIR`` in the root of the repository."""

import argparse
import sys
from pathlib import Path

from demur.paper.problems import DataPlace
from demur.paper.trial_means import find_published
from demur.whole_file import write_whole
from research.protocol_search.page import protocol_page
from research.protocol_search.search import (
    SEARCH_TEST_ROWS,
    SEARCH_TRIALS,
    SearchStore,
    read_found,
    run_search,
    score_all,
    write_found,
)


def main() -> None:
    """Search, score and write the page."""
    parser = argparse.ArgumentParser(prog="python -m research.protocol_search", description=__doc__)
    parser.add_argument("--data", help="folder with the data sets; else DEMUR_DATA, else they are downloaded")
    parser.add_argument("--published", help="folder with the paper's tables as CSV; else DEMUR_PUBLISHED")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of search.csv and protocol.md")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--scheduler", help="run on Dask: a scheduler's address")
    parser.add_argument("--tables-only", action="store_true", help="write protocol.md again from search.csv")
    asked = parser.parse_args()
    if not asked.tables_only:
        paper = find_published(asked.published)
        if not paper.benchmark.values:
            parser.error("the search compares with the paper's tables: name their folder with --published")
        run_search(
            asked.out,
            DataPlace(asked.data),
            device=asked.device,
            scheduler=asked.scheduler,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
        write_found(asked.out, score_all(SearchStore(asked.out), paper.benchmark))
    found = read_found(asked.out)
    if not found:
        parser.error(f"{asked.out} has no search.csv; run without --tables-only first")
    page = protocol_page(found, trials=SEARCH_TRIALS, rows=SEARCH_TEST_ROWS)
    print(write_whole(asked.out / "protocol.md", page, overwrite=True))


if __name__ == "__main__":
    main()
