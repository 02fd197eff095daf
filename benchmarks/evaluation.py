"""kNN and logistic regression against scikit-learn's on the same features, and kNN's memory at a million vectors.

    python benchmarks/evaluation.py

Prints markdown tables. The features are made up: classes that overlap, of 256 numbers, some of them correlated.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import numpy as np
import torch
from measure import MB, machine_facts, peak_extra_bytes, seconds
from torch import Tensor

from manyview.evaluate import knn_predict
from manyview.features.logistic import CS, Scaling, choose, fit, logits

CLASSES = 10


def features(rows: int, seed: int, dim: int = 256) -> tuple[Tensor, Tensor]:
    draw, shared = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(99)
    labels = torch.randint(CLASSES, (rows,), generator=draw)
    centres, mixing = torch.randn(CLASSES, dim, generator=shared), torch.randn(dim, dim, generator=shared) / dim**0.5
    return ((0.25 * centres[labels] + torch.randn(rows, dim, generator=draw)) @ mixing).relu(), labels


def share(predicted: Tensor, right: Tensor) -> float:
    return 100 * float((predicted == right).double().mean())


def compare_knn(k: int = 20, temperature: float = 0.1) -> list[str]:
    from sklearn.neighbors import KNeighborsClassifier

    (x, labels), (test, right) = features(20_000, 0), features(5_000, 1)
    found: dict[str, Tensor] = {}
    theirs = KNeighborsClassifier(
        k, metric="cosine", algorithm="brute", weights=lambda distance: np.exp((1 - distance) / temperature)
    ).fit(x.numpy(), labels.numpy())

    def scikit() -> None:
        found["theirs"] = torch.from_numpy(theirs.predict(test.numpy()))

    def manyview() -> None:
        found["ours"] = knn_predict(x, labels, test, k=k, temperature=temperature)

    return [row(f"kNN, k {k}, temperature {temperature}", found, right, seconds(manyview), seconds(scikit))]


def compare_logistic() -> list[str]:
    from sklearn.linear_model import LogisticRegression

    (x, labels), (test, right) = features(20_000, 0), features(5_000, 1)
    scaling = Scaling.of(x)
    x, test = scaling(x), scaling(test)
    rows = []
    for C in (1e-3, 0.01, 0.1, 1.0):
        found: dict[str, Tensor] = {}
        theirs = LogisticRegression(C=C, max_iter=1000)

        def scikit(theirs: LogisticRegression = theirs, found: dict[str, Tensor] = found) -> None:
            found["theirs"] = torch.from_numpy(theirs.fit(x.numpy(), labels.numpy()).predict(test.numpy()))

        def manyview(C: float = C, found: dict[str, Tensor] = found) -> None:
            found["ours"] = logits(fit(x, labels, CLASSES, C), test).argmax(1)

        rows.append(row(f"logistic regression, C {C:g}", found, right, seconds(manyview), seconds(scikit)))
    return [*rows, chosen(x, labels, test, right)]


def chosen(x: Tensor, labels: Tensor, test: Tensor, right: Tensor) -> str:
    """All of `linear-fast`: every C that is tried, and the last fit."""
    found: dict[str, Tensor] = {}

    def manyview() -> None:
        C, start = choose(x[:16_000], labels[:16_000], x[16_000:], labels[16_000:], CLASSES, CS)
        found["ours"] = logits(fit(x, labels, CLASSES, C, start=start), test).argmax(1)

    took = seconds(manyview)
    return f"| `linear-fast`, C chosen among {len(CS)} | {share(found['ours'], right):.2f} | | | {took:.1f} | |"


def row(name: str, found: dict[str, Tensor], right: Tensor, ours: float, theirs: float) -> str:
    scores = share(found["ours"], right), share(found["theirs"], right)
    told = f"{scores[0]:.2f} | {scores[1]:.2f} | {scores[0] - scores[1]:+.2f} | {ours:.1f} | {theirs:.1f}"
    return f"| {name} | {told} |"


def million(queries: int) -> None:
    """In a process of its own: kNN against 1,000,000 x 128, as JSON."""
    draw = torch.Generator().manual_seed(0)
    bank, labels = torch.randn(1_000_000, 128, generator=draw), torch.arange(1_000_000) % 1000
    asked = torch.randn(queries, 128, generator=draw)
    took: list[float] = []
    extra = peak_extra_bytes(lambda: took.append(seconds(lambda: knn_predict(bank, labels, asked, k=200))))
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"extra": extra, "peak": peak, "took": took[0]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=10_000, help="of the million vectors")
    parser.add_argument("--million", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.million:
        million(given.queries)
        return
    print("\n".join(machine_facts()))
    print("\n20,000 x 256 training features, 5,000 test features, 10 classes\n")
    print("| | manyview top-1 | scikit-learn | difference | manyview s | scikit-learn s |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("\n".join([*compare_knn(), *compare_logistic()]))
    command = [sys.executable, __file__, "--million", "--queries", str(given.queries)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"\nkNN of {given.queries:,} queries against 1,000,000 x 128 vectors, k 200, 1,000 classes:")
    print(f"* {told['took']:.0f} s")
    print(f"* peak memory of the process {told['peak'] / MB:,.0f} MB, {told['extra'] / MB:,.0f} MB above the vectors")


if __name__ == "__main__":
    main()
