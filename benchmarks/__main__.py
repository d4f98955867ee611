"""``make bench`` (``python -m benchmarks``): the loss against its rivals, and training steps
against the time of their matrix products.

Both sides take turns, so that a machine that slows down slows both; the table holds medians and
quartiles. The memory of a step is measured in another process. Files in results/bench are rewritten
as sizes are done.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in every run; --threads sets another number

import numpy as np
import pandas as pd
import torch

from snnl_book import experiments, results

from . import _files, rivals

SIZES = {"cpu": (256, 512, 1024, 2048, 4096, 8192), "gpu": (256, 1024, 4096, 16_384, 65_536)}
FEATURES = {"cpu": (128, 500, 2000), "gpu": (128, 512, 2000)}
TEMPERATURE, CLASSES = 0.3, 4
LEAST_SECONDS, REPEATS = (
    2.0,
    (3, 60),
)  # each size until every side had so many seconds of turns, within these numbers of turns
MEBI = 2**20


def made_up(batch, features, device):
    """Features as a ReLU layer gives them, and labels of four classes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, features, generator=generator).relu().to(device)
    return x.requires_grad_(), torch.randint(CLASSES, (batch,), generator=generator).to(device)


def step(loss, x, y):
    """One forward and backward pass."""
    x.grad = None
    loss(x, y, TEMPERATURE).backward()


def bound(x, *_):
    """Three matrix products of 2 B² D operations: the table of cosines, and its gradient by either
    side.
    """
    with torch.no_grad():
        table = x @ x.T
        return table @ x, table.T @ x


def seconds(action, device):
    if device != "cpu":
        torch.accelerator.synchronize(device)
    started = time.perf_counter()
    action()
    if device != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter() - started


def in_turn(actions, device, repeats=REPEATS):
    """Time actions (name -> function) in turn: name -> list of seconds; one turn of each beforehand
    is not counted.
    """
    for action in actions.values():
        seconds(action, device)
    found = {name: [] for name in actions}
    fewest, most = repeats
    random, order = np.random.default_rng(0), list(actions)
    while True:
        for name in random.permutation(
            order
        ):  # nobody always inherits the same neighbour's cache and heap
            found[name].append(seconds(actions[name], device))
        turns = len(found[order[0]])
        if turns >= most or (turns >= fewest and min(map(sum, found.values())) >= LEAST_SECONDS):
            return found


# ---------------------------------------------------------------- memory


def memory_of(name, batch, features, device):
    """Return how many MiB a forward and backward pass takes at its peak beyond its inputs and their
    gradient.
    """
    x, y = made_up(batch, features, device)
    loss = rivals.LOSSES[name]
    x.grad = torch.ones_like(x)  # ones, for zeros take no memory before they are written to
    step(loss, *made_up(64, features, device))  # loads what is loaded once
    if device != "cpu":
        torch.accelerator.reset_peak_memory_stats(device)
        before = torch.accelerator.memory_allocated(device)
        loss(x, y, TEMPERATURE).backward()
        return (torch.accelerator.max_memory_allocated(device) - before) / MEBI
    before = _resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is resident now
    loss(x, y, TEMPERATURE).backward()
    return (_resident("VmHWM") - before) / 1024


def _resident(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1])


def memory_in_a_process(names, batch, features, device):
    """The same of several, in a process where freed memory goes back to the system at once: what is
    resident is what is in use.
    """
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        "memory",
        str(batch),
        str(features),
        *names,
        "--device",
        device,
    ]
    frugal = {"MALLOC_MMAP_THRESHOLD_": "65536", "MKL_DISABLE_FAST_MM": "1"}
    done = subprocess.run(
        command, env=os.environ | frugal, capture_output=True, text=True, check=True
    )
    return dict(zip(names, map(float, done.stdout.split()), strict=True))


# ---------------------------------------------------------------- the two comparisons


def compare_losses(device, sizes, widths, repeats, out):
    """Time all losses, and the bound, at every size; peak memory of one step each."""
    rows = []
    for features in widths:
        for batch in sizes:
            x, y = made_up(batch, features, device)
            actions = {"bound": lambda x=x: bound(x)} | {
                name: lambda f=f, x=x, y=y: step(f, x, y)
                for name, f in rivals.LOSSES.items()
                if fits(name, batch, device)
            }
            memory = memory_in_a_process(
                [name for name in actions if name != "bound"], batch, features, device
            )
            for name, times in in_turn(actions, device, repeats).items():
                low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
                found = {
                    "seconds": middle,
                    "low": low,
                    "high": high,
                    "turns": len(times),
                    "memory": memory.get(name, np.nan),
                }
                rows.append({"loss": name, "batch": batch, "features": features} | found)
            write(rows, out, device)
            own = {row["loss"]: row["seconds"] for row in rows[-len(actions) :]}
            print(
                f"B {batch}, D {features}: "
                + ", ".join(f"{name} {value * 1e3:.1f} ms" for name, value in own.items()),
                flush=True,
            )


def fits(name, batch, device):
    """Tables of all pairs of a rival that would not fit: about ten of them in float32."""
    room = (
        torch.accelerator.get_memory_info()[1]
        if device != "cpu"
        else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    )
    return name == "ours" or 40 * batch**2 < room


def compare_steps(device, repeats, out):
    """Time a step of ClusterBERT and of AE(D), its matrix products and its rival's step in turn."""
    from . import steps

    rows = []
    for row in steps.compare(device, in_turn, repeats):
        rows.append(row)
        write(rows, out, device)
        told = (
            f"{row['step']}: {row['seconds'] * 1e3:.0f} ms a step, {row['share']:.2f} of it bound"
        )
        rival = f"{row['rival_seconds'] * 1e3:.0f} ms, {row['ratio']:.2f} times as long"
        rival = row["rival"] + (f" {rival}" if np.isfinite(row["ratio"]) else "")
        print(f"{told}; {rival}", flush=True)


def write(rows, path, device):
    threads, facts = torch.get_num_threads(), _files.facts(device)
    if threads > 1:
        facts["device"] = facts["device"].replace("one thread", f"{threads} threads")
        facts["threads"] = threads
    frame = pd.DataFrame(rows).assign(**facts, created=_files.now())
    results.write_atomically(path, frame.to_csv(index=False, float_format="%.4g"))


def main():
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="The loss against its rivals, and training steps."
    )
    parser.add_argument("what", nargs="*", default=["loss", "step"], help="loss or step")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, mps or xpu (default: cpu)")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU (default: 1)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="batch sizes of the comparison of losses"
    )
    parser.add_argument("--features", type=int, nargs="+", help="numbers of features in it")
    parser.add_argument("--turns", type=int, help="exactly so many of each side (default: 3 to 60)")
    parser.add_argument(
        "--out",
        type=Path,
        default=results.results_dir("full") / "bench",
        help="folder of the tables",
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = experiments.check_device(args.device)
    if args.what[0] == "memory":
        batch, features, *names = args.what[1:]
        print(*(memory_of(name, int(batch), int(features), device) for name in names))
        return
    kind = device.split(":")[0] + (f"-{args.threads}" if args.threads > 1 else "")
    repeats = (args.turns, args.turns) if args.turns else REPEATS
    if "loss" in args.what:
        sizes = "cpu" if device == "cpu" else "gpu"
        compare_losses(
            device,
            args.sizes or SIZES[sizes],
            args.features or FEATURES[sizes],
            repeats,
            args.out / f"loss-{kind}.csv",
        )
    if "step" in args.what:
        from . import steps  # transformers takes seconds to import

        fewest = (2 * steps.BATCHES, REPEATS[1])  # each batch twice
        compare_steps(device, repeats if args.turns else fewest, args.out / f"step-{kind}.csv")


if __name__ == "__main__":
    main()
