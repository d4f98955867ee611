"""The playground of the loss: forty points in the plane that the loss moves, without a network.

In the book a script (``book/_tools/_ext/playground.js``) lets the reader move them; elsewhere a
picture is shown in its place.
"""

import json

import torch

from snnl_book import require
from snnl_book.report.figures import SHADES
from snnl_book.report.show import show_figure
from snnl_lib.losses import annealed_temperature, soft_nearest_neighbor_loss

LABELS = torch.arange(40) % 4
COLOURS, SHAPES = SHADES[:4], "osD^"
STEPS = 200
# name: (distance, temperature, what the menu says)
RUNS = {
    "hot": ("cosine", 1.0, "after 200 steps, cosine, T = 1"),
    "cold": ("cosine", 0.1, "after 200 steps, cosine, T = 0.1"),
    "annealed": ("cosine", "annealed", "after 200 steps, cosine, annealed"),
    "squared": ("sqeuclidean", "annealed", "after 200 steps, squared Euclidean, annealed"),
}


def starting_points(seed: int) -> torch.Tensor:
    """Draw the forty points from a normal distribution: [40, 2]."""
    return torch.randn(40, 2, generator=torch.Generator().manual_seed(seed))


def descend(points: torch.Tensor, temperature: float | str, distance: str = "cosine") -> list:
    """Move ``points`` by Adam on the loss alone; return (loss, points) before each of 200 steps
    and after the last.

    ``temperature`` is a number, or "annealed" for Eq. 6 with a step for each epoch.
    """
    points = points.clone().requires_grad_()
    optimizer, history = torch.optim.Adam([points], lr=0.1), []
    for step in range(STEPS + 1):
        t = annealed_temperature(step) if temperature == "annealed" else temperature
        loss = soft_nearest_neighbor_loss(points, LABELS, t, distance=distance)
        history.append((loss.item(), points.detach().clone()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return history


def show_playground(seed: int):
    """Show the playground, and where no script runs the points before and after training."""
    require("IPython")
    from IPython.display import HTML

    start = starting_points(seed)
    points = {"start": start}
    for name, (distance, temperature, _) in RUNS.items():
        points[name] = descend(start, temperature, distance)[-1][1]
    points = {name: values.double().round(decimals=3) for name, values in points.items()}
    shown = show_figure(
        _before_and_after(points["start"], points["hot"]),
        "c2-playground",
        "Two scatter plots of forty points in four classes. On the left the classes are mixed, and "
        "lines lead from one ringed point to nearly all others. On the right each class lies on a "
        "ray of its own, and the lines lead to the classmates of the ringed point.",
        "Forty points before and after 200 steps of training on the loss alone, at a temperature "
        "of 1. Lines show which points the ringed point may pick; the wider the line, the likelier "
        "the pick. Solid lines lead to points of its own class, dashed lines to others. Only the "
        "angle between two points matters, so each class gathers on a ray from the origin.",
    )
    facts = json.dumps(_facts(points))
    return HTML(f"""<link rel="stylesheet" href="../_static/playground.css">
<div data-snnl-playground><script type="application/json">{facts}</script>
{shown.html}
</div><script defer src="../_static/playground.js"></script>""")


def _facts(points):
    """Return what the script needs: points, labels, the menu, and the library's own numbers."""
    # Two cases for the script's own check: a point without a direction, and one without a mate.
    points = points | {"origin": points["start"] * (torch.arange(40) != 0)[:, None]}
    labels = {"four": LABELS, "two": LABELS % 2, "lonely": LABELS.where(torch.arange(40) != 7, 4)}
    both = ("cosine", "sqeuclidean")
    cases = [("start", "four", t, distance) for t in (0.01, 0.1, 1.0, 10.0) for distance in both]
    cases += [("start", "two", 0.3, distance) for distance in both]
    cases += [("origin", "lonely", 0.3, distance) for distance in both]
    cases += [("hot", "four", 1.0, "cosine"), ("cold", "four", 0.3, "cosine")]
    cases += [("squared", "two", 0.05, "sqeuclidean")]
    return {
        "points": {name: values.tolist() for name, values in points.items()},
        "labels": {name: values.tolist() for name, values in labels.items()},
        "shown": {"start": "at the start"} | {name: title for name, (*_, title) in RUNS.items()},
        "expected": [_expected(points, labels, *case) for case in cases],
    }


def _expected(points, labels, name, grouping, temperature, distance):
    """Return the library's loss and gradient for one arrangement, to ten digits."""
    moved = points[name].clone().requires_grad_()
    loss = soft_nearest_neighbor_loss(moved, labels[grouping], temperature, distance=distance)
    loss.backward()
    gradient = [[float(f"{slope:.10g}") for slope in row] for row in moved.grad.tolist()]
    case = {"points": name, "labels": grouping, "temperature": temperature, "distance": distance}
    return case | {"loss": loss.item(), "gradient": gradient}


def _before_and_after(before, after):
    """Draw the points at the start and at the end, with the picks of the first one at T = 1."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.9))
    for axis, points, title in ((axes[0], before, "before"), (axes[1], after, "after 200 steps")):
        loss = soft_nearest_neighbor_loss(points, LABELS, 1.0)
        draw_picks(axis, points, 0, 1.0)
        axis.set_title(f"{title}: loss {loss:.2f}", fontsize=12)
    figure.suptitle("The loss gathers each class in a direction of its own", x=0.01, ha="left")
    return figure


def draw_picks(axis, points: torch.Tensor, anchor: int, temperature: float) -> None:
    """Draw forty points, and a line from one of them to each point that it is likely to pick."""
    unit = torch.nn.functional.normalize(points)
    logits = (unit @ unit[anchor]) / temperature
    logits[anchor] = -torch.inf
    for p, point, label in zip(logits.softmax(0).tolist(), points, LABELS, strict=True):
        mate = label == LABELS[anchor]
        line = {"color": "black" if mate else "#C04A00", "linestyle": "-" if mate else "--"}
        if p >= 0.002:
            ends = zip(points[anchor].tolist(), point.tolist(), strict=True)
            axis.plot(*ends, **line, linewidth=40 * p, alpha=min(1, 0.2 + p**0.5))
    draw_points(axis, points)
    ring = {"s": 190, "facecolor": "none", "edgecolor": "black", "linewidth": 1.4, "zorder": 4}
    axis.scatter(*points[anchor].tolist(), **ring)


def draw_points(axis, points: torch.Tensor, size: float = 36) -> None:
    """Draw forty points, each class with a colour and a shape of its own."""
    for label, (colour, shape) in enumerate(zip(COLOURS, SHAPES, strict=True)):
        look = {"color": colour, "marker": shape, "edgecolor": "black", "linewidth": 0.6}
        axis.scatter(*points[label == LABELS].T, s=size, zorder=3, **look)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set(xlabel="feature 1", ylabel="feature 2")
