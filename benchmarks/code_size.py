"""Count the lines of code of both packages, without docstrings, comments and blank lines:
`python -m benchmarks.code_size`.
"""

import ast
import io
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("snnl_lib", "snnl_book")
_BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Count the lines of a Python source on which code stands.

    >>> code_lines('"Says what it is for."\\n\\nx = 1  # why\\n# only a comment')
    1
    """
    docstrings, code = set(), set()
    for node in ast.walk(ast.parse(source)):
        constant = getattr(node, "value", None) if isinstance(node, ast.Expr) else None
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
            docstrings.update(range(node.lineno, node.end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _BLANK:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def sizes() -> dict[str, int]:
    """Count each file: its path -> lines of code."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {str(path.relative_to(ROOT)): code_lines(path.read_text()) for path in paths}


if __name__ == "__main__":
    found = sizes()
    for name, lines in found.items():
        print(f"{lines:5d}  {name}")
    for package in PACKAGES:
        lines = sum(lines for name, lines in found.items() if name.startswith(f"{package}/"))
        print(f"{lines:5d}  in all of {package}")
