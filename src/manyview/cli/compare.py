"""The command `manyview compare`."""

import sys
from typing import Annotated, Any

from manyview.comparison.batch_rules import BATCH_RULES, SAME
from manyview.comparison.compare import compare as compared
from manyview.comparison.outcome import OUTCOME
from manyview.comparison.workers import Stopped
from manyview.core.errors import UserError


def compare(
    *,
    data: Annotated[str, "a folder of images with labels or of pairs, or a name of `manyview list data`"],
    methods: Annotated[tuple[str, ...], "names of `manyview list methods`; the others are compared with the first"],
    minutes: Annotated[float | None, "the same training time for all methods, instead of --epochs"] = None,
    seeds: Annotated[tuple[int, ...], "the number of seeds, from 0, or a list of them: 0,1,2"] = (3,),
    batch_rule: Annotated[str, f"the rule for each method's batch size: {', '.join(BATCH_RULES)}"] = SAME,
    recipe: Annotated[
        str | None, "a recipe for all methods; {method} stands for the method: cifar10-cpu-{method}"
    ] = None,
    jobs: Annotated[int, "runs at the same time, which share the cores"] = 1,
    protocols: Annotated[tuple[str, ...], "protocols of `manyview evaluate`, beside the kNN of training"] = (),
    out: Annotated[str | None, "the folder of the comparison; by default runs/compare-DATA"] = None,
    **settings: Any,
) -> int:
    """Trains every method with every seed on the same images, from the same weights, and reports which is better.

    Any setting of `manyview pretrain` may be given, for all methods: --epochs, --batch-size, ... The same command
    resumes a comparison that was stopped.
    """
    if not methods:
        raise UserError("methods", "is needed; give --methods A,B,...")
    try:
        found = compared(
            data, methods, seeds=seeds[0] if len(seeds) == 1 else seeds, minutes=minutes, recipe=recipe, out=out,
            jobs=jobs, batch_rule=batch_rule, protocols=protocols, **settings,
        )  # fmt: skip
    except Stopped as stopped:
        print(f"stopped; {stopped}", file=sys.stderr)
        return 130
    print(f"\n{found.table()}\n")
    print(
        f"Scores in points, ± one standard deviation over the seeds. {found.measure} is measured on {found.queries:,} "
        f"images, a standard error of {100 * found.standard_error:.1f}. All of it is in {found.folder / OUTCOME}"
    )
    for name in found.failed:
        print(f"left out: {name} has failed", file=sys.stderr)
    return 1 if found.failed else 0
