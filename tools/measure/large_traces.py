"""Gigabyte traces as PyTorch's profiler writes them, and what reading and explaining them takes.

    python3 tools/measure/large_traces.py target/release/preflop [MEGABYTES]

Three kinds: `dense` has nothing but launches and kernels, `nested` operators four deep around each launch with flows between them, on two
threads of which one comes after the other in the file, and `short` the shortest launches and kernels that are read. Prints the most memory and the
processor time of `preflop explain` for each; the files lie in a folder of their own until then.
"""

import os
import random
import subprocess
import sys
import tempfile

HEAD = """{
"schemaVersion": 1,
"deviceProperties": [{"name": "NVIDIA H200", "id": 0, "totalGlobalMem": 150109880320, "computeMajor": 9, "computeMinor": 0, "warpSize": 32, "numSms": 132}],
"traceEvents": [
"""
NAMES = [
    f"void at::native::vectorized_elementwise_kernel<{i % 8}, at::native::CUDAFunctor_add<float>, std::array<char*, {i}ul> >(int, {i})"
    for i in range(100)
] + [f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x{8 * i}x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas" for i in range(100)]


def launch(at, number, thread):
    return (
        f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 430, "tid": {thread}, "ts": {at:.3f}, "dur": {random.uniform(3, 9):.3f}, '
        f'"args": {{"External id": {number}, "cbid": 211, "correlation": {number}}}}},\n'
    )


def kernel(at, number):
    grid, block = random.choice((1, 132, 264, 1024, 4096)), random.choice((128, 256))
    return (
        f'{{"ph": "X", "cat": "kernel", "name": "{random.choice(NAMES)}", "pid": 0, "tid": 7, "ts": {at:.3f}, "dur": {random.uniform(2, 6):.3f}, '
        f'"args": {{"External id": {number}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number}, "registers per thread": 32, "shared memory": 0, '
        f'"blocks per SM": {grid / 132:.6f}, "warps per SM": {grid * block / 132 / 32:.6f}, "grid": [{grid}, 1, 1], "block": [{block}, 1, 1], '
        f'"est. achieved occupancy %": 0}}}},\n'
    )


def operator(name, at, length, number, sequence, thread):
    rows = random.choice((32, 64, 128))
    return (
        f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 430, "tid": {thread}, "ts": {at:.3f}, "dur": {length:.3f}, '
        f'"args": {{"External id": {number}, "Record function id": 0, "Sequence number": {sequence}, "Fwd thread id": 0, '
        f'"Concrete Inputs": ["", ""], "Input type": ["float", "float"], "Input Strides": [[1024, 1], [1, 1024]], "Input Dims": [[{rows}, 1024], [1024, 1024]], "Ev Idx": {number}}}}},\n'
    )


def flow(kind, at, number):
    return f'{{"ph": "{kind}", "id": {number}, "pid": 430, "tid": 430, "ts": {at:.3f}, "cat": "ac2g", "name": "ac2g"}},\n'


def dense(out, size):
    number = 0
    while out.tell() < size:
        number += 1
        at = 20.0 * number + random.uniform(0, 10)
        out.write(launch(at, number, 430))
        out.write(kernel(at + 5, number))


def nested(out, size):
    number = 0
    for thread, until in ((430, size / 2), (460, size)):
        while out.tell() < until:
            at = 40.0 * number + random.uniform(0, 5)
            names = ("aten::linear", "aten::addmm", "aten::mul", "aten::mul_")
            for depth, name in enumerate(names):
                number += 1
                out.write(operator(name, at + depth, 30 - 2 * depth, number, number, thread))
            out.write(launch(at + 8, number, thread))
            out.write(flow("s", at + 8, number))
            out.write(kernel(at + 12, number))
            out.write(flow("f", at + 12, number))


def short(out, size):
    number = 0
    while out.tell() < size:
        number += 1
        at = 20 * number
        out.write(f'{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","ts":{at},"dur":5,"args":{{"correlation":{number}}}}},\n')
        out.write(f'{{"ph":"X","cat":"kernel","name":"k{number % 50}","ts":{at + 8},"dur":9,"args":{{"correlation":{number}}}}},\n')


def main():
    program, size = sys.argv[1], int(float(sys.argv[2]) * 1e6) if len(sys.argv) > 2 else 10**9
    random.seed(1)
    for write in (dense, nested, short):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, f"{write.__name__}.json")
            with open(path, "w") as out:
                out.write(HEAD)
                write(out, size)
                out.write('{"ph": "M"}]}\n')
            child = subprocess.Popen([program, "explain", path], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(child.pid, 0)
            print(
                f"{write.__name__}: {os.path.getsize(path) / 1e6:.0f} MB, at most {used.ru_maxrss * 1024 / 1e6:.0f} MB, "
                f"{used.ru_utime:.1f} s of processor and {used.ru_stime:.1f} s of the system, status {os.waitstatus_to_exitcode(status)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
