"""Transformers: ViT, BERT, and GPT-2 as prefill and as one decoding step with its cache."""

from __future__ import annotations

import typing

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

if typing.TYPE_CHECKING:
    from bench.models import Architecture


class SelfAttention(nn.Module):
    """One projection to queries, keys and values; returns the keys and values too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        past: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        if past is not None:
            k = torch.cat([past[0], k], dim=2)
            v = torch.cat([past[1], v], dim=2)
        y = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width)), k, v


def _mlp(width: int, approximate: str = "none") -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate=approximate), nn.Linear(4 * width, width))


class VitLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width, eps=1e-6), SelfAttention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width, eps=1e-6), _mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, size: int, patch: int, layers: int, width: int, heads: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(0.1 * torch.randn(1, 1, width))
        self.positions = nn.Parameter(0.1 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.layers = nn.Sequential(*(VitLayer(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


def vit_b16(tiny: bool) -> Architecture:
    from bench.models import Architecture

    size = 32 if tiny else 224
    module = ViT(size, 8, 2, 48, 3, 10) if tiny else ViT(size, 16, 12, 768, 12, 1000)
    return Architecture(module, (torch.randn(1, 3, size, size),), ("input",), (0,))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.norm1 = SelfAttention(width, heads), nn.LayerNorm(width, eps=1e-12)
        self.mlp, self.norm2 = _mlp(width), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask)[0])
        return self.norm2(x + self.mlp(x))


class Bert(nn.Module):
    def __init__(self, vocabulary: int, positions: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and the pooled first token."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.positions(places) + self.types(token_type_ids))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_base(tiny: bool) -> Architecture:
    from bench.models import Architecture

    length, vocabulary = (12, 100) if tiny else (128, 30522)
    module = Bert(vocabulary, 32, 2, 48, 3) if tiny else Bert(vocabulary, 512, 12, 768, 12)
    ids = torch.randint(0, vocabulary, (1, length))
    mask = (torch.arange(length) < length - length // 8).to(torch.int64)[None]
    types = (torch.arange(length) >= length // 2).to(torch.int64)[None]
    return Architecture(module, (ids, mask, types), ("input_ids", "attention_mask", "token_type_ids"), (0, 0, 0))


class Gpt2Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), SelfAttention(width, heads)
        self.norm2, self.mlp = nn.LayerNorm(width), _mlp(width, "tanh")

    def forward(self, x: Tensor, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        y, keys, values = self.attention(self.norm1(x), causal=past is None, past=past)
        x = x + y
        return x + self.mlp(self.norm2(x)), keys, values


class Gpt2(nn.Module):
    """Token ids and each layer's past keys and values in; logits and the grown cache out."""

    def __init__(self, vocabulary: int, positions: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Gpt2Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        start = past[0].shape[2] if past else 0
        places = torch.arange(start, start + input_ids.shape[1], device=input_ids.device)
        x = self.words(input_ids) + self.positions(places)
        cache: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            x, keys, values = layer(x, (past[2 * index], past[2 * index + 1]) if past else None)
            cache += [keys, values]
        return (self.norm(x) @ self.words.weight.t(), *cache)


def gpt2_prefill(tiny: bool) -> Architecture:
    from bench.models import Architecture

    length, vocabulary = (8, 100) if tiny else (64, 50257)
    module = Gpt2(vocabulary, 32, 2, 48, 3) if tiny else Gpt2(vocabulary, 1024, 12, 768, 12)
    return Architecture(module, (torch.randint(0, vocabulary, (1, length)),), ("input_ids",), (0,))


def gpt2_decode(tiny: bool) -> Architecture:
    from bench.models import Architecture

    cached, vocabulary = (8, 100) if tiny else (64, 50257)
    layers, heads, head_width = (2, 3, 16) if tiny else (12, 12, 64)
    module = Gpt2(vocabulary, 32 if tiny else 1024, layers, heads * head_width, heads)
    past = tuple(torch.randn(1, heads, cached, head_width) for _ in range(2 * layers))
    names = tuple(f"past_{kind}_{layer}" for layer in range(layers) for kind in ("key", "value"))
    ids = torch.randint(0, vocabulary, (1, 1))
    return Architecture(module, (ids, *past), ("input_ids", *names), (0,) * (1 + len(past)))
