"""Why a run does what it does: the papers' figures, drawn from the embeddings of this page's runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from manyview.report.html import Html, tag
from manyview.report.parts import attempted, left_out, section
from manyview.report.run_embeddings import EmbeddedRuns
from manyview.report.run_record import RunRecord
from manyview.report.sections.features import agreement, spectra, variance
from manyview.report.sections.negatives import ON_HELD_OUT, coupling, entropy
from manyview.report.sections.query import neighbourhoods, weights

LEAD = "The papers' own figures, made from this page's runs. Dashed or pale is the same encoder before training."


def diagnostics(records: Sequence[RunRecord], embedded: EmbeddedRuns) -> Html:
    shown = embedded.shown
    missing = [left_out(f"The embeddings of {name}", why) for name, why in embedded.missing.items()]
    small = [attempted(ON_HELD_OUT, partial(entropy, records, shown))]
    if shown:
        small += [
            attempted("Agreement of augmented views", partial(agreement, shown)),
            attempted("Variance of augmented views", partial(variance, shown)),
            attempted("Spectrum of the features", partial(spectra, shown)),
        ]
    large = []
    for number, each in enumerate(shown):
        name = f": {each.record.name}" if len(shown) > 1 else ""
        small.append(attempted(f"Coupling by batch size{name}", partial(coupling, each, name)))
        large.append(attempted(f"Weights of positives and negatives{name}", partial(weights, each, number, name)))
        large.append(attempted(f"A query's neighbourhood{name}", partial(neighbourhoods, each, name)))
    inside = tag("div", small, class_="grid"), tag("div", large, class_="grid pairs")
    return section("diagnostics", "Diagnostics", LEAD, inside, missing)
