"""Answers to `previous_token_score`."""

import torch

from course_lib.exercises.variants import faulty, right, wrong


@right
def loop_over_positions(attention_weights):
    h, n, _ = attention_weights.shape
    total = torch.zeros(h, dtype=attention_weights.dtype, device=attention_weights.device)
    for i in range(1, n):
        total = total + attention_weights[:, i, i - 1]
    return total / (n - 1) if n > 1 else total


@right
def masked_sum(attention_weights):
    n = attention_weights.shape[-1]
    place = torch.ones(n, n, dtype=torch.bool).tril(-1).triu(-1)
    return (attention_weights * place).sum((1, 2)) / max(n - 1, 1)


@right
def head_by_head(attention_weights):
    scores = []
    for head in attention_weights:
        seen = [head[i, i - 1].item() for i in range(1, len(head))]
        scores.append(sum(seen) / len(seen) if seen else 0.0)
    return torch.tensor(scores, dtype=attention_weights.dtype)


nan_replaced = right(lambda w: torch.diagonal(w, -1, -2, -1).mean(dim=1).nan_to_num())


@wrong("wraps_around")
def from_position_zero(attention_weights):
    n = attention_weights.shape[-1]
    return sum(attention_weights[:, i, i - 1] for i in range(n)) / n


@wrong("divided_by_n")
def mean_of_a_padded_diagonal(attention_weights):
    n = attention_weights.shape[1]
    below = [attention_weights[:, i + 1, i] for i in range(n - 1)]
    return torch.stack([torch.zeros_like(attention_weights[:, 0, 0]), *below]).mean(0)


@wrong("nan_of_nothing")
def mean_of_fancy_index(attention_weights):
    i = torch.arange(1, attention_weights.shape[-1])
    return attention_weights[:, i, i - 1].mean(1)


@wrong("dtype_changed")
def in_float32(attention_weights):
    scores = torch.zeros(len(attention_weights))
    for h, head in enumerate(attention_weights):
        for i in range(1, len(head)):
            scores[h] += head[i, i - 1] / (len(head) - 1)
    return scores


@wrong("input_mutated")
def first_row_cleared(attention_weights):
    attention_weights[:, 0] = 0
    n = attention_weights.shape[-1]
    return attention_weights.roll(1, -1).diagonal(0, 1, 2).sum(-1) / max(n - 1, 1)


above = wrong("transposed")(lambda w: w.diagonal(1, 1, 2).sum(-1) / max(w.shape[1] - 1, 1))
main_diagonal = wrong("own_position")(lambda w: torch.einsum("hii->h", w) / w.shape[1])
not_divided = wrong("summed")(lambda w: w[:, 1:, :-1].diagonal(0, 1, 2).sum(-1))
one_for_all = wrong("over_heads")(lambda w: w[:, 1:, :-1].diagonal(0, 1, 2).mean())
first_head = wrong()(lambda w: w[0].diagonal(-1).mean().expand(len(w)))
with_epsilon = wrong()(lambda w: w.diagonal(-1, 1, 2).sum(-1) / (w.shape[1] - 1 + 1e-6))


@faulty("divided by n", "float32", "nan")
def with_faults(faults):
    def score(attention_weights):
        line = attention_weights.diagonal(-1, 1, 2)
        counted = line.shape[1] + ("divided by n" in faults)
        if "nan" not in faults:
            counted = max(counted, 1)
        scores = line.sum(-1) / counted if line.shape[1] or "nan" not in faults else line.mean(-1)
        return scores.float() if "float32" in faults else scores

    return score
