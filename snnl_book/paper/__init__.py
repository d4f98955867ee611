"""What the papers and the literature report, and what the papers claim, declared as data."""

from snnl_book.paper.declared import PAPERS, Claim, ClaimError, Contrast, Reading, registered_claims
from snnl_book.paper.tables import literature, paper_corpora, paper_short_texts, paper_table
