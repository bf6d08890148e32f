"""A model as small as the engine's CPU attention allows. The weights are random; the KV cache does not mind."""

import json
from pathlib import Path

VOCABULARY = 1024
"""Token ids are 0..1023. Ids below `FIRST_WORD` are left to the special tokens."""

FIRST_WORD = 8

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,  # the smallest one the CPU attention kernels have
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_tiny_model(folder: Path) -> Path:
    """Write the one file the engine needs with `--load-format dummy --skip-tokenizer-init`; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(_CONFIG, indent=2))
    return folder
