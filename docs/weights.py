"""Draws img/weights-*.svg: how hard each loss pulls a positive and pushes a negative, by their similarity to the query.

One query meets 256 negatives, whose similarities are bell-shaped around 0 with standard deviation 0.2, and one or more
positives. One key, the probe, is moved from far to near; all other keys stay where they are. A curve is the derivative
of the loss by the probe's similarity, taken by autograd through the very functions of `manyview.losses`.

    python docs/weights.py                     # svg files into docs/img
    python docs/weights.py --png somewhere     # png files, to look at
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from manyview.core.negatives import Negatives
from manyview.losses import align_uniform, cacr, dcl, hard_negative, info_nce, jcl, nce, nce_partition

Loss = Callable[[Tensor, Tensor, Negatives], Tensor]
Line = str | tuple[int, tuple[int, int]]
Curve = tuple[str, Tensor, str, Line]  # label, values over the grid, colour, line style

torch.set_default_dtype(torch.float64)

COUNT = 256
CROWD = 0.2 * torch.special.ndtri((torch.arange(COUNT) + 0.5) / COUNT)  # the quantiles of a normal distribution
POSITIVES = torch.linspace(-0.2, 0.98, 119)  # where the probe goes, as a positive
NEGATIVES = torch.linspace(-0.8, 0.95, 71)  # and as a negative
USUAL = 0.5  # the similarity of the positive while a negative is moved

# Okabe and Ito's colours and a grey, which stay apart for colour-blind readers; the line styles differ as well.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"
PULL, PUSH = "pull \u00d7 temperature", "push \u00d7 temperature"
SHARE = f"{PUSH} \u00d7 {COUNT}"  # 1 if all negatives are pushed alike
SOLID, DASHED, DOTTED, MIXED, DENSE = "-", "--", ":", "-.", (0, (6, 1))


def on_circle(similarity: Tensor) -> Tensor:
    """Unit vectors (..., 2) with these similarities to the query (1, 0). The losses see no more than that."""
    return torch.stack([similarity, (1 - similarity.square()).clamp_min(0).sqrt()], -1)


def slopes(loss: Loss, positives: Tensor, negatives: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative of the sum over N queries by each similarity, of the positives (N, K) and the negatives (N, M)."""
    positives, negatives = positives.clone().requires_grad_(), negatives.clone().requires_grad_()
    query = torch.tensor([[1.0, 0.0]]).expand(len(positives), 2)
    value = len(positives) * loss(query, on_circle(positives), Negatives(on_circle(negatives)))
    by_positive, by_negative = torch.autograd.grad(value, (positives, negatives))
    return by_positive, by_negative


def pull(loss: Loss, beside: Sequence[float] = (), batch: Tensor | None = None) -> Tensor:
    """Minus the slope by a positive, moved along; `beside` it the query's other positives, below it the `batch`."""
    curve = []
    for c in POSITIVES:
        positives = torch.tensor([[float(c), *beside]])
        positives = positives if batch is None else torch.cat([positives, batch[:, None]])
        curve.append(-slopes(loss, positives, CROWD.expand(len(positives), COUNT))[0][0, 0])
    return torch.stack(curve)


def push(loss: Loss, positives: Sequence[float] = (USUAL,)) -> Tensor:
    """The slope by a negative, moved along, which joins the crowd."""
    fixed = torch.tensor([list(positives)])
    return torch.stack([slopes(loss, fixed, torch.cat([c[None], CROWD])[None])[1][0, 0] for c in NEGATIVES])


def relative_push(loss: Loss, positives: Sequence[float] = (USUAL,)) -> Tensor:
    """The push in units of what the average negative of the crowd gets."""
    average = slopes(loss, torch.tensor([list(positives)]), CROWD[None])[1].mean()
    return push(loss, positives) / average


def draw_info_nce() -> Figure:
    figure, (left, right) = panels("InfoNCE")
    styles = [(0.07, BLUE, SOLID), (0.2, ORANGE, DASHED), (0.5, GREEN, MIXED)]
    losses = [(partial(info_nce, temperature=t), t, f"temperature {t}", colour, line) for t, colour, line in styles]
    draw(left, POSITIVES, [(label, t * pull(loss), colour, line) for loss, t, label, colour, line in losses])
    draw(right, NEGATIVES, [(label, COUNT * t * push(loss), colour, line) for loss, t, label, colour, line in losses])
    left.set(ylabel=PULL, ylim=(-0.05, 1.1))
    logarithmic(right, SHARE)
    return figure


def draw_dcl() -> Figure:
    figure, (left, right) = panels("DCL and DCLW")
    t = 0.1
    batch = torch.linspace(0.2, 0.95, 63)  # the other positives that DCLW compares with
    plain, coupled = partial(dcl, temperature=t), partial(info_nce, temperature=t)
    weighted = partial(dcl, temperature=t, sigma=0.5)
    curves = [
        ("InfoNCE", pull(coupled), GREY, DOTTED),
        ("DCL", pull(plain), BLUE, SOLID),
        ("DCLW, sigma 0.5", pull(weighted, batch=batch), ORANGE, DASHED),
        ("the same, detach_weights", pull(partial(weighted, detach_weights=True), batch=batch), GREEN, MIXED),
    ]
    draw(left, POSITIVES, [(label, t * values, colour, line) for label, values, colour, line in curves])
    left.set(ylabel=PULL, ylim=(-1.3, 3.6))
    shade(left, "pushed away")
    curves = [
        ("DCL, any positive", push(plain), BLUE, SOLID),
        ("InfoNCE, positive at 0.7", push(coupled, [0.7]), GREY, DASHED),
        ("InfoNCE, positive at 0.9", push(coupled, [0.9]), GREY, DOTTED),
    ]
    draw(right, NEGATIVES, [(label, t * COUNT * values, colour, line) for label, values, colour, line in curves])
    logarithmic(right, SHARE)
    return figure


def draw_jcl() -> Figure:
    figure, (left, right) = panels("JCL")
    t, beside = 0.2, [0.5, 0.6, 0.7, 0.8]
    strengths = [(0.0, GREEN, MIXED), (1.0, ORANGE, DASHED), (4.0, BLUE, SOLID)]
    curves = [
        (f"strength {s:.0f}", pull(partial(jcl, temperature=t, strength=s), beside), colour, line)
        for s, colour, line in strengths
    ]
    curves.append(("InfoNCE, mean over keys", pull(partial(info_nce, temperature=t), beside), GREY, DOTTED))
    draw(left, POSITIVES, [(label, 5 * t * values, colour, line) for label, values, colour, line in curves])
    left.set(ylabel=f"{PULL} \u00d7 5", xlim=(0.15, 1.02), ylim=(-0.8, 4))
    shade(left, "pushed away")
    spreads = [
        ("positives all at 0.6", [0.6] * 5, GREEN, MIXED),
        ("positives from 0.4 to 0.8", [0.4, 0.5, 0.6, 0.7, 0.8], ORANGE, DASHED),
        ("positives from 0.2 to 0.99", [0.2, 0.4, 0.6, 0.8, 0.99], BLUE, SOLID),
    ]
    curves = [
        (name, COUNT * t * push(partial(jcl, temperature=t), positives), colour, line)
        for name, positives, colour, line in spreads
    ]
    draw(right, NEGATIVES, curves)
    logarithmic(right, SHARE)
    right.set_title("Push on a negative (strength 4)")
    return figure


def draw_cacr() -> Figure:
    figure, (left, right) = panels("CACR")
    beside = [0.4, 0.6, 0.8]
    both: list[tuple[str, Loss, str, Line]] = [
        ("t_pos 1", partial(cacr, t_pos=1.0), BLUE, SOLID),
        ("t_pos 3", partial(cacr, t_pos=3.0), ORANGE, DASHED),
        ("t_pos 1, detach_weights", partial(cacr, t_pos=1.0, detach_weights=True), GREEN, MIXED),
        ("uniform", partial(cacr, attract="uniform", repel="uniform"), GREY, DOTTED),
    ]
    draw(left, POSITIVES, [(label, pull(loss, beside) * 2, colour, line) for label, loss, colour, line in both])
    left.set(ylabel="pull (1 = uniform)", ylim=(-0.8, 5))
    shade(left, "pushed away")
    both = [
        ("t_neg 0.9", partial(cacr, t_neg=0.9), ORANGE, DASHED),
        ("t_neg 2", partial(cacr, t_neg=2.0), BLUE, SOLID),
        ("t_neg 2, detach_weights", partial(cacr, t_neg=2.0, detach_weights=True), GREEN, MIXED),
        ("t_neg 2, cost rbf", partial(cacr, t_neg=2.0, cost="rbf"), PURPLE, DENSE),
        ("uniform", partial(cacr, repel="uniform"), GREY, DOTTED),
    ]
    draw(right, NEGATIVES, [(label, relative_push(loss), colour, line) for label, loss, colour, line in both])
    signed_logarithmic(right)
    return figure


def draw_hard_negative() -> Figure:
    figure, (left, right) = panels("Hard negatives and debiasing (HN-CL)")
    t = 0.5
    styles = [(0.0, GREY, DOTTED), (0.05, GREEN, MIXED), (0.1, BLUE, SOLID), (0.2, ORANGE, DASHED)]
    curves = [
        (f"tau_plus {share}", t * pull(partial(hard_negative, temperature=t, tau_plus=share)), colour, line)
        for share, colour, line in styles
    ]
    draw(left, POSITIVES, curves)
    left.set(ylabel=PULL)
    styles = [(0.0, GREY, DOTTED), (0.5, GREEN, MIXED), (1.0, BLUE, SOLID), (2.0, ORANGE, DASHED)]
    curves = [
        (f"beta {beta}", relative_push(partial(hard_negative, temperature=t, beta=beta)), colour, line)
        for beta, colour, line in styles
    ]
    draw(right, NEGATIVES, curves)
    signed_logarithmic(right)
    return figure


def draw_nce() -> Figure:
    figure, (left, right) = panels("NCE")
    t, population = 0.07, 50_000
    query, positive = torch.tensor([[1.0, 0.0]]), on_circle(torch.tensor([[USUAL]]))
    crowd = Negatives(on_circle(CROWD))
    z = float(nce_partition(query, positive, crowd, population=population, temperature=t))
    styles = [(0.1, GREEN, MIXED), (1.0, BLUE, SOLID), (10.0, ORANGE, DASHED)]
    losses = [
        (partial(nce, population=population, partition=factor * z, temperature=t), f"partition {name}", colour, line)
        for (factor, colour, line), name in zip(styles, ("Z / 10", "Z", "10 Z"), strict=True)
    ]
    draw(left, POSITIVES, [(label, t * pull(loss), colour, line) for loss, label, colour, line in losses])
    draw(right, NEGATIVES, [(label, t * push(loss), colour, line) for loss, label, colour, line in losses])
    left.set(ylabel=PULL, ylim=(-0.05, 1.1))
    right.set(ylabel=PUSH, ylim=(-0.05, 1.1))
    return figure


def draw_align_uniform() -> Figure:
    figure, (left, right) = panels("Alignment and uniformity (AU-CL)")
    styles = [(1.0, ORANGE, DASHED), (2.0, BLUE, SOLID), (4.0, GREEN, MIXED)]
    curves = [(f"alpha {a:.0f}", pull(partial(align_uniform, alpha=a)), colour, line) for a, colour, line in styles]
    draw(left, POSITIVES, curves)
    left.set(ylabel="pull", ylim=(0, 10))
    styles = [(1.0, GREEN, MIXED), (2.0, BLUE, SOLID), (3.0, ORANGE, DASHED)]
    curves = [(f"t {t:.0f}", relative_push(partial(align_uniform, t=t)), colour, line) for t, colour, line in styles]
    draw(right, NEGATIVES, curves)
    logarithmic(right, "push (1 = average negative)")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "info_nce": draw_info_nce,
    "dcl": draw_dcl,
    "jcl": draw_jcl,
    "cacr": draw_cacr,
    "hard_negative": draw_hard_negative,
    "nce": draw_nce,
    "align_uniform": draw_align_uniform,
}


def panels(title: str) -> tuple[Figure, tuple[Axes, Axes]]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    figure.suptitle(title, fontweight="bold")
    left.set_title("Pull on a positive")
    right.set_title("Push on a negative")
    left.set_xlabel("similarity of the positive to the query")
    right.set_xlabel("similarity of the negative to the query")
    return figure, (left, right)


def draw(axes: Axes, grid: Tensor, curves: Sequence[Curve]) -> None:
    axes.axhline(0, color="#999999", linewidth=0.8, zorder=0)
    for label, values, colour, line in curves:
        axes.plot(grid.tolist(), values.tolist(), linestyle=line, color=colour, linewidth=2, label=label)
    axes.grid(color="#e5e5e5", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def logarithmic(axes: Axes, label: str) -> None:
    axes.set(ylabel=label, yscale="log")
    axes.minorticks_off()


def signed_logarithmic(axes: Axes) -> None:
    """Linear around zero, logarithmic beyond 0.1, for pushes that become pulls."""
    ticks = [-1, -0.1, 0, 0.1, 1, 10, 100]
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.6)
    axes.set(ylabel="push (1 = average negative)", ylim=(-1, 2000))
    axes.set_yticks(ticks, labels=[str(tick) for tick in ticks])
    axes.minorticks_off()
    shade(axes, "drawn closer")


def shade(axes: Axes, meaning: str) -> None:
    """Where a force has the other sign."""
    bottom, _ = axes.get_ylim()
    axes.set_ylim(bottom=bottom)
    axes.axhspan(bottom, 0, color="#f0f0f0", zorder=-1)
    axes.text(0.02, 0.03, meaning, transform=axes.transAxes, fontsize=9, color="#555555")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw how each loss weighs its positives and negatives.")
    parser.add_argument("--png", type=Path, help="write png files into this folder instead")
    folder: Path | None = parser.parse_args().png
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"font.size": 10, "font.sans-serif": ["DejaVu Sans", "Verdana"]})
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "manyview"})  # text as text: small, and the same files
    for name, figure in FIGURES.items():
        if folder is None:
            target = Path(__file__).parent / "img" / f"weights-{name}.svg"
            figure().savefig(target, metadata={"Date": None}, facecolor="white")
        else:
            figure().savefig(folder / f"weights-{name}.png", dpi=90)


if __name__ == "__main__":
    main()
