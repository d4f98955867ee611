"""The command ``cluster``: cluster a file of your own texts."""

import contextlib
import json
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

from snnl_book import data, experiments, own_texts
from snnl_book.own_texts.clusters import RETURNS, check_options
from snnl_book.own_texts.tables import counted, map_values
from snnl_lib import SnnlError
from snnl_lib.checkpoint import whole_file

COLUMNS = ("cluster", "distance", "outlier")
"""What ``--out`` adds: the cluster, the distance from its mean, and 1 for an outlier."""
SAVED_METHODS = ("minilm", "clusterbert")
DEFAULTS = {"k": "auto", "method": "minilm", "seeds": ["42"], "pieces": own_texts.PIECES}
"""The options that a saved model determines, and their values without one."""
MISSING = ("na", "n/a", "nan", "none", "null")
"""What programs write for a missing value, in lower case."""


def add_arguments(add, devices: str) -> None:
    """Declare the arguments of the command with ``add_argument`` of an argument parser."""
    formats = "a table (.csv, .tsv, .xlsx), JSON (.json, .jsonl) or one text per line (.txt)"
    add("texts", type=Path, help=f"a file of texts: {formats}; it may be compressed (.gz)")
    add("--column", help="the column that holds the texts (default: the only column)")
    about = "the separator of the columns in a .csv or .tsv file"
    add("--sep", help=f"{about} (default: comma, semicolon, tab or |, whichever the file uses)")
    add("--encoding", help="the encoding of the file, such as cp1252 (default: utf-8)")
    about = "the number of clusters, or auto: the number with the largest silhouette, a measure of"
    add("--k", help=f"{about} how well clusters are separated (default: auto)")
    methods = "; ".join(f"{name}: {about}" for name, about in own_texts.METHODS.items())
    default = "default: minilm; MiniLM is a pretrained sentence encoder"
    add("--method", help=f"how to cluster; {methods} ({default})")
    about = "random seeds (whole numbers): the first seed determines the clusters, and the clusters"
    default = "from each further seed are compared with them (default: 42)"
    add("--seeds", nargs="+", help=f"{about} {default}")
    about = "number of tokens (pieces of words) that minilm and clusterbert read from each text,"
    default = f"at most 512 (default: {own_texts.PIECES})"
    add("--pieces", type=int, help=f"{about} {default}")
    about = "a file with one word per line; these words are not used to describe clusters"
    default = "very common words of the texts' languages"
    add("--stop-words", type=Path, help=f"{about} (default: {default})")
    about = "write to this .csv file all columns of your file and three more: cluster, distance"
    added = "(from the cluster's mean) and outlier (1 if the text is unusually far away, else 0)"
    add("--out", type=Path, help=f"{about} {added}")
    add("--report", type=Path, help="write to this .html file a web page with a map of the texts")
    about = f"save the model to this folder (only with method {' or '.join(SAVED_METHODS)})"
    add("--save", type=Path, help=about)
    about = "assign the texts to the clusters of the model that --save wrote to this folder"
    advice = "leave out --k, --method, --seeds and --pieces, which the model determines"
    add("--model", type=Path, help=f"{about}; {advice}")
    add("--device", default="auto", help=devices)


def run(args) -> int:
    """Cluster a file of texts, write the requested files, and print what is in each cluster.

    The table is written before anything is printed, so that an error while printing loses no work.
    """
    with _short_warnings():
        lines = _cluster(args)
    print(*lines, sep="\n")
    return 0


@contextlib.contextmanager
def _short_warnings():
    """Show warnings as one line each on standard error, without a file and its code."""

    def show(message, category, filename, lineno, file=None, line=None):
        print(f"warning: {message}", file=sys.stderr, flush=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _cluster(args):
    """Do the work of ``run`` and return the lines to print."""
    table, column = own_texts.read_table(
        args.texts, args.column, separator=args.sep, encoding=args.encoding
    )
    given = [name for name in DEFAULTS if getattr(args, name) is not None]
    if args.model and given:
        options = ", ".join(f"--{name}" for name in given)
        raise SnnlError(f"a saved model keeps its own settings: leave out {options}")
    for name in DEFAULTS.keys() - {*given}:
        setattr(args, name, DEFAULTS[name])
    seed, *other_seeds = experiments.parse_seeds(",".join(args.seeds))
    texts = table[column].fillna("").astype(str).str.strip()
    texts = texts[texts != ""]
    _check(args, table, list(texts))
    omit = own_texts.read_stop_words(args.stop_words) if args.stop_words else None
    if missing := int(texts.str.lower().isin(MISSING).sum()):
        found = f"{counted(missing, 'row')} with the text NA, N/A, nan, none or null"
        sentence = f"{found} will be clustered: clear these texts to leave them out"
        warnings.warn(sentence, own_texts.TextsWarning, stacklevel=2)
    blank = len(table) - len(texts)
    blank_rows = f", and {counted(blank, 'row')} without a text" if blank else ""
    _note(f"{counted(len(texts), 'text')} to cluster")
    device = experiments.check_device(args.device)
    lines = [f"{args.texts}, column {column}: {counted(len(texts), 'text')}{blank_rows}"]
    if args.model:
        clustering = own_texts.predict_clusters(list(texts), args.model, device)
    else:
        clustering, about = _clustered(list(texts), args, device, seed, other_seeds)
        lines += about
    if args.out:
        _write(args.out, table, texts.index, clustering)
        lines.append(f"{args.out}: the table with the added columns {', '.join(COLUMNS)}")
    if args.save:
        clustering.model.save(args.save)
        lines.append(f"{args.save}: the model; use it with cluster FILE --model {args.save}")
    if args.report:
        _note("drawing the map")
        title = f"{args.texts.name}, {column}"
        own_texts.write_page(args.report, title, list(texts), clustering, omit=omit)
        lines.append(f"{args.report}: a page with a map, to open in a browser")
    return lines + _described(list(texts), clustering, omit)


def _note(sentence):
    """Print a sentence about progress on standard error."""
    print(sentence, file=sys.stderr, flush=True)


def _check(args, table, texts):
    """Raise SnnlError for impossible arguments, before any long computation."""
    _check_file(args.out, "--out", ".csv")
    _check_file(args.report, "--report", ".html")
    check_options(args.method, args.pieces)
    if args.out and args.out.exists() and args.out.samefile(args.texts):
        raise SnnlError(f"--out would overwrite the texts in {args.texts}: name another file")
    taken = [name for name in COLUMNS if name in table.columns]
    if args.out and taken:
        problem = f"{args.texts} has a column {taken[0]}, which --out replaces"
        raise SnnlError(f"{problem}: rename it")
    if args.model:
        from snnl_book.methods._saving import saved_class

        saved_class(args.model)
    if args.save and args.method not in SAVED_METHODS:
        known = " or ".join(SAVED_METHODS)
        raise SnnlError(f"--save needs --method {known}: other methods have no model to save")
    if args.save:
        from snnl_book.methods._saving import check_place

        check_place(args.save)
    if args.k != "auto" and not (args.k.isdecimal() and 1 <= int(args.k) <= len(texts)):
        wanted = f"auto or a whole number from 1 to the number of texts ({len(texts)})"
        raise SnnlError(f"--k must be {wanted}, got {args.k!r}")


def _check_file(path, option, ending):
    """Raise SnnlError or OSError if a file cannot be written."""
    if path is None:
        return
    if path.suffix != ending or not path.parent.is_dir() or path.is_dir():
        article = "an" if ending == ".html" else "a"
        wanted = f"{article} {ending} file in an existing folder"
        raise SnnlError(f"{option} must be {wanted}, got {path}")
    tempfile.TemporaryFile(dir=path.parent).close()


def _clustered(texts, args, device, seed, other_seeds):
    """Choose k if it is auto, cluster, and compare the seeds; return the clustering and lines."""
    from sklearn.metrics import adjusted_rand_score

    lines, is_clear = [], True
    if args.k == "auto":
        k, is_clear, lines = _best_k(texts, args, device, seed)
    else:
        k = int(args.k)
    minutes = own_texts.typical_minutes(len(texts), args.method) * (1 + len(other_seeds))
    if minutes >= 0.1:  # nan where no time is recorded
        _note(f"this takes about {minutes:.1f} min on one CPU core, judging by recorded times")
    cluster = partial(
        own_texts.cluster_texts,
        texts,
        k,
        args.method,
        device=device,
        progress="ClusterBERT" if sys.stderr.isatty() else None,
        folder=data.cache_dir() / "clusterbert",
        pieces=args.pieces,
    )
    clustering = cluster(seed=seed)
    for other in other_seeds:
        others = cluster(seed=other).clusters
        agreement = adjusted_rand_score(clustering.clusters, others)
        doubt = "" if is_clear else ", which does not show that the clusters are real"
        lines.append(f"seed {other}: adjusted Rand index with seed {seed}: {agreement:.2f}{doubt}")
        lines.append(f"seed {other}: {_returning(clustering.clusters, others)}")
    return clustering, lines


def _returning(clusters, others):
    """Return a sentence about the clusters that another seed does not find again."""
    numbers = sorted(set(clusters.tolist()))
    shares = dict(zip(numbers, own_texts.shared_texts(clusters, others), strict=True))
    lost = [f"{number} ({share:.2f})" for number, share in shares.items() if share < RETURNS]
    if not lost:
        return "every cluster is found again"
    return f"not found again (share of texts in common below {RETURNS}): {', '.join(lost)}"


def _best_k(texts, args, device, seed):
    """Return the best number of clusters, whether it stands out, and lines about it."""
    vectors = own_texts.embed_texts(texts, args.method, device, args.pieces)
    progress = "numbers of clusters" if sys.stderr.isatty() else None
    tried = own_texts.silhouettes(vectors, seed=seed, progress=progress)
    k = own_texts.best_k(tried)
    values = ", ".join(f"{row.k}: {row.silhouette:.3f}" for row in tried.itertuples())
    lines = [f"k: {k}, which has the largest silhouette of those tried ({values})"]
    row = tried[tried["k"] == k].iloc[0]
    is_clear = own_texts.stands_out(tried)
    if not is_clear:
        chance = f"{row.chance:.2f} for vectors without clusters"
        largest = f"largest silhouette {row.silhouette:.2f}, against {chance}"
        lines.append(f"no number of clusters stands out ({largest}): compare several with --k")
    elif k == tried["k"].max():
        lines.append(f"{k} is the largest number tried: more clusters may fit better (set --k)")
    return k, is_clear, lines


def _described(texts, clustering, omit):
    """Return lines with the size, the words and the nearest text of each cluster."""
    shown = own_texts.describe_clusters(
        texts, clustering.clusters, clustering.vectors, nearest=1, omit=omit
    )
    lines = []
    for row in shown.itertuples():
        lines.append(f"{row.cluster:>4} {row.size:>6,}  {', '.join(row.words)}")
        lines.append(f"{'':13}{_on_one_line(row.nearest[0])[:60]}")
    return lines


def _on_one_line(text):
    """Return a text without line ends and without characters that steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _write(path, table, index, clustering):
    """Write the table with the columns of the clustering, blank for rows without a text."""
    import pandas as pd

    distances = clustering.distances.astype(float).round(4)
    values = clustering.clusters, distances, clustering.outliers.astype(int)
    types = "Int64", "Float64", "Int64"
    added = {
        name: pd.Series(column, index, dtype=dtype).reindex(table.index)
        for name, column, dtype in zip(COLUMNS, values, types, strict=True)
    }
    with whole_file(path) as file:
        map_values(table, _plain).assign(**added).to_csv(file, index=False)


def _plain(value):
    """Return a JSON object or list as text, and anything else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
