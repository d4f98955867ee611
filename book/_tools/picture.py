"""Draw the two pictures that README and the front page show, into book/images (make picture):
points that the loss moves, and the verdicts of all claims, one bar for each paper.
"""

import json
from pathlib import Path

import pandas as pd
import torch

from snnl_book.report import claims
from snnl_lib.losses import soft_nearest_neighbor_loss

FOLDER = Path(__file__).resolve().parents[1] / "images"
MOTION = FOLDER / "loss.svg"
VERDICTS = FOLDER / "verdicts.svg"

# ---------------------------------------------------------------- the loss at work

POINTS, CLASSES, STEPS, FRAMES = 72, 3, 40, 16
TEMPERATURE, STEP_SIZE = 10.0, 30.0
SIDE, SECONDS, TIMES = 360, 8, 3
COLOURS = ("#0072B2", "#E69F00", "#CC79A7")
SHAPES = ("M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5", "M-4.6-4.6H4.6V4.6H-4.6Z", "M0-6L5.6 4.4H-5.6Z")


def descent() -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return the positions of the points after every step, each [POINTS, 2], and their classes."""
    random = torch.Generator().manual_seed(42)
    x = torch.randn(POINTS, 2, generator=random)
    y = torch.arange(POINTS) % CLASSES
    positions = [x]
    for _ in range(STEPS):
        x = x.clone().requires_grad_()
        loss = soft_nearest_neighbor_loss(x, y, TEMPERATURE, distance="sqeuclidean")
        (gradient,) = torch.autograd.grad(loss, x)
        x = (x - STEP_SIZE * gradient).detach()
        positions.append(x)
    return positions, y


def same_class_neighbours(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the share of the five nearest neighbours of each point that have its class."""
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    nearest = y[distances.topk(5, largest=False).indices]
    return (nearest == y[:, None]).float().mean().item()


def motion_svg() -> str:
    """Return an SVG in which points move from before the loss to after it.

    It moves three times and then rests at the end; where a reader has asked for less motion it
    shows the end at once.
    """
    positions, y = descent()
    kept = [positions[round(i * STEPS / (FRAMES - 1))] for i in range(FRAMES)]
    scale = 0.46 * SIDE / max(frame.abs().max().item() for frame in kept)
    times = [0.12 + 0.68 * i / (FRAMES - 1) for i in range(FRAMES)]  # it rests at either end
    rules, marks = [], []
    for point in range(POINTS):
        places = [(SIDE / 2 + scale * frame[point]).tolist() for frame in kept]
        moves = [
            f"{100 * time:.1f}%{{transform:translate({x:.1f}px,{y_:.1f}px)}}"
            for time, (x, y_) in zip(times, places, strict=True)
        ]
        moves[0], moves[-1] = "0%," + moves[0], moves[-1].replace("{", ",100%{", 1)
        name, kind = f"p{point}", int(y[point])
        rules.append(f"@keyframes {name}{{{''.join(moves)}}}")
        end = f"transform:translate({places[-1][0]:.1f}px,{places[-1][1]:.1f}px)"
        style = f"{end};animation-name:{name}"
        shape = f'fill="{COLOURS[kind]}" fill-opacity=".8" d="{SHAPES[kind]}"'
        marks.append(f'<path class="m" style="{style}" {shape}/>')
    before, after = (f"{same_class_neighbours(x, y):.0%}" for x in (kept[0], kept[-1]))
    of = "of neighbours have the same class"
    words = f"Before the loss {before} {of}, after it {after}"
    style = (
        f".m,.b,.a{{animation:{SECONDS}s linear {TIMES} both}}.b{{animation-name:b;opacity:0}}"
        ".a{animation-name:a}@keyframes b{0%,40%{opacity:1}55%,100%{opacity:0}}"
        "@keyframes a{0%,60%{opacity:0}75%,100%{opacity:1}}text{font:14px sans-serif;fill:#222}"
        "@media(prefers-reduced-motion:reduce){.m,.b,.a{animation:none}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE + 30}" role="img">'
        f"<title>{words}</title><style>{style}{''.join(rules)}</style>"
        f'<rect width="100%" height="100%" fill="white"/>{"".join(marks)}'
        f'<text class="b" x="12" y="{SIDE + 18}">before: {before} {of}</text>'
        f'<text class="a" x="12" y="{SIDE + 18}">after: {after} {of}</text>'
        "</svg>\n"
    )


# ---------------------------------------------------------------- the verdicts

VERDICT_COLOURS = {
    "holds": "#0072B2",
    "holds in part": "#56B4E9",
    "mixed": "#F0E442",
    "open": "#BBBBBB",
    "fails in part": "#E69F00",
    "fails": "#D55E00",
    "not tested": "#FFFFFF",
}
PAPERS = {"text": "Text", "image": "Images", "ClusterBERT": "ClusterBERT"}
WIDTH, BAR, GAP, LEFT, TOP = 440, 30, 9, 94, 54


def counts(judged: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return for each paper how many claims have each verdict.

    ``judged`` are the rows of ``claims.judge``.
    """
    kinds = judged["kind"].map(claims.word)
    return {
        paper: {
            kind: int(((judged["paper"] == paper) & (kinds == kind)).sum())
            for kind in VERDICT_COLOURS
        }
        for paper in PAPERS
    }


def verdicts_svg(judged: pd.DataFrame) -> str:
    """Return an SVG with one bar of verdicts for each paper."""
    table = counts(judged)
    unit = (WIDTH - LEFT - 8) / max(sum(row.values()) for row in table.values())
    parts = [_legend()]
    for line, (paper, row) in enumerate(table.items()):
        top, x = TOP + line * (BAR + GAP), float(LEFT)
        name = f'<text x="{LEFT - 8}" y="{top + 20}" text-anchor="end">{PAPERS[paper]}</text>'
        parts.append(name)
        for kind, number in row.items():
            if not number:
                continue
            width = number * unit
            place = f'x="{x:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"'
            parts.append(f'<rect {place} fill="{VERDICT_COLOURS[kind]}"/>')
            parts.append(f'<text x="{x + width / 2:.1f}" y="{top + 20}" class="n">{number}</text>')
            x += width
    words = "; ".join(
        f"{PAPERS[paper]}: " + ", ".join(f"{row[kind]} {kind}" for kind in row if row[kind])
        for paper, row in table.items()
    )
    height = TOP + len(table) * (BAR + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>Verdicts on all claims. {words}</title><desc>{json.dumps(table)}</desc>"
        "<style>text{font:14px sans-serif;fill:#222}.n{text-anchor:middle;font-weight:bold;"
        "paint-order:stroke;stroke:white;stroke-width:3px}rect{stroke:#444;stroke-width:.8}"
        ".g{stroke:none}</style>"
        f'<rect class="g" width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _legend():
    """Return the colours of the verdicts, in two lines."""
    parts, x, y = [], 2.0, 4
    for number, (kind, colour) in enumerate(VERDICT_COLOURS.items()):
        if number == len(VERDICT_COLOURS) // 2:
            x, y = 2.0, 28
        parts.append(f'<rect x="{x:.0f}" y="{y}" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18:.0f}" y="{y + 12}">{kind}</text>')
        x += 32 + 7.0 * len(kind)
    return "".join(parts)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    MOTION.write_text(motion_svg())
    VERDICTS.write_text(verdicts_svg(claims.judge()))


if __name__ == "__main__":
    main()
