"""Memory for keys and values that are attended to again and again while decoding."""

import torch
from torch import Tensor

FIRST_ROOM = 64  # positions; twice as many whenever they are full


class KeyValueCache:
    """Projected keys and values of the positions seen so far, for inference.

    A new position is written behind the earlier ones. Where room is short it is doubled, so that
    n positions cost at most 2 n copies in all.
    """

    def __init__(self) -> None:
        """Holds nothing; the first `append` decides sizes, dtype and device."""
        self._length = 0
        self._stored: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        """How many positions are held."""
        return self._length

    @property
    def keys(self) -> Tensor:
        """All keys, `(batch, num_heads, len(cache), head_dim)`, a view."""
        return self._held()[0][:, :, : self._length]

    @property
    def values(self) -> Tensor:
        """All values, `(batch, num_heads, len(cache), head_dim)`, a view."""
        return self._held()[1][:, :, : self._length]

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Writes further positions behind those already held.

        Args:
            keys, values: `(batch, num_heads, num_positions, head_dim)`.

        Raises:
            ValueError: they do not fit what is held, or require a gradient.
        """
        if torch.is_grad_enabled() and (keys.requires_grad or values.requires_grad):
            raise ValueError(
                "a cache keeps no gradients; call `remember` under `torch.no_grad()`, or "
                "the module itself for training."
            )
        if self._stored is not None:
            self.check_fit(keys)
        length = self._length + keys.shape[2]
        room = self._stored = self._make_room(keys, length)
        for stored, new in zip(room, (keys, values), strict=True):
            stored[:, :, self._length : length] = new
        self._length = length

    def check_fit(self, heads: Tensor) -> None:
        """Raises ValueError unless batch, heads, head_dim, dtype and device are those held."""
        stored, _ = self._held()
        for what, own, other in (
            ("(batch, num_heads, head_dim)", _sizes(stored), _sizes(heads)),
            ("dtype", stored.dtype, heads.dtype),
            ("device", stored.device, heads.device),
        ):
            if own != other:
                raise ValueError(f"`cache` must have {what} = {other}; got {own}.")

    def _held(self) -> tuple[Tensor, Tensor]:
        """The memory for keys and values, some of it not written yet."""
        if self._stored is None:
            raise ValueError("`cache` must hold at least one position; call `remember` first.")
        return self._stored

    def _make_room(self, like: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Allocates, or moves what is held to a larger place, if `length` needs it."""
        old = self._stored
        room = 0 if old is None else old[0].shape[2]
        if old is not None and length <= room:
            return old
        room = max(length, 2 * room, FIRST_ROOM)
        batch, num_heads, _, head_dim = like.shape
        keys, values = (like.new_empty(batch, num_heads, room, head_dim) for _ in range(2))
        for new, before in zip((keys, values), old or (), strict=False):
            new[:, :, : self._length] = before[:, :, : self._length]
        return keys, values


def _sizes(heads: Tensor) -> tuple[int, ...]:
    return heads.shape[0], heads.shape[1], heads.shape[3]
