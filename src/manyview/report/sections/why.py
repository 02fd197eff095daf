"""Why a run does what it does: the papers' figures, drawn from the embeddings of this page's runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from manyview.report.html import Html, tag
from manyview.report.parts import attempted, left_out, section
from manyview.report.run_embeddings import Seen
from manyview.report.run_record import Told
from manyview.report.sections.coupling import coupling
from manyview.report.sections.entropy import entropy
from manyview.report.sections.neighbourhood import around
from manyview.report.sections.spectrum import spectra
from manyview.report.sections.spread import agreement, variance
from manyview.report.sections.weights import weights

LEAD = "The papers' own figures, made from this page's runs. Dashed or pale is the same encoder before training."


def why(told: Sequence[Told], seen: dict[str, Seen | str]) -> Html:
    shown = [each for each in seen.values() if isinstance(each, Seen)]
    missing = [
        left_out(f"What {name} makes of images", reason) for name, reason in seen.items() if isinstance(reason, str)
    ]
    small = [attempted("Entropy on images kept aside", partial(entropy, told, shown))]
    if shown:
        small += [
            attempted("Agreement of looks", partial(agreement, shown)),
            attempted("Variance of looks", partial(variance, shown)),
            attempted("Spectrum of the features", partial(spectra, shown)),
        ]
    large = []
    for number, each in enumerate(shown):
        name = f": {each.told.name}" if len(shown) > 1 else ""
        small.append(attempted(f"Coupling by batch size{name}", partial(coupling, each, name)))
        large.append(attempted(f"Weights of positives and negatives{name}", partial(weights, each, number, name)))
        large.append(attempted(f"A query's neighbourhood{name}", partial(around, each, name)))
    inside = tag("div", small, class_="grid"), tag("div", large, class_="grid pairs")
    return section("why", "Why", LEAD, inside, missing)
