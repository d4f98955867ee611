"""Draw the README's picture, the claims that the papers lead with, from the records, into
book/images/claims.png (make picture).
"""

import json
from pathlib import Path

import claims_picture
import pandas as pd

TARGET = Path(__file__).resolve().parents[1] / "images" / "claims.png"


def leading(judged: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of ``claims.judge`` that the picture shows."""
    return judged[judged["headline"]].reset_index(drop=True)


def told(judged: pd.DataFrame) -> str:
    """Return what the picture says, to three digits, as it is written into the file; a test reads
    it there, and so sees when the records have moved on.
    """
    rows = [
        [row.claim, row.kind]
        + [[round(each[name], 3) for name in ("mean", "low", "high")] for each in row.contrasts]
        for row in leading(judged).itertuples()
    ]
    return json.dumps(rows, default=float)


def main() -> None:
    """Judge the claims, and draw."""
    import matplotlib as mpl

    from snnl_book.report import claims, figures

    mpl.use("agg")
    figures.style()
    judged = claims.judge()
    figure = claims_picture.figure_of(leading(judged), {})
    TARGET.parent.mkdir(exist_ok=True)
    figure.savefig(TARGET, dpi=160, metadata={"Software": None, "Description": told(judged)})


if __name__ == "__main__":
    main()
