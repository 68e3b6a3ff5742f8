"""How right a guess is: cosines of records, words named, and matches of several guesses to several truths."""

from __future__ import annotations

from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F

NAMED = 10
READ = 0.95
CLOSE = ((READ, "all but exactly"), (0.8, "closely"), (0.5, "roughly"), (-1.0, "faintly"))


def cosine(guess: Tensor, truth: Tensor) -> float:
    """max(0, cos) of two records; 0 of a guess that is not finite.

    >>> round(cosine(torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0])), 3)
    0.707
    """
    if not bool(guess.isfinite().all()):
        return 0.0
    return max(0.0, min(1.0, float(F.cosine_similarity(guess.double(), truth.double(), dim=0))))


def how_close(similarity: float) -> str:
    """A cosine in words.

    >>> how_close(0.99), how_close(0.5)
    ('all but exactly (cosine 0.99)', 'roughly (cosine 0.50)')
    """
    word = next(word for least, word in CLOSE if similarity >= least)
    return f"{word} (cosine {similarity:.2f})"


def named(guess: Tensor, truth: Tensor) -> float:
    """Of the ten words with the highest guess, the share that a record has: ``truth [d]`` is above 0 there.

    >>> named(torch.arange(20.0), torch.arange(20) >= 15)
    0.5
    """
    top = torch.nan_to_num(guess).topk(min(NAMED, len(guess))).indices
    return float((truth[top] > 0).double().mean())


def ranked(guess: Tensor, truth: Tensor) -> float:
    """Area under the ROC curve: how often one of ``truth [q]`` that is so has the higher guess of two; a tie is half.

    >>> ranked(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, True]))
    1.0
    """
    guess, truth = torch.nan_to_num(guess.double()), truth.bool()
    difference = guess[truth][:, None] - guess[~truth]
    return float((difference.sign() + 1).mean() / 2)


def closeness(guesses: Tensor, truths: Tensor, words: bool) -> Tensor:
    """Score of each guess for each truth, ``[g, d], [t, d] → [g, t]``."""
    one = named if words else cosine
    return torch.tensor([[one(guess, truth) for truth in truths] for guess in guesses], dtype=torch.float64)


def matched(guesses: Tensor, truths: Tensor, words: bool) -> float:
    """Mean score over truths when each gets a guess of its own, matched as well as can be; 0 for those left over."""
    found = closeness(guesses, truths, words)
    rows: Any
    rows, columns = linear_sum_assignment(found.numpy(), maximize=True)
    return float(found[rows, columns].sum()) / len(truths)


def share_read(guesses: Tensor, truths: Tensor) -> float:
    """Share of the records ``[t, d]`` to which some guess has a cosine of at least 0.95."""
    if not len(guesses):
        return 0.0
    similarity = F.normalize(truths.double(), dim=1) @ F.normalize(torch.nan_to_num(guesses).double(), dim=1).T
    return float((similarity.max(1).values >= READ).double().mean())
