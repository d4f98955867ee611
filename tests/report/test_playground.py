"""The playground of the chapter on the loss, and what its script compares its numbers with."""

import json
import re

import pytest
import torch

from snnl_book.report import playground
from snnl_lib.losses import reference_loss


@pytest.fixture(scope="module")
def page():
    return playground.show_playground(42).data


def test_the_loss_gathers_forty_points():
    history = playground.descend(playground.starting_points(42), 1.0)
    assert len(history) == 201 and history[-1][0] < 0.5 * history[0][0]


def test_the_script_gets_the_loss_of_every_case(page):
    facts = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])
    assert set(facts["shown"]) <= set(facts["points"])
    case = next(case for case in facts["expected"] if case["distance"] == "cosine")
    points = torch.tensor(facts["points"][case["points"]], dtype=torch.float64)
    labels = torch.tensor(facts["labels"][case["labels"]])
    exact = reference_loss(points, labels, case["temperature"]).item()
    assert case["loss"] == pytest.approx(exact, rel=1e-9)


def test_a_picture_is_in_its_place_where_no_script_runs(page):
    inside = page.partition("<div data-snnl-playground>")[2].partition("</div>")[0]
    assert "<figure>" in inside and len(re.search('alt="(.*?)"', inside)[1]) > 60
