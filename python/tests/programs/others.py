"""Everything else that people write: recurrent and graph networks, recommenders, diffusion, reinforcement learning, odd corners."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from . import program


def mlp(i: int = 32, o: int = 10) -> nn.Sequential:
    return nn.Sequential(nn.Linear(i, 64), nn.ReLU(), nn.Linear(64, o))


@program("recurrent")
def packed_lstm(device: str) -> None:
    words, lstm, head = nn.Embedding(100, 16).to(device), nn.LSTM(16, 32, 2, batch_first=True).to(device), nn.Linear(32, 4).to(device)
    tokens = torch.arange(40, device=device).reshape(4, 10)
    packed = nn.utils.rnn.pack_padded_sequence(words(tokens), torch.tensor([10, 7, 5, 2]), batch_first=True)
    out, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0], batch_first=True)
    head(out[:, -1]).sum().backward()


@program("recurrent")
def speech_with_gru_and_ctc(device: str) -> None:
    convolution, gru, head = nn.Conv1d(40, 32, 3, 2, 1), nn.GRU(32, 32, bidirectional=True), nn.Linear(64, 30)
    model = nn.ModuleList([convolution, gru, head]).to(device)
    x = F.relu(convolution(torch.randn(2, 40, 60, device=device))).permute(2, 0, 1)
    scores = head(gru(x)[0]).log_softmax(-1)
    targets = (torch.arange(10, device=device) % 29 + 1).reshape(2, 5)
    F.ctc_loss(scores, targets, torch.full((2,), 30), torch.full((2,), 5)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@program()
def lstm_cells_in_a_loop(device: str) -> None:
    cell, head = nn.LSTMCell(16, 32).to(device), nn.Linear(32, 1).to(device)
    h = c = torch.zeros(4, 32, device=device)
    for x in torch.randn(5, 4, 16, device=device):
        h, c = cell(x, (h, c))
    head(h).sum().backward()


@program()
def graph_convolution(device: str) -> None:
    first, second = nn.Linear(16, 32).to(device), nn.Linear(32, 4).to(device)
    source, target = (torch.arange(200, device=device) * k % 50 for k in (7, 11))

    def gather(x: torch.Tensor) -> torch.Tensor:
        degree = torch.zeros(50, device=device).scatter_add_(0, target, torch.ones(200, device=device)).clamp_min(1)
        return torch.zeros(50, x.size(1), device=device).index_add_(0, target, x[source]) / degree[:, None]

    x = torch.randn(50, 16, device=device)
    F.cross_entropy(gather(second(F.relu(gather(first(x))))), torch.zeros(50, dtype=torch.long, device=device)).backward()


@program()
def graph_attention(device: str) -> None:
    project, score = nn.Linear(16, 32).to(device), nn.Linear(64, 1).to(device)
    source, target = (torch.arange(200, device=device) * k % 50 for k in (7, 11))
    h = project(torch.randn(50, 16, device=device))
    e = F.leaky_relu(score(torch.cat([h[source], h[target]], -1))).squeeze(-1).exp()
    total = torch.zeros(50, device=device).index_add_(0, target, e)
    torch.zeros(50, 32, device=device).index_add_(0, target, h[source] * (e / total[target])[:, None]).sum().backward()


@program("products")
def recommender_with_embedding_bags(device: str) -> None:
    tables = nn.ModuleList([nn.EmbeddingBag(1000, 16, mode="sum") for _ in range(3)]).to(device)
    bottom, top = mlp(13, 16).to(device), mlp(16 + 6, 1).to(device)
    dense, ids = torch.randn(8, 13, device=device), torch.arange(32, device=device)
    offsets = torch.arange(0, 32, 4, device=device)
    vectors = torch.stack([bottom(dense), *(t(ids, offsets) for t in tables)], 1)
    pairs = torch.bmm(vectors, vectors.transpose(1, 2))
    row, column = torch.tril_indices(4, 4, -1, device=device)
    out = top(torch.cat([vectors[:, 0], pairs[:, row, column]], 1))
    F.binary_cross_entropy_with_logits(out, torch.ones(8, 1, device=device)).backward()


@program("products")
def experts_by_hand(device: str) -> None:
    router, experts = nn.Linear(32, 4).to(device), nn.ModuleList([mlp(32, 32) for _ in range(4)]).to(device)
    x = torch.randn(64, 32, device=device)
    weights, chosen = router(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    for i, expert in enumerate(experts):
        token, slot = torch.where(chosen == i)
        out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
    out.sum().backward()


@program()
def deep_q_learning(device: str) -> None:
    online, target = mlp(8, 4).to(device), mlp(8, 4).to(device)
    optimizer = torch.optim.RMSprop(online.parameters())
    state, following = torch.randn(32, 8, device=device), torch.randn(32, 8, device=device)
    action, reward = torch.zeros(32, 1, dtype=torch.long, device=device), torch.randn(32, device=device)
    with torch.no_grad():
        best = reward + 0.99 * target(following).max(1).values
    F.smooth_l1_loss(online(state).gather(1, action).squeeze(1), best).backward()
    optimizer.step()
    for a, b in zip(target.parameters(), online.parameters()):
        a.data.lerp_(b.data, 0.01)


@program("products")
def actor_and_critic(device: str) -> None:
    body, policy, value = mlp(8, 32).to(device), nn.Linear(32, 4).to(device), nn.Linear(32, 1).to(device)
    h = body(torch.randn(16, 8, device=device))
    choices = torch.distributions.Categorical(logits=policy(h), validate_args=False)
    action = choices.sample()
    advantage = torch.ones(16, device=device) - value(h).squeeze(-1)
    loss = -(choices.log_prob(action) * advantage.detach()).mean() + advantage.pow(2).mean() - 0.01 * choices.entropy().mean()
    loss.backward()


@program("products", needs=("diffusers",))
def diffusion_unet(device: str) -> None:
    from diffusers import DDPMScheduler, UNet2DModel

    kinds = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    unet = UNet2DModel(sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, **kinds).to(device)
    x = torch.randn(2, 3, 16, 16, device=device)
    noise, t = torch.randn_like(x), torch.tensor([3, 700], device=device)
    F.mse_loss(unet(DDPMScheduler().add_noise(x, noise, t), t).sample, noise).backward()


@program()
def attention_by_hand(device: str) -> None:
    project = nn.Linear(32, 96).to(device)
    q, k, v = project(torch.randn(2, 8, 32, device=device)).view(2, 8, 3, 4, 8).permute(2, 0, 3, 1, 4)
    mask = torch.ones(8, 8, dtype=torch.bool, device=device).triu(1)
    (q @ k.transpose(-1, -2)).div(8**0.5).masked_fill(mask, float("-inf")).softmax(-1).matmul(v).sum().backward()


@program()
def encoder_of_pytorch(device: str) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    nn.TransformerEncoder(layer, 2).to(device).train()(torch.randn(2, 8, 32, device=device)).sum().backward()


@program()
def recomputed_layers(device: str) -> None:
    blocks = nn.ModuleList([mlp(32, 32) for _ in range(3)]).to(device)
    x = torch.randn(8, 32, device=device, requires_grad=True)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    x.sum().backward()


@program()
def gathered_gradients(device: str) -> None:
    model = mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        (F.cross_entropy(model(torch.randn(8, 32, device=device)), torch.zeros(8, dtype=torch.long, device=device)) / 3).backward()
    optimizer.step()


@program()
def per_sample_gradients(device: str) -> None:
    model = mlp().to(device)
    parameters = dict(model.named_parameters())

    def loss(parameters: dict, x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).sum()

    torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, torch.randn(8, 32, device=device))


@program("none")
def lbfgs_with_a_closure(device: str) -> None:
    model = mlp().to(device)
    optimizer, x = torch.optim.LBFGS(model.parameters(), max_iter=4), torch.randn(8, 32, device=device)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)


@program("products")
def masks_and_counts(device: str) -> None:
    y = mlp().to(device)(torch.randn(64, 32, device=device))
    kept = y[y > 0]
    kinds = torch.unique(y.argmax(-1))
    often = torch.repeat_interleave(torch.arange(4, device=device), torch.tensor([1, 2, 3, 4], device=device))
    assert often.numel() == 10
    where = torch.nonzero(y > 1)
    (kept.sum() + torch.masked_select(y, y < 0).sum() + 0 * kinds.sum() + 0 * where.sum()).backward()


@program("products")
def numbers_on_the_host(device: str) -> None:
    loss = mlp().to(device)(torch.randn(8, 32, device=device)).pow(2).mean()
    text = f"{loss:.3f} {loss.item()} {float(loss.detach())} {loss.detach().cpu().numpy()}"
    assert "nan" not in text
    loss.backward()


@program()
def signals_and_solvers(device: str) -> None:
    x = torch.randn(2, 400, device=device)
    spectrum = torch.stft(x, 64, window=torch.hann_window(64, device=device), return_complex=True).abs()
    a = torch.randn(8, 8, device=device)
    torch.linalg.svd(a)
    torch.linalg.solve(a @ a.T + torch.eye(8, device=device), a)
    torch.linalg.cholesky(a @ a.T + torch.eye(8, device=device))
    torch.sort(x)
    x.topk(3)
    x.cumsum(-1)
    torch.fft.rfft2(a)
    assert spectrum.dim() == 3


@program("products")
def quantized_products(device: str) -> None:
    a = torch.ones(32, 64, device=device, dtype=torch.int8)
    torch._int_mm(a, torch.ones(64, 32, device=device, dtype=torch.int8))


@program("none")
def sparse_matrix(device: str) -> None:
    index = torch.arange(20, device=device).reshape(2, 10) % 10
    matrix = torch.sparse_coo_tensor(index, torch.randn(10, device=device), (10, 10))
    torch.sparse.mm(matrix, torch.randn(10, 4, device=device))


@program("none")
def nested_tensor(device: str) -> None:
    pieces = [torch.randn(n, 4, device=device) for n in (3, 5)]
    (torch.nested.nested_tensor(pieces, layout=torch.jagged) * 2).sum()


@program("none")
def loop_that_waits(device: str) -> None:
    x = mlp().to(device)(torch.randn(8, 32, device=device))
    while x.norm().item() < 100:
        x = x * 2


@program("none", since=(2, 15))
def flexible_attention(device: str) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q = torch.randn(1, 2, 128, 64, device=device)
    flex_attention(q, q, q)
