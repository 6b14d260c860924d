"""examples/python/generate.py with a model that is made here: quantized while it is loaded, its answer's words."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchao")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))

import generate

WORDS = "once upon a time there was one who went out to learn what fear is and came home again".split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers that has learnt one sentence, and its tokenizer."""
    path = tmp_path_factory.mktemp("model")
    vocabulary = {word: i for i, word in enumerate(["<end>", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<end>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>").save_pretrained(path)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    tokens = torch.tensor([[*(vocabulary[word] for word in WORDS), 0]])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(40):
        loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    model.save_pretrained(path)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weights", generate.WEIGHTS)
def test_answer(weights: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model", str(folder), "--weights", weights, "--eager", " ".join(WORDS[:4])]
    assert generate.main(command) == 0
    words, figures = capsys.readouterr().out.strip().splitlines()[-2:]
    assert words.split() == WORDS[4:]  # and the end, which isn't shown
    assert re.fullmatch(
        r"loaded in \S+ s, first token after \d+ ms, then \S+ tokens per second, \d+ MiB of device memory at most",
        figures,
    )


@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_compiled(folder: Path, capsys: pytest.CaptureFixture[str], fresh_compiler: None) -> None:
    pytest.importorskip("triton")
    assert generate.main(["--model", str(folder), "--tokens", "5", " ".join(WORDS[:4])]) == 0
    assert capsys.readouterr().out.strip().splitlines()[-2].split() == WORDS[4:9]


def test_weights_are_quantized_layer_by_layer(folder: Path) -> None:
    model, _ = generate.load(folder, "int4", "xpu")
    kinds = {type(m.weight).__name__ for name, m in model.named_modules() if name.endswith("_proj")}
    assert kinds == {"Int4PlainInt32Tensor"}
    assert type(model.lm_head.weight) is torch.nn.Parameter


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        generate.main(["--model", str(tmp_path)])
    assert "has no config.json" in capsys.readouterr().err
