"""`python -m manyview` is `manyview`."""

import sys

from manyview.cli import main

sys.exit(main())
