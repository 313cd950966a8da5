"""Draws the validations of committed ISBI 2012 results, fold by fold, beside the published figures.

    python benchmarks/isbi_curves.py --output docs/isbi2012.png

Reads what isbi_folds.py wrote into `benchmarks/results/`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from drivetrain.pictures.pyplot import load_pyplot

RESULTS = Path(__file__).parent / "results"
PUBLISHED = {"isbi_unet": 0.8917, "isbi_unet_medical": 0.8902, "isbi_unet_best": None, "isbi_unet_fast": None}


def draw_recipe(axes: Axes, recipe: str, result: dict[str, Any], *, published: float | None) -> None:
    """One recipe: every fold thin, their mean thick, the published figure as a line across."""
    curves = [fold["validations"] for fold in result["folds"]]
    for curve in curves:
        axes.plot(*zip(*curve, strict=True), color="tab:blue", linewidth=0.8, alpha=0.5)
    updates = [update for update, _ in curves[0]]
    means = [sum(dice) / len(dice) for dice in zip(*([value for _, value in c] for c in curves), strict=True)]
    axes.plot(updates, means, color="tab:blue", linewidth=2.0, label=f"mean of 5 folds: {means[-1]:.4f}")
    if published is not None:
        axes.axhline(
            published, color="tab:red", linestyle="--", linewidth=1.0, label=f"published {published}"
        )
    axes.set(title=recipe, xlabel="update", ylim=(0.84, 0.915))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    figure, axes = load_pyplot().subplots(1, len(PUBLISHED), figsize=(14, 3.6), sharey=True, squeeze=False)
    for place, (recipe, published) in zip(axes[0], PUBLISHED.items(), strict=True):
        result = json.loads((RESULTS / f"{recipe}-h200.json").read_text())
        draw_recipe(place, recipe, result, published=published)
    axes[0][0].set_ylabel("validation soft Dice")
    figure.tight_layout()
    figure.savefig(args.output, dpi=90)


if __name__ == "__main__":
    main()
