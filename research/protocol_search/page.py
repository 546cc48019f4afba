"""The page about the search for the paper's protocol."""

from collections.abc import Sequence

from demur.paper.trial_means import METRICS, Agreement
from research.protocol_search.search import CHOOSING, CONFIRMING, Found, Way, sum_of

HEADINGS = {"zoc_risk": "risks", "accepted_accuracy": "accuracies", "rejection_ratio": "rejected shares"}

TOP = """\
# Which choices give the paper's numbers

{n_protocols} protocols were trained, {trials} trials each, with up to {rows:,} test rows; each of them with {n_ways}
ways to choose among its candidates, from the same networks: {n} in all. A printed figure counts if it lies within two
printed standard deviations, plus half a printed digit, of the figure found. The search saw all of the paper's printed
figures and all of our test rows: it is a search for what was done, not for what should be.

## Chosen on some data sets, confirmed on the others

The two groups, every other data set of the paper's Table 3, were fixed before anything was run: {choosing}; and
{confirming}.

| chosen on | best there | way to choose | agreement there | on the others | the most that any reaches there |
|---|---|---|---|---|---|"""

BEST = """\
## The best over all data sets

| protocol | way to choose | {headings} | of all |
|---|---|{lines}---|"""

BY_PROBLEM = """\
## The best on each data set alone

What a data set prefers by itself; the differences between them are what no single protocol explains.

| data set | protocol | way to choose | {headings} |
|---|---|---|{lines}"""

ONE_BY_ONE = """\
## What each choice is worth

Every protocol with its best way to choose, all data sets together.

| protocol | way to choose | {headings} | of all |
|---|---|{lines}---|"""


def protocol_page(found: Sequence[Found], *, trials: int, rows: int) -> str:
    """Return the page, from what the search found."""
    by_key: dict[tuple[str, Way], dict[str, Agreement]] = {}
    for one in found:
        by_key.setdefault((one.protocol, one.way), {})[one.problem] = one.agreement
    everything = (*CHOOSING, *CONFIRMING)
    headings = {"headings": " | ".join(HEADINGS.values()), "lines": "---|" * len(METRICS)}
    sections = [_chosen_and_confirmed(by_key, trials, rows)]
    best = sorted(by_key, key=lambda key: -_total(_on(by_key[key], everything)))[:10]
    sections.append("\n".join([BEST.format(**headings), *(_row(key, by_key[key]) for key in best)]))
    lines = [BY_PROBLEM.format(**headings)]
    for problem in everything:
        for key in sorted(by_key, key=lambda key: -_total(by_key[key][problem]))[:3]:
            cells = (problem, key[0], _words(key[1]), *_counts(by_key[key][problem]))
            lines.append(f"| {' | '.join(cells)} |")
    sections.append("\n".join(lines))
    lines = [ONE_BY_ONE.format(**headings)]
    firsts: dict[str, tuple[str, Way]] = {}
    for key in sorted(by_key, key=lambda key: -_total(_on(by_key[key], everything))):
        firsts.setdefault(key[0], key)
    sections.append("\n".join([*lines, *(_row(key, by_key[key]) for key in firsts.values())]))
    return "\n\n".join(sections) + "\n"


def _chosen_and_confirmed(by_key: dict[tuple[str, Way], dict[str, Agreement]], trials: int, rows: int) -> str:
    n_protocols, n_ways = (len({key[place] for key in by_key}) for place in (0, 1))
    lines = [
        TOP.format(
            n_protocols=n_protocols,
            trials=trials,
            rows=rows,
            n_ways=n_ways,
            n=len(by_key),
            choosing=", ".join(CHOOSING),
            confirming=", ".join(CONFIRMING),
        )
    ]
    for there, elsewhere in ((CHOOSING, CONFIRMING), (CONFIRMING, CHOOSING)):
        best = max(by_key, key=lambda key: _total(_on(by_key[key], there)))
        most = max((_on(agreement, elsewhere) for agreement in by_key.values()), key=_total)
        shares = [*(_on(by_key[best], group) for group in (there, elsewhere)), most]
        texts = [f"{_share(one)} ({_total(one)} of {sum(one.of.values())})" for one in shares]
        lines.append(f"| {', '.join(there)} | {best[0]} | {_words(best[1])} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _on(by_problem: dict[str, Agreement], problems: Sequence[str]) -> Agreement:
    return sum_of(by_problem[problem] for problem in problems)


def _total(found: Agreement) -> int:
    return sum(found.within.values())


def _share(found: Agreement) -> str:
    return f"{_total(found) / max(1, sum(found.of.values())):.0%}"


def _row(key: tuple[str, Way], by_problem: dict[str, Agreement]) -> str:
    whole = _on(by_problem, (*CHOOSING, *CONFIRMING))
    return f"| {key[0]} | {_words(key[1])} | {' | '.join(_counts(whole))} | {_share(whole)} |"


def _counts(found: Agreement) -> list[str]:
    return [f"{found.within[metric]} of {found.of[metric]}" for metric in METRICS]


def _words(way: Way) -> str:
    tau = ", tau on test rows" if way.thresholds == "test" else ""
    return f"{way.criterion}, {way.ties}{tau}"
