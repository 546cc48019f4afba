"""The paper's experiments, declared: this page is the list of what is run.

Adding a method to the benchmark is one line below.
"""

from dataclasses import replace

from demur.paper.protocol import BenchmarkProtocol, Experiment, Method, Protocol, SyntheticProtocol

__all__ = ["BENCHMARK", "EXPERIMENTS", "SYNTHETIC", "quick"]

ALL_BETAS = ("acc", "rej", "mean")

BENCHMARK = Experiment(
    "benchmark",
    problems=("vehicle", "satimage", "yeast", "covtype", "letter"),
    methods=(
        Method("APC+log", betas=ALL_BETAS),
        Method("APC+exp", betas=ALL_BETAS),
        Method("MPC+log", betas=ALL_BETAS),
        Method("OVA+log"),
        Method("OVA+exp"),
        Method("CE"),
        Method("OVA+hin"),
    ),
    more=(
        Method("OVA+sq"),
        Method("OVA+sqhin"),
        Method("CS+hin"),
        Method("BEP"),
    ),
    protocol=BenchmarkProtocol(),
)
"""Tables 6 to 8 and Figures 2 and 4: 7,950 networks for the paper's seven methods, 1,800 for four more."""

SYNTHETIC = Experiment(
    "synthetic",
    problems=("20", "50", "100", "200", "500", "1000", "1500", "2000", "5000", "10000"),
    methods=(
        Method("APC+log+acc", "apc+log", betas=("acc",)),
        Method("APC+log+rej", "apc+log", betas=("rej",)),
        Method("APC+exp+acc", "apc+exp", betas=("acc",)),
        Method("APC+exp+rej", "apc+exp", betas=("rej",)),
        Method("MPC+log+acc", "mpc+log", betas=("acc",)),
        Method("MPC+log+rej", "mpc+log", betas=("rej",)),
        Method("OVA+log"),
        Method("OVA+exp"),
        Method("CE"),
    ),
    protocol=SyntheticProtocol(),
)
"""Table 2 and Figure 1; a problem is a number of training points per class."""

EXPERIMENTS = {"synthetic": SYNTHETIC, "benchmark": BENCHMARK}


def quick(experiment: Experiment) -> Experiment:
    """Return a short version of an experiment: every method, and every data set, but fewer of everything else.

    Examples
    --------
    >>> quick(SYNTHETIC).problems
    ('20', '200', '1000')
    """
    protocol = experiment.protocol
    if isinstance(protocol, SyntheticProtocol):
        short: Protocol = replace(protocol, trials=2, epochs=20, n_test=20_000)
        return replace(experiment, problems=("20", "200", "1000"), protocol=short, quick=True)
    assert isinstance(protocol, BenchmarkProtocol)
    short = replace(protocol, trials=2, epochs=10, max_train_rows=4_000, max_test_rows=10_000)
    return replace(experiment, protocol=short, quick=True)
