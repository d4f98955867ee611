"""Exit, because the commands are in ``snnl_book``."""

import sys

sys.exit("error: snnl_lib has no commands: run python -m snnl_book --help")
