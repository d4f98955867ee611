"""Exit, because the commands are in ``snnl_book``."""

import sys

sys.exit("error: the commands are in the other package: python -m snnl_book --help")
