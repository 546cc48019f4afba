"""One trained network for tables as a plain torch module; importing this loads torch."""

from collections.abc import Mapping

from torch import Tensor, nn

from demur.training.tabular_net import TabularNet, folded_scores

__all__ = ["TabularModule"]


class TabularModule(nn.Module):
    """One trained network, with its parts as parameters."""

    def __init__(self, net: TabularNet, parts: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.net = net
        self.parts = nn.ParameterDict({name: nn.Parameter(part.clone()) for name, part in parts.items()})

    def forward(self, x: Tensor) -> Tensor:
        parts = {name: part.unsqueeze(0) for name, part in self.parts.items()}
        scores: Tensor = folded_scores(self.net, parts, x)
        return scores[0]
