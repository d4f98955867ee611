"""The cells of the ClusterBERT paper: what a CPU core can do and what waits for a GPU, the
ablation, the ranking tasks.
"""

from snnl_book import experiments
from snnl_book.experiments import short_texts
from snnl_book.experiments.cells import ALL_SHORT_TEXTS
from snnl_book.recipes import Recipe


def test_the_full_grid_has_the_floor_on_a_cpu_and_leaves_the_rest_to_a_gpu():
    specs = experiments.specs("clusterbert", "full", seeds=[42, 1234, 73, 1024, 31415926])
    here = [spec for spec in specs if not spec.needs]
    assert {spec.dataset for spec in specs} == set(short_texts.DATASETS)
    for dataset in short_texts.DATASETS:
        own = [spec for spec in here if spec.dataset == dataset]
        for embedding in ("tfidf", "sif", "sif-corpus", "minilm"):
            for clusterer in ("kmeans", "umap"):
                found = [
                    spec
                    for spec in own
                    if (spec.embedding, spec.model, spec["clusterer"])
                    == (embedding, "plain", clusterer)
                ]
                assert [spec.seed for spec in found if spec.n_train == ALL_SHORT_TEXTS] == [
                    42,
                    1234,
                    73,
                    1024,
                    31415926,
                ]
                assert [spec.seed for spec in found if spec.n_train == 2000] == [42, 1234, 73]
        for model in ("tsdae", "clusterbert"):
            found = [spec for spec in own if (spec.model, spec["clusterer"]) == (model, "kmeans")]
            assert [spec.seed for spec in found] == [42, 1234, 73]
            assert all(spec.n_train == 2000 for spec in found)
        idec = {(spec.embedding, spec.model) for spec in own if spec["clusterer"] == "idec"}
        assert {("sif", "plain"), ("minilm-cls", "clusterbert")} <= idec
    waiting = {(spec.model, spec.n_train) for spec in specs if spec.needs}
    assert waiting == {
        ("tsdae", ALL_SHORT_TEXTS),
        ("clusterbert", ALL_SHORT_TEXTS),
        ("sccl", ALL_SHORT_TEXTS),
        ("sccl", 2000),
    }
    some = [spec for spec in specs if (spec.model, spec.n_train) == ("sccl", 2000)]
    assert len(some) == 18 and {spec.seed for spec in some} == {42, 1234, 73}
    assert {spec.dataset for spec in specs} - {spec.dataset for spec in some} == {
        "newsgroups20_openings"
    }
    assert {spec["steps"] for spec in some} == {1000} and all(spec.seconds > 0 for spec in some)


def test_the_ablation_differs_from_clusterbert_in_one_choice_each():
    main = dict(
        next(
            spec
            for spec in experiments.specs("clusterbert", seeds=[42])
            if spec.model == "clusterbert" and not spec.needs
        ).settings
    )
    changed = {}
    for spec in experiments.specs("clusterbert-ablation", seeds=[42]):
        own = dict(spec.settings)
        reading = own.pop("reading")
        changed[reading] = {name for name in own if own[name] != main[name]} | (
            {"pooling"} if spec.embedding != short_texts.START else set()
        )
    assert changed.pop("without reconstruction") == {"clustering_weight", "hardening_weight"}
    assert changed.pop("without stage 1 and reconstruction") == {
        "clustering_weight",
        "hardening_weight",
        "warm_up",
        "adaptation_epochs",
    }
    assert changed.pop("mean pooling") == {"pooling"}
    assert len(changed) == 3  # the other corners of the paper's grid
    assert all(names <= {"reclusterings", "clustering_epochs"} for names in changed.values())


def test_retrieval_asks_the_same_of_plain_vectors_and_of_both_kinds_of_clusterbert():
    found = [
        spec for spec in experiments.specs("retrieval", "full") if spec.dataset == "stackoverflow"
    ]
    assert {spec.seed for spec in found} == {42, 1234, 73}
    assert {spec.n_train for spec in found} == {2000}
    for task in (*short_texts.RANKINGS, "denoise"):
        own = [spec for spec in found if (spec["task"], spec.seed) == (task, 42)]
        plain = {spec.embedding for spec in own if spec.model == "plain"}
        assert plain == {*short_texts.WORD_VECTORS, "minilm", short_texts.START}
        recipes = {
            spec["reading"]: short_texts.recipe(spec) for spec in own if spec.model == "clusterbert"
        }
        alone = Recipe(clustering_weight=1, hardening_weight=1)
        assert recipes == {
            f"with reconstruction, {task}": Recipe(),
            f"without reconstruction, {task}": alone,
        }
        assert len(own) == len(plain) + len(recipes)
