// Copies between and within devices. Contiguous bytes use xpu_memcpy, everything else xpu_copy. What the
// device can't convert is converted on the host.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/TensorProperties.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "host_alias.h"
#include "operands.h"
#include "xpu/graph.h"
#include "xpu/memory.h"
#include "xpu/ops/copy.h"

namespace openxpu {
namespace {

using at::Tensor;

// True if both tensors are dense, with the same order of elements in memory.
bool same_layout(const Tensor &a, const Tensor &b) {
    if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
    if (a.is_contiguous()) return b.is_contiguous();
    return a.is_non_overlapping_and_dense() && a.strides() == b.strides();
}

// Copies bytes between host and device, or within the device. Copies with pageable memory are complete on
// return.
void copy_bytes(const Tensor &to, const Tensor &from, bool non_blocking) {
    const auto &on_device = to.is_xpu() ? to : from;
    auto *stream = current_stream(on_device);
    const void *host = to.is_cpu() ? to.const_data_ptr() : from.is_cpu() ? from.const_data_ptr() : nullptr;
    const bool pinned = host && non_blocking && xpu_host_is_pinned(host);
    check(xpu_memcpy(stream, to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(), host && !pinned));
    if (pinned) check(xpu_host_record_stream(const_cast<void *>(host), stream));
}

// A dtype of the same size that every device can copy, or the dtype itself.
xpu_dtype plain(c10::ScalarType type) {
    switch (c10::elementSize(type)) {
    case 1: return XPU_UINT8;
    case 2: return XPU_INT16;
    case 4: return XPU_INT32;
    case 8: return XPU_INT64;
    default: return dtype_of(type);
    }
}

// Within one device, with a kernel: any strides, any two dtypes of libxpu.
void copy_elements(const Tensor &to, const Tensor &from) {
    auto iter = at::TensorIteratorConfig()
                    .add_output(to)
                    .add_const_input(from)
                    .resize_outputs(false)
                    .check_all_same_dtype(false)
                    .build();
    if (iter.numel() == 0) return;
    const auto target = to.scalar_type(), source = from.scalar_type();
    const auto lowered = target == source ? iter_of(iter, plain(target)) : iter_of(iter);
    check(xpu_copy(current_stream(to), &lowered));
}

// True if the device can store and convert this dtype.
bool can_convert(c10::ScalarType type, c10::Device device) {
    return is_known(type) &&
           ((type != c10::kDouble && type != c10::kComplexDouble) || properties_of(device.index()).has_fp64);
}

// Both tensors are on one device and have the same conjugate and negative bits.
void copy_within(const Tensor &to, const Tensor &from) {
    const auto target = to.scalar_type(), source = from.scalar_type();
    if (same_layout(to, from)) {
        at::assert_no_partial_overlap(to, from);
        if (to.const_data_ptr() != from.const_data_ptr()) copy_bytes(to, from, true);
    } else if (target == source ? c10::elementSize(target) <= 8 || is_known(target)
                                : can_convert(target, to.device()) && can_convert(source, to.device())) {
        copy_elements(to, from);
    } else if (to.is_complex() && from.is_complex()) { // one of them in half precision
        const auto parts = [](const Tensor &x) { return at::view_as_real(x.is_conj() ? x.conj() : x); };
        copy_within(parts(to), parts(from));
    } else if (is_host_device(to.device().index())) {
        as_cpu(to).copy_(as_cpu_input(from));
    } else {
        to.copy_(from.cpu().to(target));
    }
}

void from_host(const Tensor &to, const Tensor &from, bool non_blocking) {
    if (same_layout(to, from)) return copy_bytes(to, from, non_blocking);
    if (is_host_device(to.device().index())) {
        as_cpu(to).copy_(from);
        return;
    }
    // Converts on the device if possible, as its memory is faster; the layout is always changed there.
    auto staged = from.expand(to.sizes());
    if (!can_convert(from.scalar_type(), to.device())) staged = staged.to(to.scalar_type());
    staged = staged.contiguous(to.suggest_memory_format());
    if (same_layout(to, staged)) return copy_bytes(to, staged, false);
    auto uploaded = at::empty_like(staged, staged.options().device(to.device()));
    copy_bytes(uploaded, staged, non_blocking);
    copy_within(to, uploaded);
}

void to_host(const Tensor &to, const Tensor &from, bool non_blocking) {
    if (same_layout(to, from)) return copy_bytes(to, from, non_blocking);
    if (is_host_device(from.device().index())) {
        // as_cpu waits if the device is asynchronous
        Tensor(to).copy_(as_cpu_input(from));
        return;
    }
    auto staged = from;
    if (can_convert(to.scalar_type(), from.device()) && is_known(from.scalar_type()))
        staged = staged.to(to.scalar_type());
    staged = staged.contiguous(to.suggest_memory_format());
    if (same_layout(to, staged)) return copy_bytes(to, staged, non_blocking);
    auto downloaded = at::empty_like(staged, staged.options().device(c10::kCPU));
    copy_bytes(downloaded, staged, false);
    Tensor(to).copy_(downloaded);
}

void copy_between(const Tensor &to, const Tensor &from) {
    auto staged = at::empty_like(from, from.options().device(c10::kCPU));
    to_host(staged, from, false);
    from_host(to, staged, false);
}

void transfer(const Tensor &to, const Tensor &given, bool non_blocking) {
    if (to.numel() == 0 && given.numel() == 0) return;
    const c10::DeviceGuard guard(to.is_xpu() ? to.device() : given.device());
    auto from = given.sizes() == to.sizes() ? given : given.expand(to.sizes());
    if (from._is_zerotensor()) { // has no memory
        Tensor(to).zero_();
        return;
    }
    // If the bits differ, stored values are copied and then conjugated or negated in place.
    const bool conjugate = to.is_conj() != from.is_conj(), negate = to.is_neg() != from.is_neg();
    if ((conjugate || negate) && to.is_cpu()) {
        Tensor(to).copy_(
            at::empty_like(from, from.options().device(c10::kCPU)).copy_(from.resolve_conj().resolve_neg()));
        return;
    }
    auto target = to;
    if (conjugate) {
        auto &flagged = target.is_conj() ? target : from;
        flagged = at::_conj(flagged);
    }
    if (negate) {
        auto &flagged = target.is_neg() ? target : from;
        flagged = at::_neg_view(flagged);
    }

    if (!from.is_xpu())
        from_host(target, from, non_blocking);
    else if (!target.is_xpu())
        to_host(target, from, non_blocking);
    else if (target.device() == from.device())
        copy_within(target, from);
    else
        copy_between(target, from);

    if (conjugate) target.conj_physical_();
    if (negate) target.neg_();
}

Tensor &copy_(Tensor &self, const Tensor &source, bool non_blocking) {
    TORCH_CHECK(source.defined(), "copy: source is undefined");
    if (self.is_same(source)) return self;
    if (source.is_meta()) return self;
    if (!self.is_complex() && source.is_complex()) {
        TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    }
    transfer(self, source, non_blocking);
    return self;
}

Tensor copy_from(const Tensor &self, const Tensor &target, bool non_blocking) {
    transfer(target, self, non_blocking);
    return target;
}

Tensor copy_from_and_resize(const Tensor &self, const Tensor &target) {
    target.resize_(self.sizes());
    transfer(target, self, false);
    return target;
}

at::Scalar local_scalar(const Tensor &self) {
    check(xpu_stream_refuse_capture(current_stream(self), "aten::_local_scalar_dense (.item())"));
    if (is_host_device(self.device().index())) return at::native::_local_scalar_dense_cpu(as_cpu_input(self));
    Tensor value = at::detail::empty_cpu({}, self.scalar_type(), {}, {}, {}, {});
    check(xpu_memcpy(current_stream(self), value.mutable_data_ptr(), self.const_data_ptr(), self.itemsize(),
                     true));
    return at::native::_local_scalar_dense_cpu(value);
}

} // namespace

TORCH_LIBRARY_IMPL(aten, XPU, m) {
    m.impl("copy_", copy_);
    m.impl("_copy_from", copy_from);
    m.impl("_copy_from_and_resize", copy_from_and_resize);
    m.impl("_local_scalar_dense", local_scalar);
}

} // namespace openxpu
