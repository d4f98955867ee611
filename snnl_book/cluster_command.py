"""The command ``cluster``: cluster a file of texts of one's own."""

import contextlib
import json
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

from snnl_book import data, experiments, own_texts
from snnl_lib import SnnlError
from snnl_lib.checkpoint import whole_file


def add_arguments(add, devices: str) -> None:
    """Declare the arguments of the command by an argument parser's ``add_argument``."""
    formats = "a table (.csv, .tsv, .xlsx), JSON (.json, .jsonl) or a text per line (.txt)"
    add("texts", type=Path, help=f"a file of texts: {formats}; .gz may follow")
    add("--column", help="the column of the texts (default: the only one)")
    add("--sep", help="the separator of a .csv or .tsv file (default: recognised among , ; tab |)")
    add("--encoding", help="the encoding of the file, such as cp1252 (default: utf-8)")
    add("--k", default="auto", help="the number of clusters (default: auto, by the silhouette)")
    methods = "; ".join(f"{name}: {about}" for name, about in own_texts.METHODS.items())
    add("--method", default="minilm", help=f"{methods} (default: minilm)")
    about = "the first makes the clusters, the others are compared with it (default: 42)"
    add("--seeds", nargs="+", default=["42"], help=about)
    add("--out", type=Path, help="write the table with a column cluster to this .csv file")
    add("--save", type=Path, help="save the model in this folder (clusterbert)")
    add("--model", type=Path, help="use the clusters of a saved model instead of new ones")
    add("--device", default="auto", help=devices)


def run(args) -> int:
    """Cluster a file of texts, write what was asked for, and print what is in each cluster.

    Nothing is printed before the table is written, so that no terminal can lose the work.
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
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def _cluster(args):
    """Do the work of ``run`` and return the lines to print."""
    table, column = own_texts.read_table(
        args.texts, args.column, separator=args.sep, encoding=args.encoding
    )
    device = experiments.check_device(args.device)
    seed, *other_seeds = experiments.parse_seeds(",".join(args.seeds))
    texts = table[column].fillna("").astype(str).str.strip()
    texts = texts[texts != ""]
    _check(args, table, list(texts))
    blank = len(table) - len(texts)
    blank_rows = f", and {blank} rows without a text" if blank else ""
    lines = [f"{args.texts}, column {column}: {len(texts):,} texts{blank_rows}"]
    if args.model:
        clustering = _predicted(list(texts), args.model, device)
    else:
        clustering, about = _clustered(list(texts), args, device, seed, other_seeds)
        lines += about
    if args.out:
        _write(args.out, table, texts.index, clustering.clusters)
        lines.append(f"{args.out}: the table with a column cluster")
    if args.save:
        clustering.model.save(args.save)
        lines.append(f"{args.save}: the model; for new texts: cluster FILE --model {args.save}")
    return lines + _described(list(texts), clustering)


def _check(args, table, texts):
    """Raise SnnlError for whatever cannot be done, before it takes any time."""
    if args.out:
        if args.out.suffix != ".csv" or not args.out.parent.is_dir() or args.out.is_dir():
            raise SnnlError(f"--out must be a .csv file in an existing folder, got {args.out}")
        if "cluster" in table.columns:
            raise SnnlError(f"{args.texts} has a column cluster, which --out replaces: rename it")
        tempfile.TemporaryFile(dir=args.out.parent).close()
    if args.model and (args.k, args.method, args.seeds) != ("auto", "minilm", ["42"]):
        advice = "leave out --k, --method and --seeds"
        raise SnnlError(f"--model has its own k, method and seed: {advice}")
    if args.save and args.method != "clusterbert":
        raise SnnlError("--save needs --method clusterbert: other methods have no model to save")
    if args.save:
        from snnl_book.methods._saving import check_place

        check_place(args.save)
    if args.k != "auto" and not (args.k.isdecimal() and 1 <= int(args.k) <= len(texts)):
        wanted = f"auto or between 1 and the number of texts ({len(texts)})"
        raise SnnlError(f"--k must be {wanted}, got {args.k!r}")


def _predicted(texts, folder, device):
    """Return the clusters of texts by a saved model."""
    from snnl_book.methods import ClusterBERT

    model = ClusterBERT.load(folder, device)
    return own_texts.Clustering(model.predict(texts), model.transform(texts), model)


def _clustered(texts, args, device, seed, other_seeds):
    """Choose k if asked to, cluster, and compare the seeds; return the clustering and lines."""
    from sklearn.metrics import adjusted_rand_score

    lines = []
    if args.k == "auto":
        k, line = _best_k(texts, args.method, device, seed)
        lines.append(line)
    else:
        k = int(args.k)
    minutes = own_texts.typical_minutes(len(texts), args.method) * (1 + len(other_seeds))
    if minutes >= 0.1:  # nan where no time is recorded
        line = f"about {minutes:.1f} min on one CPU core, by recorded times"
        print(line, file=sys.stderr, flush=True)
    cluster = partial(
        own_texts.cluster_texts,
        texts,
        k,
        args.method,
        device=device,
        progress="ClusterBERT" if sys.stderr.isatty() else None,
        folder=data.cache_dir() / "clusterbert",
    )
    clustering = cluster(seed=seed)
    for other in other_seeds:
        agreement = adjusted_rand_score(clustering.clusters, cluster(seed=other).clusters)
        lines.append(f"seed {other}: adjusted Rand index with seed {seed}: {agreement:.2f}")
    return clustering, lines


def _best_k(texts, method, device, seed):
    tried = own_texts.silhouettes(own_texts.embed_texts(texts, method, device), seed=seed)
    k = own_texts.best_k(tried)
    values = ", ".join(f"{row.k}: {row.silhouette:.3f}" for row in tried.itertuples())
    return k, f"k: {k}, which has the largest silhouette of those tried ({values})"


def _described(texts, clustering):
    """Return lines with the size, the words and the nearest text of each cluster."""
    shown = own_texts.describe_clusters(texts, clustering.clusters, clustering.vectors, nearest=1)
    lines = []
    for row in shown.itertuples():
        lines.append(f"{row.cluster:>4} {row.size:>6,}  {', '.join(row.words)}")
        lines.append(f"{'':13}{_on_one_line(row.nearest[0])[:60]}")
    return lines


def _on_one_line(text):
    """Return a text without line ends and without characters that steer a terminal."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _write(path, table, index, clusters):
    """Write the table with a column of clusters, blank for rows without a text."""
    import pandas as pd

    column = pd.Series(clusters, index, dtype="Int64").reindex(table.index)
    with whole_file(path) as file:
        table.map(_plain).assign(cluster=column).to_csv(file, index=False)


def _plain(value):
    """Return a JSON object or list as text, and anything else as it is."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
