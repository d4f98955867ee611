"""Several processes share one GPU as far as its memory goes."""

import pytest
import torch

from snnl_book.experiments.runner import GIGABYTE, MEMORY_OF_A_RUN, jobs_that_fit


@pytest.fixture
def free_memory(monkeypatch):
    """Have the device report so many gigabytes of free memory."""

    def report(gigabytes):
        numbers = (int(gigabytes * GIGABYTE), 80 * GIGABYTE)
        monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda device: numbers)

    return report


def test_as_many_processes_run_as_asked_if_their_memory_is_free(free_memory, capsys):
    free_memory(80.5)
    assert MEMORY_OF_A_RUN == 5 * GIGABYTE
    assert jobs_that_fit(16, "cuda") == 16
    assert jobs_that_fit(3, "cpu") == 3
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("free", "fitting"), [(11.5, 2), (1.0, 1)])
def test_fewer_processes_run_if_memory_is_short_and_a_line_says_so(
    free, fitting, free_memory, capsys
):
    free_memory(free)
    assert jobs_that_fit(16, "cuda") == fitting
    assert capsys.readouterr().out == (
        f"cuda has {free:.0f} GB of free memory, and we reserve 5 GB for each process:"
        f" running {fitting} at a time instead of 16\n"
    )


def test_a_device_that_does_not_report_its_memory_gets_what_was_asked_for(monkeypatch):
    def unknown(device):
        raise RuntimeError("not implemented")

    monkeypatch.setattr(torch.accelerator, "get_memory_info", unknown)
    assert jobs_that_fit(4, "mps") == 4
