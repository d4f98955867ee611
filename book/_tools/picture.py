"""Draw the README's picture from the records, into book/images/clustering.png (make picture)."""

from pathlib import Path

import matplotlib as mpl

from snnl_lib import report
from snnl_lib.report import figures

mpl.use("agg")
figures.style()
records, paper = (
    report.recorded("clustering", "ag_news"),
    report.paper_table(4).query("embedding == 'spacy'"),
)
panels = [(records, paper, metric, metric) for metric in ("acc", "nmi", "ari")]
figure = figures.seed_figure(
    panels, "k-means on AG News: codes that saw the labels agree better with the classes"
)
target = Path(__file__).resolve().parents[1] / "images" / "clustering.png"
target.parent.mkdir(exist_ok=True)
figure.savefig(target, metadata={"Software": None})
