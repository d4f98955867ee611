"""What `make check-book` finds wrong without a browser: links that lead nowhere, and downloads that
are not what the records say.
"""

import check
import pytest

from snnl_book import report, results


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A book of two pages and one table, whose records are the real ones."""
    for name, place in (("SITE", tmp_path / "site"), ("SOURCE", tmp_path / "source")):
        (place / "tables").mkdir(parents=True)
        monkeypatch.setattr(check, name, place)
    return tmp_path / "site"


def pages(site, **texts):
    for name, text in texts.items():
        (site / f"{name}.html").write_text(text)
    return {f"{name}.html": check.Links(site / f"{name}.html") for name in texts}


def test_a_link_leads_to_a_page_and_a_place_in_it(site):
    there = (
        '<a href="two.html#here">x</a><a href="https://example.org/x">x</a><a href="#top">x</a><p'
        ' id="top"></p>'
    )
    assert check.broken_links(pages(site, one=there, two='<p id="here"></p>')) == []
    broken = check.broken_links(
        pages(
            site,
            one=(
                '<a href="two.html#gone">x</a><a href="three.html">x</a><a'
                ' href="_downloads/t.csv">x</a>'
            ),
            two="",
        )
    )
    assert [line.partition("the link ")[2] for line in broken] == [
        f"{name} leads nowhere" for name in ("_downloads/t.csv", "three.html", "two.html#gone")
    ]


def offered(site, table, name="shown.csv"):
    """Offer a table for download, as it was written or changed on the way."""
    (site / "_downloads").mkdir(exist_ok=True)
    for folder in (check.SOURCE / "tables", site / "_downloads"):
        table.to_csv(folder / name, index=False)
    return pages(site, one=f'<a class="download" href="_downloads/{name}">CSV</a>')


@pytest.fixture(scope="module")
def beside():
    return report.beside_paper(4, report.recorded("clustering", "ag_news"))


def test_a_table_that_is_as_its_chapter_wrote_it_and_as_the_records_say_passes(site, beside):
    assert check.differences(offered(site, beside)) == []


def test_a_mean_that_is_not_that_of_the_records_is_named(site, beside):
    row = beside.index[(beside["model"] == "AE(D)") & (beside["metric"] == "acc")][0]
    said = beside.assign(**{"our mean": beside["our mean"].where(beside.index != row, "0.901")})
    (line,) = check.differences(offered(site, said))
    assert "the mean of acc is" in line and "0.901 in the table" in line


def test_a_score_in_a_column_of_its_own_is_compared_too_where_one_setting_is_behind_the_row(site):
    records = report.recorded("clustering", "ag_news")
    table = report.means(records, ["acc", "chs"])
    assert check.differences(offered(site, table)) == []
    assert all(
        len(check.means_shown(row, row["records"].split())) == 2 for row in table.to_dict("records")
    )
    (line,) = check.differences(
        offered(site, table.assign(chs=table["chs"].where(table["model"] != "Orig.", "1")))
    )
    assert "the mean of chs is" in line and line.endswith("and 1 in the table")


def test_a_mean_over_random_encoders_counts_each_of_them_once(site):
    records = report.recorded("clustering", "ag_news", "infersent-random")
    assert {1, 2, 42, 73} <= set(records["seed"])
    table = report.beside_paper(3, records)
    assert check.differences(offered(site, table)) == []
    plain = records.groupby(["label", "metric"])["value"].mean()
    digits = table["our mean"].str.partition(".")[2].str.len()
    each = zip(table["model"], table["metric"], digits, strict=True)
    plain = [f"{plain.get((model, metric), 0):.{n}f}" for model, metric, n in each]
    odd = (table["our mean"] != plain) & table["model"].isin(["Orig.", "AE(D)"])
    assert odd.any()  # rows where six runs on three encoders have another mean
    said = table.assign(**{"our mean": table["our mean"].where(~odd, plain)})
    assert len(check.differences(offered(site, said))) == odd.sum()


def test_a_record_that_does_not_exist_and_a_file_changed_on_the_way_are_named(site, beside):
    odd = beside.assign(
        records=beside["records"].str.replace("clustering/", "clusterings/", regex=False)
    )
    assert all(
        "there is no record clusterings/" in line for line in check.differences(offered(site, odd))
    )
    found = offered(site, beside)
    (site / "_downloads" / "shown.csv").write_text("model,records\n")
    assert check.differences(found) == [
        "one.html: the download shown.csv is not the file written when the book was built"
    ]


def test_the_file_of_all_records_of_an_experiment_is_compared_value_by_value(site):
    records = results.load_results("lexicon").drop(columns="rows")
    assert check.differences(offered(site, records, "lexicon.csv")) == []
    for odd in (
        records.assign(value=records["value"].where(records.index != 3, 0.5)),
        records.iloc[1:],
    ):
        (line,) = check.differences(offered(site, odd, "lexicon.csv"))
        assert line.startswith("lexicon.csv: 1 values are not those in results/, such as")
