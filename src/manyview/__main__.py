"""`python -m manyview` is `manyview`."""

import os
import sys

from manyview.cli.main import main

code = main()
if "TORCHELASTIC_RUN_ID" in os.environ:  # of torchrun, for which a run that was saved would have failed
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what connects the processes can abort, or wait for ever, while the interpreter takes it down
sys.exit(code)
