"""The page that a reader of the results opens first."""

from collections.abc import Sequence

from demur.datasets.uci_sources import SOURCES
from demur.paper.claims import Finding, Judged
from demur.paper.material import Material
from demur.paper.numbers import Results
from demur.paper.page_results import benchmark_section, synthetic_section
from demur.paper.problems import training_rows
from demur.paper.protocol import Choice
from demur.paper.provenance import trace

__all__ = ["page"]

TITLE = """\
# Classification with rejection: the paper's experiments, run again

C. Ni, N. Charoenphakdee, J. Honda, M. Sugiyama:
*On the Calibration of Multiclass Classification with Rejection*, NeurIPS 2019."""

WHERE_EVERYTHING_IS = """\
- All figures: [tables.md](tables.md), [benchmark.csv](benchmark.csv), [synthetic.csv](synthetic.csv). Each of them
  comes from the records in [records](records), which also name the chosen hyper-parameters of every trial."""

HOW_CLAIMS_ARE_JUDGED = """\
A statement *holds* if it is true in every case counted, *does not hold* if in none, and *depends* otherwise. The same
test is applied to the paper's own printed tables, where these suffice."""

HOW_IT_WAS_MADE = """\
```
demur reproduce all --data DIR --out results/paper
```

The command continues where it was stopped; with a complete store it only draws the tables and figures again. The
records can also be computed on a machine that has numpy, scipy and torch alone, with
`python -m demur.paper.run all --data DIR --out DIR`, and brought back.

| | networks | diverged | training, s | everything else, s | device |
|---|---|---|---|---|---|"""


def page(material: Material) -> str:
    """Return README.md."""
    sections = [
        TITLE,
        material.warning(),
        _summary(material),
        _claims(material.claims),
        synthetic_section(material),
        benchmark_section(material),
        _choices(material),
        _provenance(material),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _summary(material: Material) -> str:
    lines = ["## In short", ""]
    compared = material.compared
    ce = next((one for one in compared if one.method == "CE"), None)
    if ce is not None:
        lines.append(
            f"- **Cross-entropy**: our mean 0-1-c risk is at or below the published one in {ce.at_or_below} of {ce.n} "
            f"cells (data set x cost) at the three decimals that the paper prints, in {ce.strictly} before rounding."
        )
    others = [one for one in compared if one.method != "CE"]
    if others:
        within, n = sum(one.within for one in others), sum(one.n for one in others)
        lines.append(
            "- **The other methods**: within the published mean plus three published standard deviations, or better, "
            f"in {within} of {n} cells."
        )
    verdicts = [judged.ours.verdict for judged in material.claims]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}"
        for verdict in ("holds", "depends", "does not hold", "not tested")
        if verdict in verdicts
    )
    lines.append(f"- **The paper's statements**, {len(verdicts)} of them, on our figures: {counts}.")
    for part in material.parts:
        run = trace(part.records)
        lines.append(
            f"- **{part.experiment.name.capitalize()}**: {run.networks:,} networks, {run.seconds_training:,.0f} s of "
            f"training on {' and '.join(run.devices)}."
        )
    return "\n".join([*lines, WHERE_EVERYTHING_IS])


def _claims(claims: Sequence[Judged]) -> str:
    rescaled = any(judged.rescaled for judged in claims)
    lines = [
        f"## The paper's statements, one by one\n\n{HOW_CLAIMS_ARE_JUDGED}\n",
        "| statement | in the paper | here | evidence | the paper's own tables |"
        + (" here, features in [-1, 1] |" if rescaled else ""),
        "|---|---|---|---|---|" + ("---|" if rescaled else ""),
    ]
    for judged in claims:
        cells = [judged.claim.statement, judged.claim.where, f"**{_verdict(judged.ours)}**", judged.ours.evidence]
        cells += [_verdict(judged.paper)] + ([_verdict(judged.rescaled)] if rescaled else [])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _verdict(finding: Finding | None) -> str:
    if finding is None:
        return ""
    return finding.verdict if finding.verdict == "not tested" else f"{finding.verdict} ({finding.counts})"


def _choices(material: Material) -> str:
    rows: dict[str, list[tuple[str, Choice]]] = {}
    for part in material.parts:
        for choice in part.experiment.protocol.choices():
            rows.setdefault(choice.setting, []).append((part.experiment.name, choice))
    lines = [
        "## What the paper leaves open",
        "",
        "Chosen once, for all methods; `--set NAME=VALUE` changes it.",
        "",
        "| setting | value | reason |",
        "|---|---|---|",
    ]
    for setting, found in rows.items():
        if len({choice.value for _, choice in found}) == 1:
            lines.append(f"| {setting} | {found[0][1].value} | {found[0][1].why} |")
        else:
            lines += [f"| {setting} ({name}) | {choice.value} | {choice.why} |" for name, choice in found]
    return "\n".join(lines)


def _provenance(material: Material) -> str:
    lines = ["## How this page was made", "", HOW_IT_WAS_MADE]
    runs = []
    for part in material.parts:
        groups = [(part.experiment.name, [method.name for method in part.experiment.methods])]
        if part.experiment.more:
            groups.append(("more losses", [method.name for method in part.experiment.more]))
        for name, methods in groups:
            run = trace(part.records, methods)
            runs.append(run)
            figures = (
                f"{run.networks:,}",
                f"{run.failed}",
                f"{run.seconds_training:,.1f}",
                f"{run.seconds_other:,.1f}",
            )
            lines.append(f"| {name} | {' | '.join(figures)} | {', '.join(run.devices)} |")
    versions = dict.fromkeys(version for run in runs for version in run.versions)
    memory = max((run.peak_memory_mb or 0 for run in runs), default=0)
    lines += ["", f"Versions: {'; '.join(versions)}. Peak memory of a process: {memory:,} MB."]
    if material.benchmark is not None:
        lines += ["", *_data_table(material.benchmark)]
    return "\n".join(lines)


def _data_table(part: Results) -> list[str]:
    """Return the paper's Table 3, with the rows that were used here."""
    lines = [
        "| data set | features | classes | training rows | test rows | sha256 of the rows | |",
        "|---|---|---|---|---|---|---|",
    ]
    hashes = {record.spec["problem"]: record.spec["data"] for record in part.records}
    n_test = {problem: scores[0].n for (problem, _, _), scores in part.scores.items()}
    for problem in part.problems:
        source, n_train = SOURCES[problem], training_rows(problem, part.experiment.protocol)
        sizes = f"{source.n_features} | {source.n_classes} | {n_train:,} | {n_test[problem]:,}"
        lines.append(f"| {problem} | {sizes} | `{hashes[problem][:16]}...` | {part.notes[problem]} |")
    return lines
