// Asks cuDNN which engine it would run for convolutions, as PyTorch asks it (instant heuristics, no autotuning).
// Nothing is run on the GPU but the making of a handle. Build and use: see README.md in this folder.
//
// stdin, one convolution a line:  phase dtype b ci h w co r s stride pad_h pad_w dilation groups nhwc
//   phase 0 forward, 1 data gradient, 2 weight gradient; dtype 0 fp32 without TF32, 1 tf32, 2 fp16, 3 bf16
// stdout, one line each: engine number, a bar, and the knobs as type=value separated by commas; `none` where no engine fits.
#include <cudnn.h>
#include <cstdio>
#include <cstdint>
#include <vector>

#define MUST(x) do { cudnnStatus_t s_ = (x); if (s_ != CUDNN_STATUS_SUCCESS) return s_; } while (0)

typedef cudnnBackendDescriptor_t Desc;

struct Made {
    std::vector<Desc> all;
    ~Made() { for (Desc d : all) cudnnBackendDestroyDescriptor(d); }
    cudnnStatus_t make(cudnnBackendDescriptorType_t kind, Desc *d) {
        cudnnStatus_t s = cudnnBackendCreateDescriptor(kind, d);
        if (s == CUDNN_STATUS_SUCCESS) all.push_back(*d);
        return s;
    }
};

struct Case {
    long phase, dtype, b, ci, h, w, co, r, s, stride, ph, pw, dilation, groups, nhwc;
};

static cudnnStatus_t tensor(Made &m, int64_t id, cudnnDataType_t t, bool nhwc, int64_t n, int64_t c, int64_t h, int64_t w, Desc *out) {
    MUST(m.make(CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    int64_t dims[4] = {n, c, h, w};
    int64_t strides[4] = {c * h * w, nhwc ? 1 : h * w, nhwc ? w * c : w, nhwc ? c : 1};
    int64_t align = 32;
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
    return cudnnBackendFinalize(*out);
}

static cudnnStatus_t graph(cudnnHandle_t handle, Made &m, const Case &c, Desc *out) {
    cudnnDataType_t t = c.dtype == 2 ? CUDNN_DATA_HALF : c.dtype == 3 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    long oh = (c.h + 2 * c.ph - c.dilation * (c.r - 1) - 1) / c.stride + 1;
    long ow = (c.w + 2 * c.pw - c.dilation * (c.s - 1) - 1) / c.stride + 1;
    Desc x, w, y, conv, op;
    MUST(tensor(m, 'x', t, c.nhwc, c.b, c.ci, c.h, c.w, &x));
    MUST(tensor(m, 'w', t, c.nhwc, c.co, c.ci / c.groups, c.r, c.s, &w));
    MUST(tensor(m, 'y', t, c.nhwc, c.b, c.co, oh, ow, &y));
    MUST(m.make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &conv));
    cudnnDataType_t comp = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t two = 2, stride[2] = {c.stride, c.stride}, pad[2] = {c.ph, c.pw}, dil[2] = {c.dilation, c.dilation};
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &comp));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dil));
    MUST(cudnnBackendSetAttribute(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride));
    MUST(cudnnBackendFinalize(conv));
    float one = 1, zero = 0;
    cudnnBackendAttributeName_t a[6];
    cudnnBackendDescriptorType_t kind;
    if (c.phase == 0) {
        kind = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
        cudnnBackendAttributeName_t v[6] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
        for (int i = 0; i < 6; i++) a[i] = v[i];
    } else if (c.phase == 1) {
        kind = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
        cudnnBackendAttributeName_t v[6] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
        for (int i = 0; i < 6; i++) a[i] = v[i];
    } else {
        kind = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
        cudnnBackendAttributeName_t v[6] = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
        for (int i = 0; i < 6; i++) a[i] = v[i];
    }
    MUST(m.make(kind, &op));
    Desc parts[4] = {conv, x, w, y};
    for (int i = 0; i < 4; i++) MUST(cudnnBackendSetAttribute(op, a[i], CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &parts[i]));
    MUST(cudnnBackendSetAttribute(op, a[4], CUDNN_TYPE_FLOAT, 1, &one));
    MUST(cudnnBackendSetAttribute(op, a[5], CUDNN_TYPE_FLOAT, 1, &zero));
    MUST(cudnnBackendFinalize(op));
    MUST(m.make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    MUST(cudnnBackendSetAttribute(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op));
    return cudnnBackendFinalize(*out);
}

// Writes the first engine that PyTorch would not filter out; returns false where there is none in this mode.
static bool ask(cudnnHandle_t handle, const Case &c, cudnnBackendHeurMode_t mode) {
    Made m;
    Desc g, heur;
    if (graph(handle, m, c, &g) != CUDNN_STATUS_SUCCESS) return false;
    if (m.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heur) != CUDNN_STATUS_SUCCESS) return false;
    cudnnBackendSetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &g);
    cudnnBackendSetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (cudnnBackendFinalize(heur) != CUDNN_STATUS_SUCCESS) return false;
    const int most = 24;
    Desc configs[most];
    for (int i = 0; i < most; i++) if (m.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]) != CUDNN_STATUS_SUCCESS) return false;
    int64_t count = 0;
    if (cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, configs) != CUDNN_STATUS_SUCCESS) return false;
    for (int i = 0; i < count && i < most; i++) {
        Desc engine;
        if (m.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return false;
        int64_t n = 0, number = -1;
        if (cudnnBackendGetAttribute(configs[i], CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine) != CUDNN_STATUS_SUCCESS) continue;
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &number);
        cudnnBackendNumericalNote_t notes[16];
        n = 0;
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, 16, &n, notes);
        bool tensor_core = false, down = false;
        for (int j = 0; j < n && j < 16; j++) { tensor_core |= notes[j] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE; down |= notes[j] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS; }
        if ((down && c.dtype < 2) || (tensor_core && c.dtype == 0)) continue;
        const int knobs = 32;
        Desc choice[knobs];
        for (int j = 0; j < knobs; j++) if (m.make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[j]) != CUDNN_STATUS_SUCCESS) return false;
        n = 0;
        cudnnBackendGetAttribute(configs[i], CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, knobs, &n, choice);
        printf("%ld|", (long)number);
        for (int j = 0; j < n && j < knobs; j++) {
            cudnnBackendKnobType_t type;
            int64_t value = 0, k = 0;
            cudnnBackendGetAttribute(choice[j], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &k, &type);
            cudnnBackendGetAttribute(choice[j], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &k, &value);
            printf("%s%d=%ld", j ? "," : "", (int)type, (long)value);
        }
        printf("\n");
        return true;
    }
    return false;
}

int main() {
    cudnnHandle_t handle;
    if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) { fprintf(stderr, "error: no cuDNN handle; is there a GPU?\n"); return 2; }
    fprintf(stderr, "cuDNN %zu\n", cudnnGetVersion());
    Case c;
    while (scanf("%ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", &c.phase, &c.dtype, &c.b, &c.ci, &c.h, &c.w, &c.co, &c.r, &c.s, &c.stride, &c.ph, &c.pw, &c.dilation, &c.groups, &c.nhwc) == 15)
        if (!ask(handle, c, CUDNN_HEUR_MODE_INSTANT) && !ask(handle, c, CUDNN_HEUR_MODE_FALLBACK)) printf("none\n");
    cudnnDestroy(handle);
    return 0;
}
