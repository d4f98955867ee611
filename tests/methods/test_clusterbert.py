"""ClusterBERT: each equation by hand, what the decoder can see, the stages, and resuming."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import SHORT_TEXTS as TEXTS

from snnl_book.embeddings import backbones
from snnl_book.embeddings.backbones import tokenize
from snnl_book.embeddings.transformers import load_encoder
from snnl_book.methods import _head, clusterbert
from snnl_book.methods.clusterbert import (
    ClusterBERT,
    batches_of_like_length,
    clustering_loss,
    head_of_centroids,
    match_clusters,
)
from snnl_book.methods.deep_clustering import target_distribution
from snnl_book.methods.tsdae import Decoder
from snnl_book.recipes import STAGES, Recipe
from snnl_lib import checkpoint

aten = torch.ops.aten
BRIEF = Recipe(
    batch_size=4, adaptation_epochs=1, reclusterings=2, clustering_epochs=1, hardening_epochs=1
)
TITLES = ["read a file", "write a file", "open a large file", "close the file"]
TITLES += ["sort a list", "sort a long list", "reverse a list", "join two lists"]


def fit(name, recipe=BRIEF, k=2, texts=TITLES, stages=3, others=(), **settings):
    return ClusterBERT(k, name, recipe, **({"seed": 7} | settings)).fit(
        texts, others=others, stages=stages
    )


WORDS = "embeddings.word_embeddings.weight"


def all_words(encoder, count):
    """The word embeddings of a whole vocabulary."""
    return encoder.eval().transformer.get_input_embeddings()(torch.arange(count))


# ---------------------------------------------------------------- the equations by hand


def test_the_clustering_loss_is_equation_3_of_equation_2():
    logits = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    targets = torch.tensor([[0.9, 0.1], [0.0, 1.0]])
    first = [math.e / (math.e + 1), 1 / (math.e + 1)]
    second = math.e**2 / (1 + math.e**2)
    by_hand = -(0.9 * math.log(first[0]) + 0.1 * math.log(first[1]) + math.log(second)) / 2
    assert clustering_loss(logits, targets).item() == pytest.approx(by_hand, rel=1e-6)


def test_equation_4_weighs_the_two_losses(roberta, monkeypatch):
    losses = lambda *_: tuple(torch.tensor(v, requires_grad=True) for v in (3.0, 5.0))  # noqa: E731
    monkeypatch.setattr(ClusterBERT, "_losses", losses)
    totals, backward = [], torch.Tensor.backward
    noting = lambda total: totals.append(total.item()) or backward(total)  # noqa: E731
    monkeypatch.setattr(torch.Tensor, "backward", noting)
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: None)
    fit(roberta)
    assert totals == pytest.approx([3.0] * 4 + [0.8 * 5 + 0.2 * 3] * 4 + [0.75 * 5 + 0.25 * 3] * 2)


# ---------------------------------------------------------------- head, targets and batches


def test_new_clusters_take_the_numbers_of_the_old_ones():
    before = np.array([0, 0, 1, 1, 2, 2])
    assert match_clusters(np.array([2, 2, 0, 0, 1, 1]), before, 3).tolist() == before.tolist()
    assert match_clusters(np.array([2, 2, 0, 0, 1, 0]), before, 3).tolist() == [0, 0, 1, 1, 2, 1]


def test_a_head_of_centroids_gives_each_text_to_the_nearest_and_starts_neither_blind_nor_sure():
    random = np.random.default_rng(0)
    centroids = random.normal(size=(5, 8)) * 3
    embeddings = centroids[random.integers(5, size=200)] + random.normal(size=(200, 8))
    weight, bias = head_of_centroids(centroids, embeddings)
    logits = torch.tensor(embeddings @ weight.T + bias)
    nearest = ((embeddings[:, None] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    assert logits.argmax(dim=1).tolist() == nearest.tolist()
    assert logits.softmax(dim=1).amax(dim=1).mean().item() == pytest.approx(
        _head.FIRST_CONFIDENCE, abs=1e-6
    )


def test_a_pass_sees_each_text_once_in_batches_of_like_length_and_another_order_each_time():
    lengths = np.random.default_rng(0).integers(1, 100, size=501)
    generator = torch.Generator().manual_seed(1)
    first, second = (list(batches_of_like_length(lengths, 8, generator)) for _ in range(2))
    for found in (first, second):
        assert sorted(np.concatenate(found)) == list(range(501))
        assert max(map(len, found)) == 8
        spread = np.mean([np.ptp(lengths[part]) for part in found])
        assert spread < 10 < np.ptp(lengths)
    assert [part.tolist() for part in first] != [part.tolist() for part in second]
    assert [len(part) for part in first] != sorted(len(part) for part in first)


# ---------------------------------------------------------------- the stages


def test_each_stage_leaves_its_embeddings_and_the_losses_it_trains(roberta):
    found = fit(roberta, others=["another file", "a list of lists"])
    assert tuple(found.embeddings) == STAGES
    for values in found.embeddings.values():
        assert values.shape == (10, 32) and np.isfinite(values).all()
    assert found.clusters.shape == (8,) and set(found.clusters) <= {0, 1}
    assert found.curve["stage"].tolist() == [1, 1, 2, 2, 3]
    assert found.curve["epoch"].tolist() == [-1, 0, 0, 1, 0]
    assert found.curve["clustering"].isna().tolist() == [True, True, False, False, False]
    hardened = found.embeddings["hardening"][:8]
    np.testing.assert_allclose(hardened, found.transform(TITLES), atol=1e-6)


def test_the_warm_up_leaves_the_encoder_as_it_is(roberta):
    found = fit(roberta, Recipe(batch_size=4, warm_up=2, adaptation_epochs=0), stages=1)
    np.testing.assert_array_equal(found.embeddings["start"], found.embeddings["domain adaptation"])
    assert (
        found.curve["reconstruction"].iloc[1] < found.curve["reconstruction"].iloc[0]
    )  # and what is new in the decoder does learn


def test_without_reconstruction_the_decoder_is_not_asked(roberta, monkeypatch):
    recipe = Recipe(
        batch_size=4, warm_up=0, adaptation_epochs=0, clustering_weight=1, hardening_weight=1
    )
    monkeypatch.setattr(Decoder, "forward", lambda *_: pytest.fail("the decoder was asked"))
    found = fit(roberta, recipe)
    assert found.curve["reconstruction"].isna().all()
    assert found.curve["clustering"].iloc[-1] < found.curve["clustering"].iloc[0]


def test_frozen_layers_and_the_embeddings_under_them_stay_and_the_others_learn(roberta):
    found = fit(roberta, Recipe(batch_size=4, frozen=1))
    before, after = (
        dict(encoder.transformer.named_parameters())
        for encoder in (load_encoder(roberta), found.encoder)
    )
    after |= {WORDS: all_words(found.encoder, len(before[WORDS]))}
    moved = {path for path in before if not torch.equal(before[path], after[path])}
    assert moved and all(path.startswith("encoder.layer.1.") for path in moved)


def test_words_that_no_text_has_stay_and_texts_that_have_them_can_be_embedded(roberta):
    whole = dict(load_encoder(roberta).transformer.named_parameters())[WORDS]
    found = fit(roberta, BRIEF)
    known = np.unique(np.concatenate(found.pieces.ids))
    moved = (all_words(found.encoder, len(whole)) != whole).any(dim=1).nonzero()[:, 0].tolist()
    ends = {found.pieces.start, found.pieces.end, found.pieces.pad}
    assert set(known) <= set(moved) <= {*known, *ends}
    assert len(known) < len(whole) // 2
    new = tokenize(["rain is expected at night"], roberta)
    assert not set(new.ids[0]) <= {*known, *ends}
    assert np.isfinite(found.transform(["rain is expected at night"])).all()


def test_an_empty_text_and_a_long_one_are_trained_on_as_well(roberta):
    found = fit(roberta, texts=[*TITLES, "", "list " * 400])
    assert found.pieces.cut == 1
    assert not found.diverged
    assert len(found.clusters) == 10


def test_numbers_of_clusters_and_stages_that_cannot_be_are_refused(roberta):
    for k in (0, 9, 2.0, True):
        with pytest.raises(ValueError, match=rf"number of texts \(8\), got {k!r}"):
            fit(roberta, k=k)
    for stages in (0, 4, None):
        with pytest.raises(ValueError, match=f"stages must be 1, 2 or 3, got {stages}"):
            fit(roberta, stages=stages)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (setting, value)
        for settings, values in (
            ("batch_size reclusterings clustering_epochs", (0, 1.5)),
            ("warm_up adaptation_epochs hardening_epochs frozen", (-1, 1.5)),
            ("learning_rate new_rate", (-1, math.nan, math.inf, "1")),
            ("deletion clustering_weight hardening_weight", (-0.1, 2, math.nan)),
        )
        for setting in settings.split()
        for value in values
    ],
)
def test_a_recipe_with_a_number_out_of_its_range_is_refused(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be a .* number .*, got {value!r}"):
        Recipe(**{setting: value})


def test_a_recipe_that_does_not_fit_the_backbone_or_is_none_is_refused(roberta):
    with pytest.raises(ValueError, match="frozen must be a whole number from 0 to 2, got 3"):
        fit(roberta, Recipe(frozen=3))
    with pytest.raises(ValueError, match=r"recipe must be a Recipe or None, got dict: pass Recipe"):
        fit(roberta, {"frozen": 1})


def test_others_may_be_none(roberta):
    assert fit(roberta, stages=1, others=None).embeddings["start"].shape == (8, 32)


def test_a_loss_that_is_not_finite_ends_the_run_and_says_where(roberta, monkeypatch):
    monkeypatch.setattr(
        clusterbert, "clustering_loss", lambda logits, targets: logits.sum() * math.nan
    )
    with pytest.warns(UserWarning, match=r"the training broke down \(the loss was nan in epoch 0"):
        found = fit(roberta)
    assert "the loss was nan in epoch 0 of stage 2 (clustering)" in found.diverged
    assert tuple(found.embeddings) == STAGES[:2]


@pytest.mark.parametrize(
    ("breaks_in", "moment", "finished"),
    [
        ((1, 0), "after stage 1 (domain adaptation)", 1),
        ((2, 0), "before epoch 1 of stage 2", 2),
        ((2, 1), "after stage 2 (clustering)", 2),
        ((3, 0), "after stage 3 (hardening)", 3),
    ],
)
def test_embeddings_that_break_with_the_last_step_end_the_run(
    roberta, tmp_path, monkeypatch, breaks_in, moment, finished
):
    end_epoch = ClusterBERT._end_epoch

    def breaking(self, stage, epoch, *results):
        end_epoch(self, stage, epoch, *results)
        if (stage, epoch) == breaks_in:
            torch.nn.init.constant_(next(self.encoder.parameters()), math.nan)

    monkeypatch.setattr(ClusterBERT, "_end_epoch", breaking)
    with pytest.warns(UserWarning, match="the training broke down"):
        found = fit(roberta, folder=tmp_path)
    assert found.diverged == f"the embeddings were not finite {moment}"
    assert tuple(found.embeddings) == STAGES[:finished]
    names = [path.name for path in tmp_path.iterdir()]
    assert not any(f"stage-{finished}.pt" in name for name in names), "a broken stage is not kept"


# ---------------------------------------------------------------- what each stage reads and aims at


def built(name, recipe=BRIEF, k=3):
    """A model just before its first stage."""
    model = ClusterBERT(k, name, recipe, seed=7)
    model.pieces, model._others = tokenize(TITLES, name), None
    model._build()
    model._forget_results()
    return model


def test_the_encoder_reads_the_noisy_text_and_the_decoder_writes_the_clean_one(
    roberta, monkeypatch
):
    model, read, written = built(roberta, Recipe(deletion=1.0)), [], []
    encoder, decoder = type(model.encoder).forward, Decoder.forward

    def reading(self, ids, mask):
        read.append(ids)
        return encoder(self, ids, mask)

    def writing(self, z, ids, mask):
        written.append(ids)
        return decoder(self, z, ids, mask)

    monkeypatch.setattr(type(model.encoder), "forward", reading)
    monkeypatch.setattr(Decoder, "forward", writing)
    with model._sources("clustering"):
        model._losses(np.arange(8), 0.5, torch.full((8, 3), 1 / 3))
    pieces = model.pieces
    assert torch.equal(written[0], pieces.batch(pieces.ids)[0])
    for row, ids, words in zip(read[0].tolist(), pieces.ids, pieces.words, strict=True):
        rest = [own for own in row if own not in (pieces.pad, pieces.start, pieces.end)]
        # One word is left.
        assert rest in [ids[words == word].tolist() for word in range(words[-1] + 1)]


def test_each_epoch_of_hardening_aims_at_equation_5_of_what_the_head_says_of_clean_texts_by_then(
    roberta, monkeypatch
):
    model, aims = built(roberta, Recipe(hardening_epochs=2)), []

    def epoch(self, stage, number, weight, targets, *checkpoint):
        p = self.head(torch.as_tensor(self.transform(TITLES))).softmax(dim=1).detach()
        aims.append(targets)
        torch.testing.assert_close(targets, target_distribution(p))
        assert not torch.allclose(targets, p, atol=1e-3)
        with torch.no_grad():
            self.head.bias += torch.tensor([1.0, 0.0, -1.0])  # as training would

    monkeypatch.setattr(ClusterBERT, "_epoch", epoch)
    with model._sources("hardening"), torch.no_grad():
        vectors = torch.as_tensor(model.transform(TITLES))
        logits = (vectors - vectors.mean(dim=0)) @ model.head.weight.T
        model.head.weight /= logits.std()  # what the head says of the texts differs by plenty
        model.head.bias.copy_(-(model.head.weight @ vectors.mean(dim=0)))
        model._train_stage(3)
    assert len(aims) == 2
    assert not torch.allclose(*aims, atol=1e-3)


def test_each_clustering_aims_at_k_means_of_its_time_numbered_as_before(roberta, monkeypatch):
    model, aims = built(roberta), []

    def epoch(self, stage, number, weight, targets, *checkpoint):
        aims.append(targets.argmax(dim=1).tolist())

    monkeypatch.setattr(ClusterBERT, "_epoch", epoch)
    monkeypatch.setattr(clusterbert, "match_clusters", lambda clusters, before, k: (before + 1) % k)
    with model._sources("clustering"):
        model._train_stage(2)
    first, second = aims
    assert set(first) == {0, 1, 2}
    # What the matching says, and nothing else.
    assert second == [(cluster + 1) % 3 for cluster in first]
    # The head starts from the first centroids.
    logits = model.head(torch.as_tensor(model.transform(TITLES)))
    assert logits.argmax(dim=1).tolist() == first


def test_what_is_new_learns_at_a_rate_of_its_own(roberta):
    model = built(roberta, Recipe(learning_rate=1e-5, new_rate=1e-2))
    with model._sources("clustering"):
        groups = model._optimizer.param_groups
    rates = {own: group["lr"] for group in groups for own in group["params"]}
    new = (*model.decoder.new_parameters.values(), *model.head.parameters())
    assert {rates[own] for own in model.encoder.parameters()} == {1e-5}
    assert {rates[own] for own in new} == {1e-2}


# ---------------------------------------------------------------- same bits, and going on after
# an interruption


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(roberta):
    torch.manual_seed(1)
    first = fit(roberta)
    torch.manual_seed(2)  # what else draws from the global source does not matter
    again, other = fit(roberta), fit(roberta, seed=8)
    np.testing.assert_array_equal(first.embeddings["hardening"], again.embeddings["hardening"])
    assert not np.array_equal(first.embeddings["hardening"], other.embeddings["hardening"])


@pytest.mark.parametrize("step", [1, 5, 8])  # within each stage
def test_a_run_interrupted_within_a_stage_goes_on_with_the_batch_it_was_at_to_the_same_bits(
    roberta, tmp_path, monkeypatch, step
):
    steps, adam_step = [], torch.optim.Adam.step

    def counted(self, *args, **kwargs):
        if len(steps) == step:
            steps.append("interrupted")
            raise KeyboardInterrupt
        steps.append("taken")
        return adam_step(self, *args, **kwargs)

    whole = fit(roberta)
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN", 0)
    monkeypatch.setattr(torch.optim.Adam, "step", counted)
    with pytest.raises(KeyboardInterrupt):
        fit(roberta, folder=tmp_path)
    assert_same_bits(whole, fit(roberta, folder=tmp_path))
    assert steps.count("taken") == 10, "two batches in each of five epochs, none twice"
    assert not list(tmp_path.glob("*under way*"))


def assert_same_bits(whole, resumed):
    for name in STAGES:
        np.testing.assert_array_equal(whole.embeddings[name], resumed.embeddings[name])
    np.testing.assert_array_equal(whole.clusters, resumed.clusters)
    assert whole.curve.equals(resumed.curve)


def test_recipes_that_differ_later_share_the_first_stage_and_a_finished_run_is_not_repeated(
    roberta, tmp_path, monkeypatch
):
    first = fit(roberta, folder=tmp_path)
    assert sorted(path.name[-10:-3] for path in tmp_path.iterdir()) == ["stage-1", "stage-3"]
    stages, train_stage = [], ClusterBERT._train_stage

    def noting(self, stage):
        stages.append(stage)
        return train_stage(self, stage)

    monkeypatch.setattr(ClusterBERT, "_train_stage", noting)
    fit(roberta, replace(BRIEF, clustering_weight=1, hardening_weight=1), folder=tmp_path)
    assert stages == [2, 3] and len(list(tmp_path.iterdir())) == 3
    again = fit(roberta, folder=tmp_path)
    assert stages == [2, 3]
    np.testing.assert_array_equal(first.clusters, again.clusters)
    np.testing.assert_array_equal(first.transform(TEXTS), again.transform(TEXTS))


def test_the_fingerprint_of_the_weights_is_part_of_a_checkpoints_name(
    roberta, tmp_path, monkeypatch
):
    fit(roberta, folder=tmp_path, stages=1)
    monkeypatch.setattr(backbones, "fingerprint", lambda name: "0ther")
    fit(roberta, folder=tmp_path, stages=1)
    assert len(list(tmp_path.iterdir())) == 2


# ---------------------------------------------------------------- a real corpus


def test_a_checkpoint_of_texts_trained_on_is_none_of_texts_embedded_alone(roberta, tmp_path):
    settings = {"folder": tmp_path, "stages": 1}
    fit(roberta, **settings)
    some = fit(roberta, texts=TITLES[:5], others=TITLES[5:], **settings)
    anew = fit(roberta, texts=TITLES[:5], others=TITLES[5:], stages=1)
    for stage, vectors in anew.embeddings.items():
        np.testing.assert_array_equal(some.embeddings[stage], vectors)


def test_a_refused_fit_and_new_parameters_leave_what_was_fitted(roberta, tmp_path):
    found = fit(roberta)
    labels, vectors = found.labels_, found.transform(TITLES)
    for texts in (TITLES[:3], "a text"):
        with pytest.raises(ValueError, match=r"number of clusters|list of strings"):
            found.set_params(k=99).fit(texts)
    found.set_params(k=3, seed=1)
    np.testing.assert_array_equal(found.labels_, labels)
    np.testing.assert_array_equal(found.transform(TITLES), vectors)
    found.save(tmp_path / "kept")
    kept = ClusterBERT.load(tmp_path / "kept")
    np.testing.assert_array_equal(kept.labels_, labels)
    np.testing.assert_array_equal(kept.predict(TITLES), found.predict(TITLES))
