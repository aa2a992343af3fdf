"""Answers to `pad_batch`, as different hands would write them."""

import torch
from torch import nn
from torch.nn import functional as F

from course_lib.authoring.variants import faulty, right, wrong, wrong_in


@right
def rows_filled(sequences, pad):
    lengths = [len(s) for s in sequences]
    there = {"device": sequences[0].device}
    tokens = torch.full((len(sequences), max(lengths)), pad, **there)
    for i, s in enumerate(sequences):
        tokens[i, : lengths[i]] = s
    return tokens, torch.tensor(lengths, **there)


@right
def pad_sequence(sequences, pad):
    lens = torch.tensor([s.numel() for s in sequences], dtype=torch.int32).to(sequences[0].device)
    return nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad), lens


@right
def returns_a_list_of_two(sequences, pad):
    tokens, lens = rows_filled(sequences, pad)
    return [tokens, lens]


def steps(
    sequences,
    pad,
    *,
    place=lambda row, s: row[: len(s)].copy_(s[: len(row)]),
    lengths=lambda sequences, tokens, pad: torch.tensor([len(s) for s in sequences]),
    filled=lambda pad: pad,
    finish=lambda tokens: tokens,
):
    shape = len(sequences), max(len(s) for s in sequences)
    tokens = torch.full(shape, filled(pad))
    for row, sequence in zip(tokens, sequences, strict=True):
        place(row, sequence)
    return finish(tokens), lengths(sequences, tokens, pad)


but = wrong_in(steps)
first_pad_found = but(
    lengths=lambda s, t, pad: torch.tensor(
        [row.tolist().index(pad) if pad in row.tolist() else len(row) for row in t]
    )
)
one_length = but("wrong_shape", lengths=lambda s, t, pad: torch.tensor(max(map(len, s))))
at_least_one = but(lengths=lambda s, t, pad: torch.tensor([max(len(x), 1) for x in s]))
turned = but("transposed_result", finish=lambda tokens: tokens.mT)


@wrong()
def list_overwritten(sequences, pad):
    lens = torch.tensor([len(s) for s in sequences])
    for i, s in enumerate(sequences):
        sequences[i] = F.pad(s, (0, int(lens.max()) - len(s)), value=pad)
    return torch.stack(sequences), lens


@faulty("guessed", "zero", "squeezed")
def slips(faults):
    def pad_batch(sequences, pad):
        longest = max(len(s) for s in sequences)
        filled = 0 if "zero" in faults else pad
        rows = [F.pad(s, (0, longest - len(s)), value=filled) for s in sequences]
        tokens = torch.stack(rows)
        lens = torch.tensor([len(s) for s in sequences], device=tokens.device)
        if "guessed" in faults:
            lens = (tokens != pad).sum(dim=1)
        return tokens.squeeze() if "squeezed" in faults else tokens, lens

    return pad_batch
