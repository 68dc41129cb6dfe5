"""By how much the loss differs from that of sending everything, each scheme at its best rate or at 0.1."""

from collections.abc import Mapping

from minips.lab import Best


def of_length(best: Best) -> dict[str, float]:
    """By how much a shorter step alone raises the loss: at the rate 0.1, and at its best rate."""
    (early, early_half), (late, half) = (best.difference("shrunk", "everything", rate) for rate in (0.1, None))
    return {"early": early, "early_half": early_half, "late": late, "half": half}


def of_bias(best: Best) -> dict[str, float]:
    """By how much nearest rounding raises the loss at its best rate, with both faults and with the bias alone."""
    (near, near_half), (alone, half) = (best.difference(name, "everything") for name in ("nearest", "stretched"))
    return {"near": near, "near_half": near_half, "stretched": alone, "half": half}


def of_variance(best: Mapping[int, Best]) -> dict[str, float]:
    """By how much random rounding raises the loss at its best rate, with 1 and with 8 workers."""
    (one, one_half), (eight, half) = (best[workers].difference("at random", "everything") for workers in (1, 8))
    return {"one": one, "one_half": one_half, "random": eight, "random_half": half}
