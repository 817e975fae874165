"""Language, speech and multi-modal networks: configurations of Hugging Face, small."""

from __future__ import annotations

from typing import Any

import torch

from . import program

_SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 128}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
#: With dropout the CPU has no fused attention, and other operators would be compared than a GPU runs.
_SMALL |= {"attention_dropout": 0.0, "attention_probs_dropout_prob": 0.0, "attn_pdrop": 0.0}


def _step(model: Any, device: str, **inputs: Any) -> None:
    model = model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = {k: v.to(device) if torch.is_tensor(v) else v for k, v in inputs.items()}
    model(**inputs).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _tokens(batch: int = 2, length: int = 16) -> torch.Tensor:
    return torch.arange(batch * length).reshape(batch, length) % 100 + 3


def _causal(kind: str, compared: str = "all", **options: Any) -> None:
    @program(compared, needs=("transformers",), name=f"transformers-{kind.lower()}")
    def run(device: str) -> None:
        import transformers as hf

        config = getattr(hf, f"{kind}Config")(**{**_SMALL, **_TOKENS, **options})
        head = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
        _step(getattr(hf, head)(config), device, input_ids=_tokens(), labels=_tokens(), use_cache=False)


_causal("GPT2", n_embd=64, n_layer=2, n_head=4)
_causal("GPTNeo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]])
_causal("GPTNeoX")
_causal("OPT", ffn_dim=128, word_embed_proj_dim=64)
_causal("Bloom", n_layer=2, n_head=4)
_causal("Llama", num_key_value_heads=4)
_causal("Mistral", num_key_value_heads=4)
_causal("Qwen2", num_key_value_heads=4)
_causal("Qwen3", num_key_value_heads=4, head_dim=16)
_causal("Phi", num_key_value_heads=4)
_causal("Gemma", num_key_value_heads=4, head_dim=16)
# One key head for all: the CPU's fused kernel broadcasts it, those of a GPU do not (kernels of an H200).
_causal("Falcon", "attention")


def _masked(kind: str, **options: Any) -> None:
    @program(needs=("transformers",), name=f"transformers-{kind.lower()}")
    def run(device: str) -> None:
        import transformers as hf

        config = getattr(hf, f"{kind}Config")(**{**_SMALL, **_TOKENS, **options})
        mask = torch.ones(2, 16, dtype=torch.long)
        _step(getattr(hf, f"{kind}ForMaskedLM")(config), device, input_ids=_tokens(), labels=_tokens(), attention_mask=mask)


_masked("Bert")
_masked("Roberta")
_masked("Electra", embedding_size=64)
_masked("Albert", embedding_size=32)
_masked("DistilBert", dim=64, n_layers=2, n_heads=4, hidden_dim=128)
_masked("DebertaV2", relative_attention=True, pos_att_type=["c2p", "p2c"])


# Its biases of positions get gradients, which the CPU has plain products for.
@program("attention", needs=("transformers",), name="transformers-t5")
def t5(device: str) -> None:
    import transformers as hf

    config = hf.T5Config(vocab_size=128, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0, dropout_rate=0.0)
    _step(hf.T5ForConditionalGeneration(config), device, input_ids=_tokens(), labels=_tokens())


@program(needs=("transformers",), name="transformers-bart")
def bart(device: str) -> None:
    import transformers as hf

    config = hf.BartConfig(
        vocab_size=128, d_model=64, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128,
        encoder_attention_heads=4, decoder_attention_heads=4, forced_eos_token_id=2, **_TOKENS,
    )  # fmt: skip
    _step(hf.BartForConditionalGeneration(config), device, input_ids=_tokens(), labels=_tokens())


@program(needs=("transformers",), name="transformers-vit")
def vit(device: str) -> None:
    import transformers as hf

    small = {k: v for k, v in _SMALL.items() if k != "vocab_size"}
    model = hf.ViTForImageClassification(hf.ViTConfig(image_size=32, patch_size=8, num_labels=10, **small))
    _step(model, device, pixel_values=torch.randn(2, 3, 32, 32), labels=torch.zeros(2, dtype=torch.long))


@program(needs=("transformers",), name="transformers-clip")
def clip(device: str) -> None:
    import transformers as hf

    text = {**_SMALL, **_TOKENS, "max_position_embeddings": 32}
    vision = {**{k: v for k, v in _SMALL.items() if k != "vocab_size"}, "image_size": 32, "patch_size": 8}
    model = hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=32))
    _step(model, device, input_ids=_tokens(), pixel_values=torch.randn(2, 3, 32, 32), return_loss=True)


@program(needs=("transformers",), name="transformers-whisper")
def whisper(device: str) -> None:
    import transformers as hf

    config = hf.WhisperConfig(
        vocab_size=128, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_source_positions=50, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None, **_TOKENS,
    )  # fmt: skip
    _step(hf.WhisperForConditionalGeneration(config), device, input_features=torch.randn(2, 80, 100), labels=_tokens())


@program("products", needs=("transformers",), name="transformers-wav2vec2-ctc")
def wav2vec2(device: str) -> None:
    import transformers as hf

    config = hf.Wav2Vec2Config(**{**_SMALL, "vocab_size": 32}, conv_dim=(32,) * 7, mask_time_prob=0.0, layerdrop=0.0)
    _step(hf.Wav2Vec2ForCTC(config), device, input_values=torch.randn(2, 4000), labels=torch.arange(8).reshape(2, 4) + 1)


@program("none", needs=("transformers",), name="transformers-mixtral")
def mixtral(device: str) -> None:
    import transformers as hf

    config = hf.MixtralConfig(**{**_SMALL, **_TOKENS}, num_key_value_heads=4, num_local_experts=4)
    _step(hf.MixtralForCausalLM(config), device, input_ids=_tokens(), labels=_tokens(), use_cache=False)


@program("products", needs=("transformers",), name="transformers-mamba")
def mamba(device: str) -> None:
    import transformers as hf

    config = hf.MambaConfig(vocab_size=128, hidden_size=64, state_size=8, num_hidden_layers=2)
    _step(hf.MambaForCausalLM(config), device, input_ids=_tokens(), labels=_tokens())


@program(needs=("transformers",), name="transformers-generate")
def generate(device: str) -> None:
    import transformers as hf

    model = hf.GPT2LMHeadModel(hf.GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, **_TOKENS)).to(device).eval()
    with torch.no_grad():
        model.generate(_tokens(1, 4).to(device), max_new_tokens=4, min_new_tokens=4, do_sample=False)


@program(needs=("transformers",), name="transformers-checkpointing")
def checkpointing(device: str) -> None:
    import transformers as hf

    model = hf.LlamaForCausalLM(hf.LlamaConfig(**_SMALL, num_key_value_heads=4))
    model.gradient_checkpointing_enable()
    _step(model, device, input_ids=_tokens(), labels=_tokens(), use_cache=False)
