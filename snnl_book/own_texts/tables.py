"""Read a file of texts: tables, Excel sheets, JSON and lines, in any encoding."""

import csv
import gzip
import io
import json
import warnings
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from snnl_book import require
from snnl_book.embeddings.backbones import whole_characters
from snnl_lib import SnnlError

if TYPE_CHECKING:  # importing pandas would slow down the command line
    import pandas as pd

FORMATS = (".csv", ".tsv", ".jsonl", ".json", ".xlsx", ".txt")
SEPARATORS = ",;\t|"
ROWS_LOOKED_AT = 100  # to recognise the separator
EMPTY = "it is empty: give a file of texts"
REPLACEMENT = "\ufffd"  # for half a character
BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


class TextsError(SnnlError):
    """A file of texts that cannot be read, or texts that cannot be clustered."""


class TextsWarning(UserWarning):
    """Something about the texts or their clusters that a user could not see otherwise."""


def counted(count: int, noun: str) -> str:
    """Return a number and its noun.

    >>> counted(1, "text"), counted(2000, "text")
    ('1 text', '2,000 texts')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def read_table(
    path: str | Path,
    column: str | None = None,
    *,
    separator: str | None = None,
    encoding: str | None = None,
) -> tuple["pd.DataFrame", str]:
    """Read a file with one text per row.

    The ending of its name gives the format: ``.csv``, ``.tsv``, ``.xlsx`` (the first sheet
    with rows), ``.jsonl`` (a JSON object or list per line), ``.json`` (a list of those) or ``.txt``
    (a text per line). ``.gz`` may follow. Half an emoji, which some programs leave where they cut a
    text, is replaced with a TextsWarning.

    Args:
        path: the file.
        column: the column of the texts, and may be omitted if there is only one. The columns of
            JSON lists are called ``0``, ``1`` and so on.
        separator: the character between the fields of a .csv or .tsv file. By default it is
            recognised among comma, semicolon, tab and bar.
        encoding: as Python names it. The default is UTF-8, or UTF-16 if the file begins with its
            byte-order mark.

    Returns the table, with unchanged values, and the name of the column. Raises TextsError for a
    file that does not exist, is empty, does not have the format of its ending, or has no such
    column; SnnlError for an Excel file without openpyxl.

    >>> path = getfixture("tmp_path") / "texts.csv"
    >>> _ = path.write_text("id;title\\n1;red wine\\n2;sort a list\\n")
    >>> table, column = read_table(path, "title")
    >>> table[column].tolist()
    ['red wine', 'sort a list']
    """
    path = Path(path)
    ending = _ending(path)
    if ending not in FORMATS:
        known = ", ".join(FORMATS)
        advice = "rename, unpack or convert it"
        raise TextsError(
            f"{path} does not end in one of {known}, or in one of these and .gz: {advice}"
        )
    if separator is not None:
        separator = _checked_separator(separator, ending)
    try:
        content = path.read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        table = _parse(content, ending, separator, encoding)
    except TextsError as error:
        raise TextsError(f"{path}: {error}") from error
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        reason = getattr(error, "strerror", None)
        advice = "give the path of an existing file that you may read"
        if reason is None:  # the content is at fault
            reason = " ".join(str(error).split())[:200]
            advice = f"give a file whose content matches its ending {ending}"
        raise TextsError(f"{path} could not be read ({reason}): {advice}") from error
    table = _with_whole_characters(table)
    column = _column_of_texts(table, column, path)
    _check_values(table[column], column, path)
    return table, column


def _ending(path):
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _checked_separator(separator, ending):
    separator = {"\\t": "\t", "tab": "\t"}.get(separator, separator)
    if ending not in (".csv", ".tsv"):
        raise TextsError(
            f"a separator applies only to .csv and .tsv files, not {ending}: leave it out"
        )
    if len(separator) != 1 or separator in '"\r\n':
        wanted = "one character other than a quotation mark, or tab"
        raise TextsError(f"the separator must be {wanted}, got {separator!r}")
    return separator


def _parse(content, ending, separator, encoding):
    """Return the content of a file as a table."""
    import pandas as pd

    if ending == ".xlsx":
        return _sheet(content)
    text = _decoded(content, encoding)
    if ending == ".txt":
        return pd.DataFrame({"text": _lines(text)})
    if ending in (".json", ".jsonl"):
        return _json_table(text, ending)
    if separator is None:
        text, separator = _recognise_separator(text, "," if ending == ".csv" else "\t")
    options = {"sep": separator, "dtype": str, "keep_default_na": False}
    try:
        table = pd.read_csv(io.StringIO(text), **options)
        if len(table.columns) == 1:  # a blank line of a single column is an empty text
            table = pd.read_csv(io.StringIO(text), skip_blank_lines=False, **options)
        if not isinstance(table.index, pd.RangeIndex):  # pandas uses surplus fields as an index
            raise pd.errors.ParserError("a row has more fields than the header")
    except pd.errors.ParserError as error:
        problem = str(error).removeprefix("Error tokenizing data. C error: ").strip()
        found = {"\t": "tab"}.get(separator, repr(separator))
        advice = f"quote texts that contain the separator ({found}), or set another with --sep"
        raise TextsError(f"{problem}: close all quotes, {advice}") from error
    return table


def _sheet(content):
    require("openpyxl")
    import pandas as pd

    options = {"dtype": str, "keep_default_na": False, "engine": "openpyxl"}
    try:
        sheets = pd.read_excel(io.BytesIO(content), sheet_name=None, **options)
    except Exception as error:  # a damaged file can raise nearly anything
        problem = f"it is not an Excel file ({' '.join(str(error).split())[:100]})"
        raise TextsError(f"{problem}: save it as .xlsx or .csv") from error
    filled = [name for name, table in sheets.items() if len(table)]
    if not filled:
        raise TextsError(EMPTY)
    if len(filled) > 1:
        warnings.warn(f"only the first sheet, {filled[0]}, was read", TextsWarning, stacklevel=4)
    table = sheets[filled[0]]
    for name in table:  # pandas adds midnight to dates without a time
        if table[name].str.fullmatch(r"(\d{4}-\d\d-\d\d 00:00:00)?").all():
            table[name] = table[name].str.removesuffix(" 00:00:00")
    table.columns = table.columns.map(str)
    return table


def _decoded(content, encoding):
    mark = BYTE_ORDER_MARKS.get(content[:2])
    name = encoding or mark or "utf-8"
    example = "utf-16-le" if b"\0" in content else "cp1252" if encoding is None else "utf-8"
    advice = f"name its encoding, such as --encoding {example}"
    try:
        text = content.decode(name, "surrogatepass").removeprefix("\ufeff")
    except LookupError as error:
        advice = "name one that Python knows, such as utf-8, cp1252 or utf-16"
        raise TextsError(f"there is no encoding {name!r}: {advice}") from error
    except UnicodeDecodeError as error:
        problem = f"it is not in {name.upper()} (byte {content[error.start]:#x} at {error.start})"
        raise TextsError(f"{problem}: {advice}") from error
    if "\0" in text:
        problem = "it contains null characters, which no text has"
        raise TextsError(f"{problem}: give a file of texts, or {advice}")
    if not text.strip():
        raise TextsError(EMPTY)
    whole = whole_characters(text)
    _warn_of_halves(whole.count(REPLACEMENT) - text.count(REPLACEMENT))
    return whole


def _lines(text):
    """Return the lines of a text; unlike splitlines, split at line ends alone."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _recognise_separator(text, default):
    """Return a text without Excel's line ``sep=``, and the character that separates its fields.

    It is the one that gives the most rows as many fields as the header has, if these are two or
    more. The ``default`` is taken first.
    """
    first, _, rest = text.partition("\n")
    first = first.strip().strip('"')
    if first.startswith("sep=") and len(first) == 5:
        return rest, first[4]
    shares = {}
    for separator in [default, *SEPARATORS]:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        widths = []
        try:
            for row, _ in zip(rows, range(ROWS_LOOKED_AT), strict=False):
                widths.append(len(row))
        except csv.Error:  # a field that is longer than the module takes
            pass
        widths = [width for width in widths if width]  # 0: a blank line
        if widths and widths[0] > 1:
            shares[separator] = sum(width == widths[0] for width in widths) / len(widths)
    return text, max(shares, key=shares.get, default=default)


def _json_table(text, ending):
    import pandas as pd

    if ending == ".json":
        try:
            rows = json.loads(text)
        except json.JSONDecodeError as error:
            advice = "if each line is a JSON value, rename it to .jsonl"
            raise TextsError(f"it is not JSON ({error}): {advice}") from None
        if not isinstance(rows, list):
            raise TextsError("it does not hold a list: give a list of objects, one per text")
        numbered = list(enumerate(rows, start=1))
    else:
        lines = enumerate(_lines(text), start=1)
        numbered = [(number, _json_line(number, line)) for number, line in lines if line.strip()]
    if not numbered:
        raise TextsError(EMPTY)
    names = {dict: "an object", list: "a list", str: "a string"}
    expected = type(numbered[0][1])
    for number, row in numbered:
        if type(row) is not expected or expected not in names:
            found = names.get(type(row), f"the value {json.dumps(row)}")
            wanted = names.get(expected, "an object")
            where = "row" if ending == ".json" else "line"
            raise TextsError(f"{where} {number} is {found}: give {wanted} for each text")
    rows = [row for _, row in numbered]
    table = pd.DataFrame({"text": rows} if expected is str else rows, dtype=object)
    table.columns = table.columns.map(str)
    return table


def _json_line(number, line):
    try:
        return json.loads(line)
    except ValueError as error:
        raise TextsError(
            f"line {number} is not JSON ({error}): give one value per line, or rename it to .json"
        ) from None


def map_values(table: "pd.DataFrame", function) -> "pd.DataFrame":
    """Apply a function to each value of a table. Unlike ``table.map`` it keeps whole numbers whole.

    >>> import pandas as pd
    >>> map_values(pd.DataFrame({"id": [1, None]}, dtype=object), str)["id"].tolist()
    ['1', 'None']
    """
    import pandas as pd

    rows = [[function(value) for value in row] for row in table.itertuples(index=False, name=None)]
    return pd.DataFrame(rows, table.index, table.columns, dtype=object)


def _with_whole_characters(table):
    """Return a table in which no text or name holds half a character; warn of how many did."""
    halves = 0

    def mend(value):
        nonlocal halves
        if not isinstance(value, str) or value.isascii():
            return value
        whole = whole_characters(value)
        halves += whole.count(REPLACEMENT) - value.count(REPLACEMENT)
        return whole

    table = map_values(table.rename(columns=mend), mend)
    _warn_of_halves(halves)
    return table


def _warn_of_halves(count):
    if count:
        found = counted(count, "half character")
        sentence = f"replaced {found} by {REPLACEMENT}: some program cut an emoji in two"
        warnings.warn(sentence, TextsWarning, stacklevel=4)


def _column_of_texts(table, column, path):
    if column is None and len(table.columns) == 1:
        column = table.columns[0]
    if column not in table.columns:
        problem = "it has several columns, so it needs --column"
        if column is not None:
            problem = f"it has no column {column!r}"
        names = (name if name == name.strip() else repr(name) for name in table.columns)
        raise TextsError(f"{path}: {problem}: choose one of {', '.join(names)}")
    return column


def _check_values(texts, column, path):
    """Raise TextsError unless a column holds texts or numbers, and at least one text."""
    for row, value in enumerate(texts, start=1):
        if isinstance(value, dict | list):
            found = "an object" if isinstance(value, dict) else "a list"
            problem = f"row {row} has {found} in the column {column}, not a text"
            raise TextsError(f"{path}: {problem}: put the texts in a column of their own")
    if texts.fillna("").astype(str).str.strip().eq("").all():
        raise TextsError(f"{path} has no text in the column {column}: name another column")
