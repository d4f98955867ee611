"""Records beside the papers: tables, intervals, verdicts and figures. Nothing here trains."""

import pandas as pd

from snnl_book import results
from snnl_book.paper import literature, paper_corpora, paper_short_texts, paper_table
from snnl_book.report.labels import LABELS, SHORT_LABELS
from snnl_book.report.readings import minus_paper, nearest_reading
from snnl_book.report.select import (
    ReportError,
    by_stage,
    orphans,
    recorded,
    select,
    short_texts,
    stale,
    withdrawn,
)
from snnl_book.report.show import show_figure, show_file, show_table
from snnl_book.report.statistics import by_unit, interval, over_corpora, paired
from snnl_book.report.tables import (
    COMPUTED,
    FORMS,
    QUOTED,
    behind,
    benchmark,
    benchmark_files,
    benchmark_provenance,
    beside_paper,
    by_corpus,
    choices,
    compare,
    computing_seconds,
    differences,
    gain_row,
    in_papers_shape,
    includes_shared_training,
    means,
    paper_tables,
    plus_minus,
    show_difference,
    show_interval,
    show_number,
)
from snnl_book.report.words import (
    SIZES,
    apart,
    distance,
    in_words,
    over_seeds_alone,
    seeds_in_words,
    spread,
)
