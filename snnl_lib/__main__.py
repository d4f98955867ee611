"""``python -m snnl_lib`` says where the commands are."""

import sys

sys.exit("error: the commands are in the other package: python -m snnl_book --help")
