"""The decoder: a Llama that reads the image code as embeddings in its text."""

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn

from ..tiny_chat.model import Attention, Block, Decoder, Shape, rotate
from ..tiny_sd.pictures import SHAPES
from .code import HUES, SIZE, THING, TOKENS
from .questions import SYNONYMS
from .render import IMAGE, Batch
from .scenes import KINDS


LOOK_UP = (0, 1)  # layers whose first heads find things by their words
NAMES = [*HUES, *SHAPES]  # that a question finds things by
WORD, SEEN = 0.8, 1.5  # marks of a name in the embedding of its words, and in things that have it
SLOW = 6  # pairs of dimensions of a head before it turn by more than a few degrees between an image and its question
COPIED = 0.2  # of what the heads find, before training


def shape_of(vocabulary: int) -> Shape:
    """The sizes of the committed edition."""
    return Shape(vocabulary=vocabulary, width=128, layers=4, heads=4, kv_heads=2, inner=256, positions=512)


def _forms(tokenizer: Tokenizer, word: str) -> list[int]:
    """The tokens that are this word and nothing else."""
    forms = [tokenizer.encode(form).ids for form in (word, f" {word}", word.capitalize(), f" {word}s", f" {word}es")]
    return sorted({ids[0] for ids in forms if len(ids) == 1})


def _orthogonal(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size))[0]


class See(nn.Module):
    """Image code to embeddings. Colours and shapes have the embeddings of their words, so that what is seen can be said, and the marks by which heads find them."""

    def __init__(self, tokenizer: Tokenizer, width: int) -> None:
        super().__init__()
        names = [*HUES, *KINDS]
        mean = torch.zeros(len(names), tokenizer.get_vocab_size())
        for row, word in enumerate(names):
            forms = _forms(tokenizer, word)
            mean[row, forms] = 1 / len(forms) ** 0.5
        self.register_buffer("mean", mean, persistent=False)
        self.project = nn.Linear(SIZE, width)
        marks = torch.zeros(SIZE, width)
        for at, word in enumerate(NAMES):
            marks[1 + names.index(word), len(NAMES) + at] = SEEN
        self.register_buffer("marks", marks, persistent=False)
        self.register_buffer("said", (torch.arange(width) >= 2 * len(NAMES)).float(), persistent=False)
        self.place = nn.Parameter(torch.randn(TOKENS * TOKENS, width) * 0.05)
        nn.init.normal_(self.project.weight, std=0.05)
        nn.init.normal_(self.project.weight[:, THING - 2 : THING], std=0.3)

    def matrix(self, table: Tensor) -> Tensor:
        """[SIZE, width]."""
        names = self.mean @ table * self.said
        presence, between = table.new_zeros(1, table.shape[1]), table.new_zeros(SIZE - THING + 2 - len(HUES), table.shape[1])
        return self.project.weight.T + self.marks + torch.cat([presence, names, between, names[: len(HUES)]])

    def forward(self, code: Tensor, table: Tensor) -> Tensor:
        return code @ self.matrix(table) + self.project.bias + self.place


def _attend(layer: Attention, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """(mixed values, keys and values) of x, which follows the keys and values of `past`."""
    groups = layer.shape.heads // layer.shape.kv_heads
    q, k, v = (proj(x).unflatten(2, (-1, layer.shape.head)).transpose(1, 2) for proj in (layer.q_proj, layer.k_proj, layer.v_proj))
    q, k = rotate(q, cos, sin) * layer.shape.head**-0.5, rotate(k, cos, sin).repeat_interleave(groups, 1)
    v = v.repeat_interleave(groups, 1)
    length = x.shape[1]
    later = torch.full((length, length), float("-inf")).triu_(1)
    if past:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        later = F.pad(later, (past[0].shape[2], 0))
    mixed = (q @ k.transpose(2, 3) + later).softmax(-1) @ v
    return layer.o_proj(mixed.transpose(1, 2).flatten(2)), (k, v)


class Pins:
    """Parts of parameters that training leaves as they are."""

    def __init__(self) -> None:
        self.held: list[tuple[nn.Parameter, tuple[slice, ...], Tensor]] = []

    def pin(self, parameter: nn.Parameter, *part: slice, value: Tensor | float = 0.0) -> None:
        """From now on, this part has this value."""
        self.held.append((parameter, part, torch.as_tensor(value)))
        self.hold()

    @torch.no_grad()
    def hold(self) -> None:
        """After an update."""
        for parameter, part, value in self.held:
            parameter[part] = value


def mark(decoder: Decoder, tokenizer: Tokenizer, pins: Pins) -> None:
    """Each name has a dimension of its own in its words, and one in things, which words do not have and the first layer does not write."""
    table = decoder.embed_tokens.weight
    marks = torch.zeros(table.shape[0], 2 * len(NAMES))
    for at, word in enumerate(NAMES):
        for spoken in (word, *SYNONYMS.get(word, ())):
            marks[_forms(tokenizer, spoken), at] = WORD
    pins.pin(table, slice(None), slice(2 * len(NAMES)), value=marks)
    for written in (decoder.layers[0].self_attn.o_proj, decoder.layers[0].mlp.down_proj):
        pins.pin(written.weight, slice(len(NAMES), 2 * len(NAMES)))


def look_up(layer: Attention, pins: Pins) -> None:
    """The heads of the first key of a word find the things that have its mark. Others begin by adding the marks of other words, so that two names of one thing are found together.

    Left to training, queries and keys moved away before the rest of the network used them."""
    shape = layer.shape
    groups = shape.heads // shape.kv_heads
    slow = [at for at in range(shape.head) if at % (shape.head // 2) >= SLOW][: len(NAMES)]
    finds = torch.zeros(shape.head, len(NAMES))
    finds[slow, range(len(NAMES))] = 1
    nothing = torch.zeros(shape.head, shape.width)
    key, query = nothing.clone(), nothing.clone()
    query[:, : len(NAMES)], key[:, len(NAMES) : 2 * len(NAMES)] = finds, finds
    pins.pin(layer.q_proj.weight, slice(groups * shape.head), value=query.repeat(groups, 1))
    pins.pin(layer.k_proj.weight, slice(shape.head), value=key)
    copied = _orthogonal(shape.width)[: shape.head]
    with torch.no_grad():
        layer.v_proj.weight[: shape.head] = copied
        layer.o_proj.weight[:, : groups * shape.head] = COPIED * copied.T.repeat(1, groups)
        layer.v_proj.weight[shape.head : 2 * shape.head] = query
        layer.o_proj.weight[:, groups * shape.head : 2 * groups * shape.head] = query.T.repeat(1, groups)
    pins.hold()


class Language(nn.Module):
    """Decoder and the projection of the image code."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.image_id = tokenizer.token_to_id(IMAGE)
        self.decoder = Decoder(shape_of(tokenizer.get_vocab_size()))
        self.see = See(tokenizer, self.decoder.shape.width)
        self.pins = Pins()
        mark(self.decoder, tokenizer, self.pins)
        for layer in LOOK_UP:
            look_up(self.decoder.layers[layer].self_attn, self.pins)

    def _block(self, block: Block, x: Tensor, start: int, past: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        cos, sin = (table[start : start + x.shape[1]] for table in (self.decoder.cos, self.decoder.sin))
        mixed, kept = _attend(block.self_attn, block.input_layernorm(x), cos, sin, past)
        x = x + mixed
        return x + block.mlp(block.post_attention_layernorm(x)), kept

    def forward(self, code: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """(logits, wanted ids, weights) at the places of learned tokens. The prefix is computed once for all questions about an image."""
        decoder, prefix = self.decoder, torch.tensor(batch.prefix)
        table = decoder.embed_tokens.weight
        x = decoder.embed_tokens(prefix)[None].expand(len(batch.views), -1, -1)
        if self.image_id in batch.prefix:
            first = batch.prefix.index(self.image_id)
            x = torch.cat([x[:, :first], self.see(code, table)], 1)
        follow = [decoder.embed_tokens(bucket.ids[:, :-1]) for bucket in batch.buckets]
        for block in decoder.layers:
            x, (k, v) = self._block(block, x, 0)
            follow = [self._block(block, y, len(prefix), (k[bucket.owner], v[bucket.owner]))[0] for y, bucket in zip(follow, batch.buckets, strict=True)]
        asked = [bucket.weights[:, 1:] > 0 for bucket in batch.buckets]
        hidden = torch.cat([y[places] for y, places in zip(follow, asked, strict=True)])
        wanted, weights = (torch.cat([values[:, 1:][places] for values, places in zip(rows, asked, strict=True)])
                           for rows in ([b.ids for b in batch.buckets], [b.weights for b in batch.buckets]))
        return F.linear(decoder.norm(hidden), table), wanted, weights
