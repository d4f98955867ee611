"""Nothing in the packages acts from behind the scenes.

Which room may import which is a contract in pyproject.toml that `make lint` checks.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {"threading", "import_module", "__import__"}
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in ("snnl_lib", "snnl_book")
    for path in (ROOT / package).rglob("*.py")
}


def hidden_ways(source):
    """What of a source changes functions from outside of them, or imports by a name in a string:
    pairs of a line and what stands there.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Global():
                yield node.lineno, f"global {', '.join(node.names)}"
            case ast.Import() | ast.ImportFrom():
                names = {getattr(node, "module", None), *(alias.name for alias in node.names)}
                for name in names & FORBIDDEN:
                    yield node.lineno, name
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in FORBIDDEN:
                yield node.lineno, name


def test_what_is_hidden_is_found_and_what_is_not_is_let_be():
    for source, told in (
        ("import json, threading", "threading"),
        ("from threading import local", "threading"),
        ("def f():\n    from importlib import import_module", "import_module"),
        ("importlib.import_module(name)", "import_module"),
        ("__import__(name)", "__import__"),
        ("def f():\n    global x, y", "global x, y"),
    ):
        assert [what for _, what in hidden_ways(source)] == [told]
    assert not list(hidden_ways("import importlib.util\nimport multithreading\nx = 'threading'"))


def test_no_state_of_a_module_or_thread_and_no_name_in_a_string_decides_what_runs():
    hidden = [
        f"\n  {name}:{line}: {what}"
        for name, source in SOURCES.items()
        for line, what in hidden_ways(source)
    ]
    assert not hidden, f"pass what decides as an argument, and import by name:{''.join(hidden)}"
