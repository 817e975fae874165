"""Times operators with PyTorch for `preflop measure`.

Reads one JSON object per line: i, op, phase, dtype, shape. Prints one per row, as they come: i with gpu_us, spread and
copies, or i with error. The first line printed says what runs where.

The GPU time of a call is its share of a CUDA graph that repeats the call on rotating copies of its inputs, so that the
inputs together exceed the L2 cache; the median of several replays counts. With the argument `cpu` nothing is timed:
every call runs once, which checks rows where there is no GPU.
"""
import json
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(json.dumps({"failed": f"this Python has no PyTorch ({error})"}), flush=True)
    sys.exit(0)

aten = torch.ops.aten
DEV = "cpu" if "cpu" in sys.argv[1:] else "cuda"
GPU = DEV == "cuda"
DT = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
REPLAYS = 9


def say(**what):
    print(json.dumps(what), flush=True)


def rand(*size, dt="fp32"):
    if dt == "fp8":
        return torch.randn(*size, device=DEV).to(torch.float8_e4m3fn)
    return torch.randn(*size, device=DEV, dtype=torch.float32).to(DT[dt])


def nbytes(*tensors):
    return sum(t.numel() * t.element_size() for t in tensors)


def ints(high, *size):
    return torch.randint(0, high, size, device=DEV)


def pair(value, default):
    value = default if value is None else value
    return list(value) if isinstance(value, list) else [value, value]


def memory_format(shape):
    return torch.channels_last if shape.get("channels_last") else torch.contiguous_format


# Each function takes (shape, dtype, phase) and returns a callable with inputs of its own, and the bytes of those inputs.

def mm(s, dt, phase, op):
    m, n, k = s["m"], s["n"], s["k"]
    layout = s.get("layout") or ("linear" if op == "linear" else "nn")
    if dt == "fp8":
        x, w, one = rand(m, k, dt=dt), rand(n, k, dt=dt), torch.ones((), device=DEV)
        fast = s.get("fast_accum", True)
        return lambda: torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=fast), nbytes(x, w)
    if layout == "linear":
        x, w = rand(m, k, dt=dt), rand(n, k, dt=dt)
        bias = rand(n, dt=dt) if s.get("bias") else None
        return lambda: F.linear(x, w, bias), nbytes(x, w)
    x = rand(m, k, dt=dt) if layout == "nn" else rand(k, m, dt=dt).t()
    w = rand(k, n, dt=dt)
    return lambda: torch.mm(x, w), nbytes(x, w)


def bmm(s, dt, phase, op):
    x, y = rand(s["b"], s["m"], s["k"], dt=dt), rand(s["b"], s["k"], s["n"], dt=dt)
    return lambda: torch.bmm(x, y), nbytes(x, y)


def conv(s, dt, phase, op):
    turned = op == "conv_transpose2d"
    b, ci, co, g = s["b"], s["ci"], s["co"], s.get("groups") or 1
    h, w = s.get("h") or s["hw"], s.get("w") or s["hw"]
    kernel = [s.get("r") or s["k"], s.get("s") or s["k"]]
    stride, pad, dilation = pair(s.get("stride"), 1), pair(s.get("pad"), 0), pair(s.get("dilation"), 1)
    more = pair(s.get("out_pad"), 0)
    fmt = memory_format(s)
    x = rand(b, ci, h, w, dt=dt).contiguous(memory_format=fmt)
    k = rand(*((ci, co // g) if turned else (co, ci // g)), *kernel, dt=dt).contiguous(memory_format=fmt)
    args = (stride, pad, dilation, turned, more, g)
    if phase == "fwd":
        return lambda: aten.convolution(x, k, None, *args), nbytes(x, k)
    y = torch.randn_like(aten.convolution(x, k, None, *args))
    mask = [phase == "dgrad", phase == "wgrad", False]
    return lambda: aten.convolution_backward(y, x, k, None, *args, mask), nbytes(x, k, y)


def rnn(s, dt, phase, op):
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[op]
    two, layers = bool(s.get("bidirectional")), s.get("layers") or 1
    m = kind(s["input"], s["hidden"], layers, bidirectional=two, device=DEV, dtype=DT[dt])
    m.flatten_parameters()
    x = rand(s["s"], s["b"], s["input"], dt=dt)
    train = phase == "bwd" or bool(s.get("train"))
    m.train(train)
    if phase == "fwd":
        def forward():
            with torch.set_grad_enabled(train):
                m(x)
        return forward, nbytes(x, *m.parameters())
    weights = [p.detach() for p in m._flat_weights]
    mode = {"rnn": 1, "lstm": 2, "gru": 3}[op]
    zero = torch.zeros(layers * (2 if two else 1), s["b"], s["hidden"], device=DEV, dtype=DT[dt])
    cell = zero.clone() if op == "lstm" else None
    rest = (mode, s["hidden"], 0, layers, False, 0.0, True, two, [], None)
    out, _, _, reserve, buffer = aten._cudnn_rnn(x, weights, 4, None, zero, cell, *rest)
    grad = torch.randn_like(out)
    return (lambda: aten._cudnn_rnn_backward(x, weights, 4, buffer, zero, cell, out, grad, None, None, *rest, reserve,
                                             [True, False, False, True])), nbytes(x, out, grad, *weights)


def sdpa(s, dt, phase, op):
    b, h, d = s["b"], s["h"], s["d"]
    kv, length = s.get("kv") or h, s.get("kv_len") or s["s"]
    train = phase == "bwd" or bool(s.get("train"))
    q, k, v = (rand(b, heads, n, d, dt=dt).requires_grad_(train) for heads, n in ((h, s["s"]), (kv, length), (kv, length)))
    more = {"enable_gqa": True} if kv != h else {}

    def forward():
        return F.scaled_dot_product_attention(q, k, v, is_causal=bool(s.get("causal")), **more)

    if phase == "fwd":
        return forward, nbytes(q, k, v)
    out = forward()
    node, grad = out.grad_fn, torch.randn_like(out)
    if "ScaledDotProduct" not in type(node).__name__:
        raise ValueError("PyTorch does not run this attention as one operator")
    return lambda: node(grad), nbytes(q, k, v, out, grad)


def rowwise(s, dt, phase, op):
    rows, cols = s["rows"], s["cols"]
    x = rand(rows, cols, dt=dt)
    w, bias = rand(cols, dt=dt), rand(cols, dt=dt)
    if phase == "bwd":
        g = torch.randn_like(x)
        if op == "layernorm":
            _, mean, rstd = aten.native_layer_norm(x, [cols], w, bias, 1e-5)
            return lambda: aten.native_layer_norm_backward(g, x, [cols], mean, rstd, w, bias, [True] * 3), 3 * nbytes(x)
        if op == "rmsnorm":
            _, rstd = aten._fused_rms_norm(x, [cols], w, 1e-6)
            return lambda: aten._fused_rms_norm_backward(g, x, [cols], rstd, w, [True, True]), 3 * nbytes(x)
        back = {"softmax": aten._softmax_backward_data, "log_softmax": aten._log_softmax_backward_data}[op]
        y = getattr(torch, op)(x, -1)
        return lambda: back(g, y, -1, x.dtype), 3 * nbytes(x)
    return {
        "softmax": lambda: torch.softmax(x, -1), "log_softmax": lambda: torch.log_softmax(x, -1),
        "layernorm": lambda: F.layer_norm(x, (cols,), w, bias), "rmsnorm": lambda: F.rms_norm(x, (cols,), w),
        "sum": lambda: x.sum(-1), "mean": lambda: x.mean(-1), "argmax": lambda: x.argmax(-1),
        "sum_cols": lambda: x.sum(0), "cumsum": lambda: torch.cumsum(x, -1),
    }[op], 2 * nbytes(x)


def spatial(s, dt, phase, op):
    b, c, hw = s["b"], s["c"], s["hw"]
    x = rand(b, c, hw, hw, dt=dt).contiguous(memory_format=memory_format(s))
    one, zero = torch.ones(c, device=DEV), torch.zeros(c, device=DEV)
    mean, var = zero.clone(), one.clone()
    k, stride, pad = s.get("k") or 3, pair(s.get("stride"), 2), pair(s.get("pad"), 1)
    native = op == "batchnorm_native" or s.get("native")
    if op in ("batchnorm", "batchnorm_native"):
        if phase == "fwd":
            if native:
                return lambda: aten.native_batch_norm(x, one, zero, mean, var, True, .1, 1e-5), 2 * nbytes(x)
            return lambda: F.batch_norm(x, mean, var, one, zero, True), 2 * nbytes(x)
        g = torch.randn_like(x)
        if native or not GPU:
            _, m, i = aten.native_batch_norm(x, one, zero, mean, var, True, .1, 1e-5)
            return lambda: aten.native_batch_norm_backward(g, x, one, mean, var, m, i, True, 1e-5, [True] * 3), 3 * nbytes(x)
        _, m, v, reserve = aten.cudnn_batch_norm(x, one, zero, mean, var, True, .1, 1e-5)
        return lambda: aten.cudnn_batch_norm_backward(x, g, one, mean, var, m, v, 1e-5, reserve), 3 * nbytes(x)
    if op == "batchnorm_eval":
        return lambda: F.batch_norm(x, mean, var, one, zero, False), 2 * nbytes(x)
    if op == "groupnorm":
        groups, w, bias = s.get("groups") or 32, rand(c, dt=dt), rand(c, dt=dt)
        if phase == "fwd":
            return lambda: F.group_norm(x, groups, w, bias), 2 * nbytes(x)
        y, m, r = aten.native_group_norm(x, w, bias, b, c, hw * hw, groups, 1e-5)
        g = torch.randn_like(y)
        return lambda: aten.native_group_norm_backward(g, x, m, r, w, b, c, hw * hw, groups, [True] * 3), 3 * nbytes(x)
    if op == "gap":
        if phase == "fwd":
            return lambda: F.adaptive_avg_pool2d(x, 1), 2 * nbytes(x)
        g = rand(b, c, 1, 1, dt=dt)
        return lambda: g.expand(b, c, hw, hw) / (hw * hw), 2 * nbytes(x)
    if op == "avgpool":
        if phase == "fwd":
            return lambda: F.avg_pool2d(x, k, stride, pad), 2 * nbytes(x)
        g = torch.randn_like(F.avg_pool2d(x, k, stride, pad))
        return lambda: aten.avg_pool2d_backward(g, x, [k, k], stride, pad, False, True, None), 2 * nbytes(x) + nbytes(g)
    if phase == "fwd":
        return lambda: F.max_pool2d(x, k, stride, pad), 2 * nbytes(x)
    y, index = aten.max_pool2d_with_indices(x, [k, k], stride, pad)
    g = torch.randn_like(y)
    return (lambda: aten.max_pool2d_with_indices_backward(g, x, [k, k], stride, pad, [1, 1], False, index)), \
        2 * nbytes(x) + nbytes(g, index)


def embedding(s, dt, phase, op):
    v, d, n = s["v"], s["d"], s["n"]
    index = ints(v, n)
    if phase == "bwd":
        g = rand(n, d, dt=dt)
        return lambda: aten.embedding_dense_backward(g, index, v, -1, False), nbytes(g) + v * d * g.element_size()
    w = rand(v, d, dt=dt)
    return lambda: F.embedding(index, w), nbytes(w)


def cross_entropy(s, dt, phase, op):
    x, t = rand(s["n"], s["v"], dt=dt), ints(s["v"], s["n"])
    if phase == "fwd":
        return lambda: F.cross_entropy(x, t), nbytes(x)
    logs = torch.log_softmax(x, 1)
    _, weight = aten.nll_loss_forward(logs, t, None, 1, -100)
    g = torch.ones((), device=DEV, dtype=DT[dt])

    def backward():
        aten._log_softmax_backward_data(aten.nll_loss_backward(g, logs, t, None, 1, -100, weight), logs, 1, logs.dtype)
    return backward, 2 * nbytes(x)


def optimizer(s, dt, phase, op):
    n, parts = s["n"], s.get("parts") or 1
    ps = [torch.randn(max(1, n // parts), device=DEV) for _ in range(parts)]
    gs = [torch.randn_like(p) for p in ps]
    if op == "sgd_foreach":
        from torch.optim.sgd import sgd
        moment = [torch.randn_like(p) for p in ps]
        return (lambda: sgd(ps, gs, moment, has_sparse_grad=False, foreach=True, weight_decay=0, momentum=.9, lr=.01,
                            dampening=0, nesterov=False, maximize=False)), 12 * n
    m, v = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps]
    if op == "adam":
        steps = [torch.ones((), device=DEV) for _ in ps]
        return (lambda: torch._fused_adamw_(ps, gs, m, v, [], steps, lr=1e-3, beta1=.9, beta2=.999, weight_decay=.01,
                                            eps=1e-8, amsgrad=False, maximize=False)), 16 * n
    from torch.optim.adam import adam
    steps = [torch.tensor(1.) for _ in ps]
    return (lambda: adam(ps, gs, m, v, [], steps, foreach=op == "adam_foreach", capturable=False, differentiable=False,
                         fused=False, has_complex=False, amsgrad=False, beta1=.9, beta2=.999, lr=1e-3, weight_decay=0,
                         eps=1e-8, maximize=False)), 16 * n


def movement(s, dt, phase, op):
    if op == "permute_copy":
        x = rand(s["b"], s["s"], s["h"], s["d"], dt=dt)
        return lambda: x.permute(0, 2, 1, 3).contiguous(), 2 * nbytes(x)
    if op == "cat_channels":
        channels = s["c"] if isinstance(s["c"], list) else [s["c"]]
        xs = [rand(s["b"], c, s["hw"], s["hw"], dt=dt).contiguous(memory_format=memory_format(s)) for c in channels]
        return lambda: torch.cat(xs, 1), 2 * nbytes(*xs)
    if op == "to_channels_last":
        back = s.get("to") == "nchw"
        formats = [torch.contiguous_format, torch.channels_last]
        x = rand(s["b"], s["c"], s["hw"], s["hw"], dt=dt).contiguous(memory_format=formats[back])
        return lambda: x.contiguous(memory_format=formats[not back]), 2 * nbytes(x)
    if op == "index_select":
        w, index = rand(s["v"], s["d"], dt=dt), ints(s["v"], s["n"])
        return lambda: torch.index_select(w, 0, index), nbytes(w)
    if op == "roll":
        x = rand(s["b"], s["hw"], s["hw"], s["c"], dt=dt)
        return lambda: torch.roll(x, (-3, -3), (1, 2)), 2 * nbytes(x)
    x = rand(s["rows"], s["cols"], dt=dt)
    if op == "transpose":
        return lambda: x.t().contiguous(), 2 * nbytes(x)
    y = rand(s["rows"], s["cols"], dt=dt)
    return lambda: torch.cat([x, y], 1), 4 * nbytes(x)


def elementwise(s, dt, phase, op):
    if "n" not in s:
        x, v, column = rand(s["rows"], s["cols"], dt=dt), rand(s["cols"], dt=dt), rand(s["rows"], 1, dt=dt)
        return {"add_bias": lambda: x + v, "mul_row": lambda: x * v, "mul_col": lambda: x * column}[op], 2 * nbytes(x)
    n = s["n"]
    x, y = rand(n, dt=dt), rand(n, dt=dt)
    out = torch.empty_like(x)
    to = DT.get(s.get("to") or ("bf16" if dt == "fp32" else "fp32"))
    mask = ints(2, n).bool()
    forward = {
        "elementwise": lambda: torch.add(x, y, out=out), "add": lambda: torch.add(x, y, out=out),
        "mul": lambda: torch.mul(x, y, out=out), "relu": lambda: torch.relu(x), "gelu": lambda: F.gelu(x),
        "tanh": lambda: torch.tanh(x), "sigmoid": lambda: torch.sigmoid(x), "silu": lambda: F.silu(x),
        "copy": lambda: out.copy_(x), "cast": lambda: x.to(to), "dropout": lambda: F.dropout(x, .1, True),
        "native_dropout": lambda: aten.native_dropout(x, .1, True), "add_scalar": lambda: x + 1.0,
        "mul_scalar": lambda: x * .5, "pow": lambda: torch.pow(x, 3.), "square": lambda: torch.pow(x, 2),
        "exp": lambda: torch.exp(x), "sqrt": lambda: torch.sqrt(x), "fill": lambda: x.zero_(),
        "relu_inplace": lambda: x.relu_(), "add_inplace": lambda: x.add_(y), "leaky_relu": lambda: F.leaky_relu(x, .2),
        "relu6": lambda: F.hardtanh(x, 0., 6.), "hardswish": lambda: F.hardswish(x),
        "where": lambda: torch.where(mask, x, y), "masked_fill": lambda: x.masked_fill(mask, 0.),
    }
    backward = {
        "gelu": lambda: aten.gelu_backward(x, y), "relu": lambda: aten.threshold_backward(x, y, 0),
        "silu": lambda: aten.silu_backward(x, y), "tanh": lambda: aten.tanh_backward(x, y),
        "sigmoid": lambda: aten.sigmoid_backward(x, y), "leaky_relu": lambda: aten.leaky_relu_backward(x, y, .2, False),
        "relu6": lambda: aten.hardtanh_backward(x, y, 0, 6), "hardswish": lambda: aten.hardswish_backward(x, y),
        "dropout": lambda: aten.native_dropout_backward(x, mask, 1.1),
    }
    calls = forward if phase == "fwd" else backward
    two = op in ("elementwise", "add", "mul", "add_inplace", "where") or phase == "bwd"
    return calls[op], nbytes(x) * (2 if two else 1) + nbytes(out)


MAKERS = {
    **dict.fromkeys(("mm", "linear"), mm), "bmm": bmm, **dict.fromkeys(("conv2d", "conv_transpose2d"), conv),
    **dict.fromkeys(("lstm", "gru", "rnn"), rnn), "sdpa": sdpa,
    **dict.fromkeys(("softmax", "log_softmax", "layernorm", "rmsnorm", "sum", "mean", "argmax", "sum_cols", "cumsum"), rowwise),
    **dict.fromkeys(("batchnorm", "batchnorm_native", "batchnorm_eval", "groupnorm", "maxpool", "avgpool", "gap"), spatial),
    "embedding": embedding, "cross_entropy": cross_entropy,
    **dict.fromkeys(("adam", "adam_single", "adam_foreach", "sgd_foreach"), optimizer),
    **dict.fromkeys(("transpose", "cat", "cat_channels", "permute_copy", "to_channels_last", "index_select", "roll"), movement),
}


def replay_ms(run):
    a, b = torch.cuda.Event(True), torch.cuda.Event(True)
    a.record()
    run()
    b.record()
    torch.cuda.synchronize()
    return a.elapsed_time(b)


def timed(make, l2, stream):
    """Microseconds of one call, half of the middle 80 % of the replays relative to it, and the copies of the inputs."""
    if not GPU:
        make()[0]()
        return 1.0, 0.0, 1
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        first, size = make()
        copies = 1 if size > l2 else min(8, int(2 * l2 / max(size, 1)) + 1)
        calls = [first] + [make()[0] for _ in range(copies - 1)]
        for f in calls[:2]:
            f()
        torch.cuda.synchronize()
        one = max(replay_ms(calls[0]), 1e-3)
    n = max(len(calls), min(64, int(3.0 / one))) // len(calls) * len(calls)

    def run():
        for i in range(n):
            calls[i % len(calls)]()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    graph.replay()
    torch.cuda.synchronize()
    times = sorted(replay_ms(graph.replay) for _ in range(REPLAYS if one < 20 else 3))
    middle = times[len(times) // 2]
    cut = len(times) // 10
    spread = (times[len(times) - 1 - cut] - times[cut]) / (2 * middle)
    return middle / n * 1e3, spread, copies


def main():
    l2, stream, name = 60 << 20, None, "no GPU: checked only"
    if GPU:
        if not torch.cuda.is_available():
            say(failed="PyTorch sees no GPU")
            return
        properties = torch.cuda.get_device_properties(0)
        l2, name, stream = getattr(properties, "L2_cache_size", l2), properties.name, torch.cuda.Stream()
    say(device=name, torch=torch.__version__)
    for line in sys.stdin:
        if not line.strip():
            continue
        row = json.loads(line)
        op, phase, dt, s = row["op"], row["phase"], row["dtype"], row["shape"]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = dt == "tf32"
        try:
            maker = MAKERS.get(op, elementwise)
            us, spread, copies = timed(lambda: maker(s, dt, phase, op), l2, stream)
            say(i=row["i"], gpu_us=us, spread=spread, copies=copies)
        except KeyError as error:
            say(i=row["i"], error=f"`{op}` with phase `{phase}` and this shape cannot be timed ({error})")
        except Exception as error:  # noqa: BLE001 a row that fails must not stop the others
            text = " ".join(str(error).split())[:200]
            say(i=row["i"], error=f"{type(error).__name__}: {text}")
            if GPU:
                try:
                    torch.cuda.synchronize()
                    torch.cuda.empty_cache()
                except RuntimeError as dead:
                    say(failed=f"the GPU is lost after this row: {' '.join(str(dead).split())[:200]}")
                    return
    say(end=True)


main()
