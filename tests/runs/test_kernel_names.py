"""Base names of kernels, distinct where the kernels are."""

from __future__ import annotations

import pytest

from dsocr_core.runs.kernel_names import kernel_name, kernel_names


@pytest.mark.parametrize(
    ("full", "shown"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, T2)",
         "vectorized_elementwise_kernel"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>(T1::Params)", "Kernel2"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"), ("_expert_gate_up", "_expert_gate_up"),
        ("<unnamed>", "<unnamed>"),
        ("enable_if<!T7, void>::type kernel<int, int, cublasGemvParamsEx<int>>(T13)", "kernel"),
        ("void unnamed>::CatArrayBatchedCopy<unnamed>::OpaqueType<4>, unsigned int, 3, 64, 64>(T1 *, "
         "unnamed>::TensorSizeStride<T2, 4>, int, T2)", "CatArrayBatchedCopy"),
        ("void at::native::<unnamed>::Copy<at::native::<unnamed>::Opaque<(unsigned int)4>, (int)3>(T1 *)",
         "Copy"),
        ("void (anonymous namespace)::softmax_warp<float, 4>(float *)", "softmax_warp"),
        ("unnamed>::scale_kernel(float, const float *, int)", "scale_kernel"),
        ("_Z10saxpy_warpIfEvPT_S1_", "saxpy_warp"), ("_ZN2at6native4copyIfEEvPT_", "copy"),
        ("void my::operator<<(int)", "operator<<"), ("bool operator<<<int>(T1)", "operator<<"),
        ("void my::functor::operator()(int) const", "operator()"), ("void a::operator->(int)", "operator->"),
        ("void gemm<256, (a > b)>(float *)", "gemm"), ("void k<(a >> 2), (int)3>(f<int> *)", "k"),
    ],
)  # fmt: skip
def test_a_kernel_is_called_as_profilers_call_it(full: str, shown: str) -> None:
    assert kernel_name(full) == shown


def test_different_kernels_have_different_names_and_one_kernel_one() -> None:
    names = [
        "void a::gemm<(int)2>(T1)", "void a::gemm<(int)4>(T1)", "void gemm<4>(T1)", "copy(int)",
        "copy(float)", "void x::run<1>(T1)", "void y::run<1>(T1)", "alone<float>(T1)",
    ]  # fmt: skip
    shown = kernel_names(names)
    assert shown == [
        "gemm<2>", "gemm<4>", "gemm<4>", "copy(int)", "copy(float)",
        "x::run<1>(T1)", "y::run<1>(T1)", "alone",
    ]  # fmt: skip
    assert kernel_names(names[1:3]) == ["gemm", "gemm"]
