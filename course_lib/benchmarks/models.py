"""`course bench models`: compare SmolLM2 on the course's attention with `transformers`.

Both run the same published weights in float32, with a cache, in the same process. Their steps
alternate, so other work on the machine slows both down. The course's model runs in inference mode,
as in `SmolLM2.write`, and that of `transformers` in `torch.no_grad`, as in its `generate`.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor

from course_lib.attention import KVCache
from course_lib.benchmarks import machine
from course_lib.models import downloads
from course_lib.models.pretrained import SmolLM2, smollm2

PROMPTS, NUM_TOKENS, ROUNDS = (12, 500), 16, 5
_PEAK = """
import sys
import torch
from course_lib.attention import KVCache
from course_lib.benchmarks import peak_memory
from course_lib.models.pretrained import smollm2
model = smollm2()
prompt = torch.arange(100, 100 + int(sys.argv[1]))[None]
model.next_logits(prompt, [KVCache() for _ in model.blocks])
print(peak_memory())
"""


def measure(*, tell: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Return tokens a second, seconds to load and peak memory; every figure is a median of five.

    Args:
        tell: called with a line of text before each part.
    """
    downloads.download(downloads.SMOLLM2)
    tell("loading each model five times")
    loads: dict[str, list[float]] = {"course": [], "transformers": []}
    ours = theirs = None
    for _ in range(ROUNDS):
        ours = theirs = None  # so that memory holds at most one model of each kind
        ours = _timed(smollm2, loads["course"])
        theirs = _timed(published, loads["transformers"])
    assert ours is not None
    measured: dict[str, Any] = {
        "machine": f"{machine()}, {torch.get_num_threads()} threads",
        "seconds_to_load": {name: round(median(times), 2) for name, times in loads.items()},
    }
    for length in PROMPTS:
        tell(f"writing {NUM_TOKENS} tokens after a prompt of {length}, {ROUNDS} times")
        measured[f"prompt_of_{length}"] = _writing(ours, theirs, length)
    if sys.platform == "linux":
        tell("measuring memory in a process of its own")
        for length in PROMPTS:
            measured[f"prompt_of_{length}"]["peak_memory_gb"] = round(peak_of(length) / 1e9, 2)
    return measured


def peak_of(length: int) -> int:
    """Return the bytes that loading the model and reading `length` tokens take. Linux only."""
    command = [sys.executable, "-c", _PEAK, str(length)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def published() -> Any:
    """Return the model of `transformers` with the published weights in float32, in eval mode."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    path = downloads.file_of(downloads.SMOLLM2, downloads.SMOLLM2.files[0].name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return model.eval()


@torch.no_grad()
def _writing(ours: SmolLM2, theirs: Any, length: int) -> dict[str, Any]:
    """Return the speed of both models after a prompt of `length` tokens."""
    from transformers import DynamicCache

    prompt = torch.randint(100, 40_000, (1, length), generator=torch.Generator().manual_seed(0))
    rates: dict[str, list[float]] = {"course": [], "transformers": []}
    first: dict[str, list[float]] = {"course": [], "transformers": []}
    for _ in range(ROUNDS):
        caches, cache = [KVCache() for _ in ours.blocks], DynamicCache(config=theirs.config)

        def course(tokens: Tensor, caches=caches) -> Tensor:
            return ours.next_logits(tokens, caches)

        def other(tokens: Tensor, cache=cache) -> Tensor:
            return theirs(tokens, past_key_values=cache, logits_to_keep=1).logits[:, -1]

        steps = {"course": course, "transformers": other}
        read = {name: _timed(lambda: step(prompt), first[name]) for name, step in steps.items()}  # noqa: B023
        seconds: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(NUM_TOKENS):
            for name, step in steps.items():
                new = read[name].argmax(dim=-1, keepdim=True)
                read[name] = _timed(lambda: step(new), seconds[name])  # noqa: B023
        for name, times in seconds.items():
            rates[name].append(NUM_TOKENS / sum(times))
    ratios = [a / b for a, b in zip(rates["course"], rates["transformers"], strict=True)]
    return {
        "tokens_a_second": {name: round(median(rate), 1) for name, rate in rates.items()},
        "ratio": round(median(ratios), 3),
        "seconds_to_read_the_prompt": {name: round(median(s), 2) for name, s in first.items()},
    }


def _timed(function: Callable[[], Any], seconds: list[float]) -> Any:
    """Return a function's result, and append how long it took."""
    started = time.perf_counter()
    result = function()
    seconds.append(time.perf_counter() - started)
    return result
