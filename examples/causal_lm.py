"""A Hugging Face causal language model with its own loss, checkpointing and fused AdamW; no weights are allocated."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import preflop

config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
tokens = torch.zeros(4, 2048, dtype=torch.long)


def step(tokens: torch.Tensor) -> None:
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


graph = preflop.capture(step, tokens, name="llama 1.1B")
print(graph)
print(graph.memory())
print(graph.compare(["a100", "h100", "h200", "b200"], rank="cost"))
