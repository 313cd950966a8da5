"""What stages are taken to cost before anything is measured; nothing here needs torch."""

from collections.abc import Sequence

__all__ = ["COST_RULE", "backward_costs"]

COST_RULE = (
    "a stage takes as long as its FLOPs, its backward pass twice as long and three times where it "
    "recomputes, and messages take no time"
)


def backward_costs(forward: Sequence[int], *, recomputes: Sequence[bool]) -> list[int]:
    """The cost of each stage's backward pass: gradients of inputs, of weights, and the forward pass again."""
    return [(3 if again else 2) * cost for cost, again in zip(forward, recomputes, strict=True)]
