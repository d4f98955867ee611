"""The comparisons that are repeated on a second corpus."""

from snnl_book.experiments import second_corpus
from snnl_book.experiments.plan import specs


def test_each_comparison_that_is_repeated_is_one_of_the_first_corpus():
    for name, (seeds, chosen) in second_corpus.COMPARED.items():
        first = specs(name, "full", "newsgroups4")
        repeated = [spec for spec in specs(name) if spec.dataset == second_corpus.CORPUS]
        assert {spec.label for spec in repeated} == chosen, name
        assert {spec.embedding for spec in repeated} == {"spacy"}
        assert len(repeated) == len(set(repeated)) == len(seeds) * len(chosen)
        cells = {(spec.model, spec.alpha, spec.temperature, spec.settings) for spec in first}
        assert {(s.model, s.alpha, s.temperature, s.settings) for s in repeated} <= cells
